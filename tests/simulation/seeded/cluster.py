"""Bugs of the cluster: its tables, who owns what, what operators are told, bounds, and what a node can't survive."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final

from flockmq.durable.session_service import SessionService
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.leader_duties import LeaderDuties
from flockmq.membership.slot_assignment import reassign
from flockmq.membership.staleness import _FastestNote
from flockmq.node.durable_host import DurableHost
from flockmq.rlog.committer import Committer, _answer
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.tables import Shard
from flockmq.routes.filter_registration import FilterRegistration
from flockmq.session.limits import Limits
from judges import judge
from simulation.seeded.bug import Function, seeded

EVERY: Final = 40
"""One entry of the log in so many."""

_entries: Final = itertools.count(1)


# --- tables -----------------------------------------------------------------------------------------------------------


@seeded(judge.DIGESTS, "base", Shard.apply_runs, seed=3)
def apply_too_little(right: Function, shard: Shard, runs: Sequence[Any]) -> None:
    """A node's tables lack the end of some entries of the log."""
    right(shard, runs[:-1] if next(_entries) % EVERY == 0 else runs)


@seeded(judge.ROUTES_LEFT, "base", FilterRegistration.unrouted)
def keep_routes(right: Function, filters: FilterRegistration, gone: list[bytes]) -> None:
    """A route stays when its last client here went."""


@seeded(judge.ROUTES_LEFT, "base", LeaderDuties._purge, kinds=("kill replicant",))
async def purge_cores_only(right: Function, duties: LeaderDuties, now: float, fence: StreamId) -> set[str]:
    """A replicant that died isn't purged."""
    members = duties._nodes
    duties._nodes = members.fresh()
    duties._nodes.update({core: members[core] for core in members.cores})
    try:
        purged: set[str] = await right(duties, now, fence)
    finally:
        duties._nodes = members
    return purged


@seeded(judge.UNSERVED, "base", reassign, kinds=("kill core",))
def give_out_once(right: Function, owners: Sequence[str], *given: Any) -> dict[int, str]:
    """The slots of a core that was purged are given to nobody."""
    moves: dict[int, str] = right(owners, *given)
    return {slot: core for slot, core in moves.items() if owners[slot] or not any(owners)}


@seeded(judge.STALE_READY, "base", _FastestNote.late_s)
def count_from_the_first(right: Function, quickest: _FastestNote, now: float, ahead: float) -> float:
    """How late a core's note is is counted from when that core was first heard."""
    return now - quickest._since


@seeded(judge.ALARM, "base", Rlog._redis_lost, kinds=("empty redis",))
def tell_nobody(right: Function, rlog: Rlog, shard: str, text: str) -> None:
    """A core that finds that Redis lost data raises no alarm."""
    rlog.redis_lost_data += 1


# --- bounds -----------------------------------------------------------------------------------------------------------


@seeded(judge.BOUND, "overflow", DurableHost.limits, seed=8)
def any_limits(right: Function, hosting: DurableHost, zone: str) -> Limits:
    """An owner has the limits that a node has that wasn't configured."""
    return Limits()


# --- what a node can't survive ----------------------------------------------------------------------------------------


@seeded(judge.UNWELL, "base", SessionService.session_unloaded)
def expect_everybody(right: Function, service: SessionService, session: Any) -> None:
    """A session that moves is looked for where it isn't."""
    del service._expected[session.client_id]
    right(service, session)


@seeded(judge.UNWELL, "base", Committer._resolve, kinds=("kill replicant", "slow redis"), seed=7)
def answer_twice(right: Function, committer: Committer, append: Any, answer: Any) -> None:
    """A core answers who doesn't wait any more, and ends."""
    append.done.set_result(_answer(append.incarnation, answer))
    committer.queued_bytes -= append.size


# --- time -------------------------------------------------------------------------------------------------------------


@seeded(judge.EARLY, "delayed", ClusterTime._follow, kinds=("clock core", "clock replicant"), seed=4)
def follow_anybody(
    right: Function, time: ClusterTime, target_s: float | None, offset_s: float, passed_s: float
) -> None:
    """A node's time goes by its own clock while others' are heard."""
    right(time, time._own.wall() - time._own.monotonic(), offset_s, passed_s)
