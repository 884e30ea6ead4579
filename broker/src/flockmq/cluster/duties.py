"""What the leader does at each of its beats: purge who is gone, give each slot an owner, trim the log.

Each duty looks at what is and writes what should be, so a beat that failed half-way, or under another leader, is made
good by the next.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flockmq import bounds
from flockmq.cluster.frames import Status
from flockmq.cluster.membership import Membership, condemned
from flockmq.cluster.slots import reassign
from flockmq.rlog.core import Core
from flockmq.rlog.entry import START
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import CLUSTER, SHARDS, SLOTS, NodeInfo

log: Final = logging.getLogger(__name__)

CORE_ROLES: Final = frozenset({"core", "single"})


class Duties:
    """`statuses`: incarnation → what it said last, of everybody this node is linked to."""

    def __init__(
        self,
        rlog: Rlog,
        core: Core,
        members: Membership,
        nodes: Mapping[str, NodeInfo],
        slots: Mapping[int, str],
        statuses: Mapping[str, Status],
    ) -> None:
        self._rlog = rlog
        self._core = core
        self._members = members
        self._nodes = nodes
        self._slots = slots
        self._statuses = statuses
        self._trimmed_at = 0.0

    def unreachable(self, now: float) -> set[str]:
        """The members that this node can't reach: its vote."""
        return self._members.unreachable((key for key in self._nodes if key != self._rlog.incarnation), now)

    async def run(self, now: float) -> None:
        """One beat. Raises LogError; what is left is done at the next."""
        await self._purge(now)
        await self._assign_slots()
        if now - self._trimmed_at > bounds.TRIM_EVERY_S:
            self._trimmed_at = now
            await self._trim()

    async def _purge(self, now: float) -> None:
        mine = self.unreachable(now)
        gone = {incarnation for incarnation in mine if self._members.is_gone(incarnation)}
        votes = {core: self._status(core).unreachable for core in self._linked_cores()}
        for incarnation in sorted(condemned(mine, gone, votes)):
            log.warning("purging %s: it %s", incarnation, "is gone" if incarnation in gone else "can't be reached")
            await self._core.purge(incarnation)

    async def _assign_slots(self) -> None:
        cores = [core for core in self._linked_cores() if not self._status(core).draining]
        if self._rlog.incarnation in self._nodes:
            cores.append(self._rlog.incarnation)
        moves = reassign(self._slots, cores, bounds.SLOTS)
        if moves:
            log.info("%d slots of client ids go to %s", len(moves), ", ".join(sorted(set(moves.values()))))
            await self._rlog.write(CLUSTER, [SLOTS.put(slot, owner) for slot, owner in sorted(moves.items())])

    async def _trim(self) -> None:
        """Up to what a majority of the cores has on disk."""
        others = [key for key, info in self._nodes.items() if info.role in CORE_ROLES and key != self._rlog.incarnation]
        for shard in SHARDS:
            places = [self._core.durable(shard)]
            places.extend(self._status(core).durable.get(shard, START) for core in others)
            places.sort(reverse=True)
            await self._core.trim(shard, places[len(places) // 2])

    def _linked_cores(self) -> list[str]:
        """The other cores that are members and that this node has a link to."""
        return [
            incarnation
            for incarnation, info in self._nodes.items()
            if info.role in CORE_ROLES
            and incarnation != self._rlog.incarnation
            and self._members.is_linked(incarnation)
        ]

    def _status(self, incarnation: str) -> Status:
        return self._statuses.get(incarnation, Status())
