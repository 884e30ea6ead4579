"""What the leader does in each round: purge dead nodes, assign slots to cores, raise the cluster's version, trim the
log, write checkpoints, and raise an alarm for each node that can't reach Redis.

Each duty reads the current state and writes what should be. So the next round repairs what a failed round, or another
leader, left half done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Final

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.membership.cluster_version import FIRST, Rollout
from flockmq.membership.heartbeats import Heartbeats
from flockmq.membership.members import Members
from flockmq.membership.reachability import (
    Reachability,
    electorate,
    may_lead,
    name_of,
    nodes_to_purge,
    unreachable_by_majority,
)
from flockmq.membership.slot_assignment import SlotEligibility, reassign
from flockmq.membership.slot_table import SlotTable
from flockmq.rlog.core import Core
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.generation import reached_by_majority
from flockmq.rlog.rlog import LOST_DATA, Rlog
from flockmq.rlog.row_dict import RowDict
from flockmq.rlog.schema import ALARMS, CLUSTER, SHARDS, SLOTS, VERSIONS, Alarm, RaisedVersion

log: Final = logging.getLogger(__name__)

_CUT_OFF: Final = "redis-unreachable/"
_CUT_OFF_TEXT: Final = (
    "{} doesn't reach Redis, which other nodes reach: it isn't ready, and owns no slots; "
    "look at the network between the two"
)


class LeaderDuties:
    """`cores`: the number of configured cores, 0 for as many as the members' table has. `spoken`: linked incarnation →
    the highest cluster version that it speaks."""

    def __init__(
        self,
        rlog: Rlog,
        core: Core,
        members: Reachability,
        nodes: Members,
        slots: SlotTable,
        heartbeats: Heartbeats,
        cores: int,
        rollout: Rollout,
        spoken: Callable[[], Mapping[str, int]],
    ) -> None:
        self._rlog = rlog
        self._core = core
        self._members = members
        self._nodes = nodes
        self._slots = slots
        self._heartbeats = heartbeats
        self._configured = cores
        self._rollout = rollout
        self._spoken = spoken
        self._met_older = False
        self._lease = 0
        self._eligibility = SlotEligibility()
        self._lost_data_at = -inf
        """When this core heard that Redis had lost data, or may have. By its own clock, because the alarm has another
        node's."""
        self._generations: dict[str, int] = {}
        for shard in SHARDS:
            rlog.on_entry(shard, partial(self._entry_applied, shard))
        alarms: RowDict[str, Alarm] = RowDict(self._alarm_raised, ignore)
        rlog.on_change(ALARMS.name, alarms)
        self._trimmed_at = 0.0
        self._checkpoint_at = 0.0

    def _alarm_raised(self, name: str, _: Alarm) -> None:
        if name.startswith(LOST_DATA):
            self._lost_data_at = asyncio.get_running_loop().time()

    def _entry_applied(self, shard: str, position: StreamId) -> None:
        """In another life of Redis the log may be whole though it lost the last writes of sessions."""
        if self._generations.get(shard, position.generation) != position.generation:
            self._lost_data_at = asyncio.get_running_loop().time()
        self._generations[shard] = position.generation

    def unreachable(self, now: float) -> set[str]:
        """The incarnations that this core can't reach: its votes for purges. Besides members these are incarnations
        that are only registered in the log: an interrupted purge leaves such ones, and so does a node that died before
        it became a member."""
        replicants = self._nodes.keys() - self._nodes.cores
        unreachable = self._members.unreachable(replicants, self._other_cores(), now)
        registered = set[str]().union(*(self._rlog.tables.shards[shard].sequences for shard in SHARDS))
        return unreachable | self._members.missing(registered - self._nodes.keys() - {self._rlog.incarnation}, now)

    def is_new(self) -> bool:
        """This core began the cluster's log, and has met no node of an older release since: no rollback is possible."""
        self._met_older |= any(speaks < self._rollout.newest for speaks in self._spoken().values())
        return self._core.has_begun(CLUSTER) and not self._met_older

    def reachable_cores(self, now: float, within_s: float = bounds.MEMBER_VOTE_MAX_S) -> tuple[int, int]:
        """(how many cores this one heard lately, itself included, and how many cores there are)."""
        heard = [core for core in self._other_cores() if self._heartbeats.is_heard(core, now, within_s)]
        return 1 + len(heard), electorate(self._configured, {*self._nodes.cores, self._rlog.incarnation})

    def may_lead(self, now: float) -> bool:
        return may_lead(*self.reachable_cores(now))

    def is_unreachable_by_majority(self, incarnation: str, now: float) -> bool:
        """True if a majority of the cores can't reach it."""
        mine = self.unreachable(now) & {incarnation}
        return bool(mine and unreachable_by_majority(mine, self._votes(now), self.reachable_cores(now)[1]))

    async def run(self, now: float, fence: StreamId) -> None:
        """One round of the leader with this fence. Raises StorageError; the next round does the rest."""
        if fence.sequence != self._lease:
            self._lease = fence.sequence
            self._rollout.begin()
        purged = await self._purge(now, fence)
        self._eligibility.look(now, {node: self._hears_redis(node) for node in self._nodes if node not in purged})
        await self._assign_slots(now, purged)
        await self._raise_version(now)
        await self._update_cut_off_alarms()
        if now - self._trimmed_at > bounds.TRIM_EVERY_S:
            self._trimmed_at = now
            await self._trim(now, fence)
        if now - self._checkpoint_at > bounds.LOG_CHECKPOINT_EVERY_S:
            self._checkpoint_at = now
            for shard in SHARDS:
                await self._core.checkpoint(shard, fence)

    async def _purge(self, now: float, fence: StreamId) -> set[str]:
        mine = self.unreachable(now)
        gone = {incarnation for incarnation in mine & self._nodes.keys() if self._members.is_gone(incarnation)}
        purged = nodes_to_purge(mine, gone, self._votes(now), self.reachable_cores(now)[1])
        for incarnation in sorted(purged):
            self._log_purge(incarnation, incarnation in gone)
            await self._core.purge(incarnation, fence)
        return purged

    def _log_purge(self, incarnation: str, is_gone: bool) -> None:
        if self._members.has_left(incarnation):
            log.info("purging %s: it left", incarnation)
        elif is_gone:
            log.info("purging %s: its node was restarted", incarnation)
        else:
            log.warning("purging %s: it can't be reached", incarnation)

    async def _assign_slots(self, now: float, purged: set[str]) -> None:
        """Assign slots to cores. The leader leaves slots with a core that is briefly unreachable or briefly without
        Redis. If no core reaches Redis, slots are assigned as usual. After Redis lost data, or may have, no slot moves
        for SLOTS_WRITTEN_ANEW_S from an owner that reaches Redis, because only that owner can write its sessions
        again."""
        owners = set(self._slots.owners)
        alive = [core for core in self._other_cores() if core not in purged]
        there = [core for core in alive if core in owners or self._members.is_linked(core)]
        draining = {core for core in there if self._heartbeats.of(core).draining}
        if self._rlog.incarnation in self._nodes:
            there.append(self._rlog.incarnation)
            if self._heartbeats.is_draining:
                draining.add(self._rlog.incarnation)
        staying = [core for core in there if core not in draining] or there
        able = [core for core in staying if not self._eligibility.gets_no_slots(core)] or staying
        unable = {core for core in there if self._eligibility.loses_slots(core)}
        keeping = [core for core in staying if core not in unable]
        moves = reassign(self._slots.owners, able, keeping)
        writing = {core for core in there if core not in unable}
        leaving = {slot for slot in moves if self._slots.owners[slot] in writing}
        if leaving and await self._may_have_lost_data(now):
            moves = {slot: owner for slot, owner in moves.items() if slot not in leaving}
        if moves:
            log.info("%d slots of client ids go to %s", len(moves), ", ".join(sorted(set(moves.values()))))
            await self._rlog.write(CLUSTER, [SLOTS.put(slot, owner) for slot, owner in sorted(moves.items())])

    async def _may_have_lost_data(self, now: float) -> bool:
        """Whether Redis may lack what slot owners wrote a moment ago. This core's tables may not show yet that it is in
        another life, so ask. Raises StorageError."""
        generation = await self._core.committer.generation(CLUSTER)
        is_new = generation != self._rlog.applied(CLUSTER).generation
        return is_new or now - self._lost_data_at < bounds.SLOTS_WRITTEN_ANEW_S

    async def _raise_version(self, now: float) -> None:
        """Write the version row, when every node that may read it speaks the version."""
        spoken = self._spoken()
        cores = [name_of(core) for core in (*self._other_cores(), self._rlog.incarnation)]
        unlinked = self._nodes.keys() - spoken.keys() - {self._rlog.incarnation}
        missing = bool(unlinked) or len(set(cores)) < electorate(self._configured, cores)
        raised = self._rlog.tables.versions.get("cluster")
        logged = FIRST if raised is None else raised.version  # the row may have been lost with Redis
        is_new = self.is_new() or any(self._heartbeats.of(core).is_new for core in self._other_cores())
        version = self._rollout.version_to_raise(now, logged, spoken.values(), missing, is_new=is_new)
        if version:
            await self._rlog.write(CLUSTER, [VERSIONS.put("cluster", RaisedVersion(version))])

    async def _update_cut_off_alarms(self) -> None:
        """Keep one alarm per node that can't reach Redis. An alarm of any leader ends when that node hears Redis, or is
        no member."""
        raised = [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(_CUT_OFF)]
        cut_off = {f"{_CUT_OFF}{name_of(node)}": node for node in self._nodes if self._eligibility.gets_no_slots(node)}
        for name, node in cut_off.items():
            if name not in raised and self._eligibility.loses_slots(node):
                self._rlog.raise_alarm(name, _CUT_OFF_TEXT.format(name_of(node)))
        for name in raised:
            if name not in cut_off:
                await self._rlog.end_alarm(name)

    async def _trim(self, now: float, fence: StreamId) -> None:
        """Trim up to what a majority of the cores has on disk and no running bootstrap needs."""
        there_last = sorted(self._other_cores(), key=self._members.is_linked)
        others = {name_of(core): self._heartbeats.of(core) for core in there_last}
        cores = self.reachable_cores(now)[1]
        for shard in SHARDS:
            positions = [self._core.durable(shard), *(status.durable.get(shard, START) for status in others.values())]
            sending = [status.sending[shard] for status in others.values() if shard in status.sending]
            await self._core.trim(shard, min([reached_by_majority(positions, cores), *sending]), fence)

    def _votes(self, now: float) -> dict[str, tuple[str, ...]]:
        return {
            core: self._heartbeats.of(core).unreachable
            for core in self._other_cores()
            if self._heartbeats.is_heard(core, now)
        }

    def _hears_redis(self, node: str) -> bool | None:
        """What the node reports; None: its release doesn't report it."""
        return self._rlog.hears_redis() if node == self._rlog.incarnation else self._heartbeats.of(node).hears_redis

    def _other_cores(self) -> list[str]:
        """The other cores that are members."""
        return [core for core in self._nodes.cores if core != self._rlog.incarnation]
