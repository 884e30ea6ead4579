"""Twice a second each node says how it is on all of its links, hears how the others are, and closes what is silent.

News that others shouldn't wait for goes at once: whom a core can't reach any more, that a node drains, and whether it
hears Redis. What always holds: `statuses` has what each linked node said last, and nothing of a node without a link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.cluster_time import ClusterTime
from flockmq.membership.frames import Status
from flockmq.membership.link import Link
from flockmq.membership.mesh import Mesh
from flockmq.membership.reachability import CORE_ROLES, Reachability, name_of
from flockmq.membership.views import LocalStatus
from flockmq.rlog.digests import CheckpointDigests
from flockmq.rlog.entry import START
from flockmq.rlog.generation import reached_by_majority
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS

log: Final = logging.getLogger(__name__)


class Heartbeats:
    """The plain attributes are set before the first beat that is to tell of them."""

    def __init__(
        self,
        mesh: Mesh,
        members: Reachability,
        local_status: Callable[[], LocalStatus],
        time: ClusterTime,
        is_core: bool,
    ) -> None:
        self.statuses: dict[str, Status] = {}
        self.rlog: Rlog | None = None
        self.unreachable: Callable[[float], Collection[str]] = _nobody
        """A core's vote, at a time."""
        self.leads: Callable[[], bool] = _never
        self.settled: Callable[[float], bool] = _always
        """A core's: whether it belongs to a majority of the cores, at a time."""
        self.count_cores: Callable[[], int] = _one
        """How many majorities are of."""
        self.writes_through: Callable[[], str] = str
        """The core that this node's writes go through; "" for none."""
        self.replicants: Callable[[], int] = int
        """How many replicants write through this core."""
        self.stale: Callable[[], bool] = bool
        """Whether this node's tables may be old."""
        self.is_new: Callable[[], bool] = bool
        """A core's: whether the cluster is new, as far as this core can tell."""
        self.is_idle: Callable[[str, float], bool] = _is_idle
        """Whether no message waits for a node, nor did lately, at a time."""
        self.look: Callable[[float], None] = _see_nothing
        """Called ten times a second, with the time."""
        self.appends = 0
        """Of other nodes, since the last beat: this core's weight."""
        self._mesh = mesh
        self._members = members
        self._local_status = local_status
        self._time = time
        self._is_core = is_core
        self._said_at: dict[str, float] = {}
        self._news: object = None
        self._settled_at = 0.0
        self._loop = asyncio.get_running_loop()

    @property
    def is_draining(self) -> bool:
        return self._local_status().draining

    def of(self, incarnation: str) -> Status:
        """What it said last, if it is linked."""
        return self.statuses.get(incarnation, _NOTHING_SAID)

    def is_heard(self, incarnation: str, now: float, within_s: float = bounds.MEMBER_VOTE_MAX_S) -> bool:
        """It said something lately."""
        said_at = self._said_at.get(incarnation)
        return said_at is not None and now - said_at <= within_s

    def is_fenced(self, now: float) -> bool:
        """Whether this node may have been purged without knowing: no majority was heard of for MEMBER_FENCE_S."""
        if self._is_core:
            return not self.settled(now)
        return now - self._settled_at > bounds.MEMBER_FENCE_S

    def is_cut_off(self) -> bool:
        """This node hears nothing from Redis, and another one does."""
        if self.rlog is None or self.rlog.hears_redis():
            return False
        return any(status.hears_redis for status in self.statuses.values())

    def greet(self, link: Link) -> None:
        """A link is up: the first heartbeat on it."""
        link.control(frames.Heartbeat(self.status()))

    def heard(self, link: Link, heartbeat: frames.Heartbeat) -> None:
        link.control(_HEARD)
        status = heartbeat.status
        self.statuses[link.peer.incarnation] = status
        self._said_at[link.peer.incarnation] = link.heard_at
        if status.settled and not self._is_core:
            self._settled_at = link.heard_at
        if status.clocks is not None and link.peer.role in CORE_ROLES:
            self._time.heard(link.peer.incarnation, status.clocks)
        if self.rlog is not None:
            for shard in SHARDS:
                if (head := status.heads.get(shard)) is not None:
                    self.rlog.note_log_end(shard, head)

    def lost(self, incarnation: str) -> None:
        """The last link to it ended."""
        self.statuses.pop(incarnation, None)
        self._said_at.pop(incarnation, None)
        self._time.lost(incarnation)

    def status(self) -> Status:
        """What this node says about itself."""
        local = self._local_status()
        rlog = self.rlog
        if rlog is None:
            return Status(local.connections, local.routes, 0, local.ready, local.draining, clocks=self._time.reading())
        core, now = rlog.core, self._loop.time()
        return Status(
            connections=local.connections,
            routes=local.routes,
            lag_entries=max(rlog.lag(shard)[0] for shard in SHARDS),
            ready=local.ready,
            draining=local.draining,
            weight=self.appends,
            heads={shard: rlog.applied(shard) for shard in SHARDS},
            unreachable=tuple(sorted(self.unreachable(now)))[: bounds.MEMBER_VOTES_MAX],
            leads=self.leads(),
            durable={shard: core.durable(shard) for shard in SHARDS} if core is not None else {},
            checkpoints=_checkpoints(rlog) if core is not None else {},
            sending=core.sending() if core is not None else {},
            settled=self._is_core and self.settled(now),
            core=self.writes_through(),
            replicants=self.replicants(),
            clocks=self._time.reading(),
            hears_redis=rlog.hears_redis(),
            stale=self.stale(),
            is_new=self.is_new(),
        )

    async def run(self) -> None:
        """Until cancelled."""
        looked_at = beat_at = self._loop.time()
        while True:
            await asyncio.sleep(bounds.LINK_LOOK_S)
            now = self._loop.time()
            stood_still = now - looked_at > 3 * bounds.LINK_HEARTBEAT_S
            looked_at = now
            try:
                if now - beat_at >= bounds.LINK_HEARTBEAT_S or self._has_news(now):
                    beat_at = now
                    self._beat(now, stood_still=stood_still)
                self._time.look(self.count_cores())
                self.look(now)
            except Exception:
                log.exception("a heartbeat failed")

    def _has_news(self, now: float) -> bool:
        hears_redis = self.rlog is None or self.rlog.hears_redis()
        news = self.is_draining, hears_redis, frozenset(self.unreachable(now))
        if news == self._news:
            return False
        self._news = news
        return True

    def _beat(self, now: float, *, stood_still: bool) -> None:
        """`stood_still`: this node's own loop did, so silence proves nothing."""
        encoded = frames.control(frames.Heartbeat(self.status()))
        self.appends = 0
        self._note_cores()
        if stood_still:
            self._members.count_anew(now)
        for link in self._mesh.links():
            link.send(encoded)
            if stood_still:
                link.heard_at = link.answered_at = now
            elif now - link.heard_at > bounds.LINK_SILENT_MAX_S:
                link.close(f"nothing was heard on it for {bounds.LINK_SILENT_MAX_S} s")
            elif now - link.answered_at > bounds.LINK_UNANSWERED_MAX_S:
                link.close(f"it hears nothing of this node for {bounds.LINK_UNANSWERED_MAX_S} s, though it is heard")
            elif self._is_unused(link, now):
                self._mesh.release(link.peer.incarnation)
                link.close("it was idle")

    def _note_cores(self) -> None:
        """Tell the log how far a majority of the cores is, and what digests they have."""
        rlog = self.rlog
        if rlog is None:
            return
        cores = {name_of(core): core for core in self._mesh.linked_cores()}
        count = self.count_cores()
        for shard in SHARDS:
            places = [self.of(core).heads.get(shard, START) for core in cores.values()]
            if rlog.core is not None:
                places.append(rlog.applied(shard))
            rlog.majority_reached(shard, reached_by_majority(places, count))
            checked = [self.of(core).checkpoints.get(shard) for core in cores.values()]
            rlog.compare(shard, [found for found in checked if found is not None], count)

    def _is_unused(self, link: Link, now: float) -> bool:
        """Nor is another link to that node used: one that ends takes the others along."""
        incarnation = link.peer.incarnation
        if self._is_core or link.peer.role in CORE_ROLES:
            return False
        if any(now - max(one.used_at, one.up_at) < bounds.PEER_IDLE_S for one in self._mesh.links_of(incarnation)):
            return False
        return self.is_idle(incarnation, now)


def _checkpoints(rlog: Rlog) -> dict[str, CheckpointDigests]:
    found = ((shard, rlog.checkpoint(shard)) for shard in SHARDS)
    return {shard: checked for shard, checked in found if checked is not None}


_HEARD: Final = frames.Heard()
_NOTHING_SAID: Final = Status()


def _nobody(now: float) -> Collection[str]:
    """A node that is no core has no vote."""
    return ()


def _one() -> int:
    return 1


def _never() -> bool:
    return False


def _always(now: float) -> bool:
    return True


def _is_idle(incarnation: str, now: float) -> bool:
    return True


def _see_nothing(now: float) -> None:
    """Nobody looks."""
