"""What the leader does at each of its beats: purge who is gone, give each slot an owner, trim the log, check it.

Each duty looks at what is and writes what should be, so a beat that failed half-way, or under another leader, is made
good by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flockmq import bounds
from flockmq.cluster.beats import Beats
from flockmq.cluster.membership import CORE_ROLES, Membership, condemned, electorate, may_lead, name_of, outvoted
from flockmq.cluster.slots import reassign
from flockmq.rlog.core import Core
from flockmq.rlog.entry import START
from flockmq.rlog.generation import reached_by_majority
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import CLUSTER, SHARDS, SLOTS, NodeInfo

log: Final = logging.getLogger(__name__)


class Duties:
    """`cores`: how many cores are configured, 0 for as many as the members' table has."""

    def __init__(
        self,
        rlog: Rlog,
        core: Core,
        members: Membership,
        nodes: Mapping[str, NodeInfo],
        slots: Mapping[int, str],
        beats: Beats,
        cores: int,
    ) -> None:
        self._rlog = rlog
        self._core = core
        self._members = members
        self._nodes = nodes
        self._slots = slots
        self._beats = beats
        self._configured = cores
        self._trimmed_at = 0.0
        self._checkpoint_at = 0.0

    def unreachable(self, now: float) -> set[str]:
        """The members, and others that are registered in the log, that this node can't reach: its vote. A purge that
        failed half-way leaves such others, and so does a node that ended before it was a member.
        """
        replicants = (key for key, info in self._nodes.items() if info.role not in CORE_ROLES)
        unreachable = self._members.unreachable(replicants, self._other_cores(), now)
        registered = {key for shard in SHARDS for key in self._rlog.tables.shards[shard].sequences}
        return unreachable | self._members.missing(registered - self._nodes.keys() - {self._rlog.incarnation}, now)

    def voices(self, now: float, within_s: float = bounds.MEMBER_VOTE_MAX_S) -> tuple[int, int]:
        """How many cores this one heard lately, itself included, and how many there are."""
        heard = [core for core in self._other_cores() if self._beats.is_heard(core, now, within_s)]
        return 1 + len(heard), electorate(self._configured, (*self._other_cores(), self._rlog.incarnation))

    def may_lead(self, now: float) -> bool:
        return may_lead(*self.voices(now))

    def is_outvoted(self, incarnation: str, now: float) -> bool:
        """Whether a majority of the cores can't reach it."""
        mine = self.unreachable(now) & {incarnation}
        return bool(mine and outvoted(mine, self._votes(now), self.voices(now)[1]))

    async def run(self, now: float, fence: int) -> None:
        """One beat of the leader with this fence. Raises LogError; what is left is done at the next."""
        purged = await self._purge(now, fence)
        await self._assign_slots(purged)
        if now - self._trimmed_at > bounds.TRIM_EVERY_S:
            self._trimmed_at = now
            await self._trim(now, fence)
        if now - self._checkpoint_at > bounds.LOG_CHECKPOINT_EVERY_S:
            self._checkpoint_at = now
            for shard in SHARDS:
                await self._core.checkpoint(shard, fence)

    async def _purge(self, now: float, fence: int) -> set[str]:
        mine = self.unreachable(now)
        gone = {incarnation for incarnation in mine & self._nodes.keys() if self._members.is_gone(incarnation)}
        purged = condemned(mine, gone, self._votes(now), self.voices(now)[1])
        for incarnation in sorted(purged):
            log.warning("purging %s: it %s", incarnation, "is gone" if incarnation in gone else "can't be reached")
            await self._core.purge(incarnation, fence)
        return purged

    async def _assign_slots(self, purged: set[str]) -> None:
        """A core that is unreachable but isn't purged keeps what it has: its link may be back in a moment."""
        owners = set(self._slots.values())
        there = [
            core for core in self._other_cores() if core not in purged and (core in owners or self._is_linked(core))
        ]
        draining = {core for core in there if self._beats.of(core).draining}
        if self._rlog.incarnation in self._nodes:
            there.append(self._rlog.incarnation)
            if self._beats.is_draining:
                draining.add(self._rlog.incarnation)
        moves = reassign(self._slots, [core for core in there if core not in draining] or there, bounds.SLOTS)
        if moves:
            log.info("%d slots of client ids go to %s", len(moves), ", ".join(sorted(set(moves.values()))))
            await self._rlog.write(CLUSTER, [SLOTS.put(slot, owner) for slot, owner in sorted(moves.items())])

    async def _trim(self, now: float, fence: int) -> None:
        """Up to what a majority of the cores has on disk, and no bootstrap under way needs."""
        there_last = sorted(self._other_cores(), key=self._is_linked)
        others = {name_of(core): self._beats.of(core) for core in there_last}
        cores = self.voices(now)[1]
        for shard in SHARDS:
            places = [self._core.durable(shard), *(said.durable.get(shard, START) for said in others.values())]
            sending = [said.sending[shard] for said in others.values() if shard in said.sending]
            await self._core.trim(shard, min([reached_by_majority(places, cores), *sending]), fence)

    def _votes(self, now: float) -> dict[str, tuple[str, ...]]:
        return {
            core: self._beats.of(core).unreachable for core in self._other_cores() if self._beats.is_heard(core, now)
        }

    def _other_cores(self) -> list[str]:
        """The other cores that are members."""
        return [key for key, info in self._nodes.items() if info.role in CORE_ROLES and key != self._rlog.incarnation]

    def _is_linked(self, incarnation: str) -> bool:
        return self._members.is_linked(incarnation)
