"""While Redis (`redis/memory.py`) or a node (`memory_limit.py`) is short of memory, all nodes refuse what would be
stored there. So the log keeps room, no node is killed, and everything that stores nothing continues.

    a core checks its servers ─▶ alarm `redis-memory/ADDRESS` ─┐
    each node checks itself ─▶ alarm `node-memory/NAME` ───────┴─▶ in the log ─▶ every node: `is_on`
    an owner checks its sessions (`durable/memory_pressure_reports.py`) ─▶ every node: which messages would wait
    each node checks itself again ─▶ alarm `node-memory-full/NAME` in the log ─▶ every node: `takes_filters`

Invariants: while an alarm of the first two kinds exists, a node refuses QoS 1 and 2 messages that would be queued in a
durable session there, retained, or delayed. The publisher gets 0x97. Clients free memory when they acknowledge,
unsubscribe, clear retained messages, or end sessions. While one of the third kind exists, a node refuses new
subscriptions, also of clean sessions, because every node has all of them in memory. A node doesn't wait for its own
alarms: it refuses at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from flockmq.bounds import NODE_GIVES_BACK_S, NODE_MEMORY_LOOK_S, STORE_WATCH_EVERY_S
from flockmq.default_callbacks import ignore
from flockmq.delivery.slot_sender import SlotSender
from flockmq.durable.memory_pressure_reports import MemoryPressureReports
from flockmq.durable.session_store import SessionStore
from flockmq.durable.store_servers import MemoryRoom
from flockmq.membership.cluster import Cluster
from flockmq.memory_limit import MemoryMarks, NodeMemory, give_back
from flockmq.node.alarms import end_alarms_of_former_members
from flockmq.rlog.rlog import Rlog

log: Final = logging.getLogger(__name__)

REDIS: Final = "redis-memory/"
NODE: Final = "node-memory/"
NODE_FULL: Final = "node-memory-full/"
_REFUSED: Final = "nothing more waits for durable sessions, is retained or delayed (0x97) until it has room"
_FULL_REFUSED: Final = "new subscriptions are refused (0x97) until it has room"
_MIB: Final = 2**20


class MemoryShortage:
    """`store` and `pressure_reports` are None if this node isn't a core. `relieve`: as `Reactor.relieve`."""

    def __init__(
        self,
        cluster: Cluster,
        slot_sender: SlotSender,
        rlog: Rlog,
        store: SessionStore | None,
        memory: NodeMemory,
        relieve: Callable[[int], bool],
    ) -> None:
        self.refused = 0
        """Count of refused retained and delayed messages. `SlotSender.refused` counts the others."""
        self.marks = MemoryMarks(memory.limit_bytes)
        self._cluster = cluster
        self._slot_sender = slot_sender
        self._rlog = rlog
        self._store = store
        self._memory = memory
        self._relieve = relieve
        self._rooms: list[MemoryRoom] = []
        """Of the Redis servers that this core checks."""
        self._gives_back_in_s = 0.0
        self.pressure_reports: MemoryPressureReports | None = None
        self.on_full: Callable[[], None] = ignore
        """Called at each look while this node is full: forget what can be found out again."""
        self.is_on = False
        self.is_redis_short = False
        self.takes_filters = True

    async def watch(self) -> None:
        """Call `look` regularly. Runs until cancelled."""
        looks = round(STORE_WATCH_EVERY_S / NODE_MEMORY_LOOK_S) if self.marks.limit_bytes else 1
        while True:
            for _ in range(looks):
                await asyncio.sleep(STORE_WATCH_EVERY_S / looks)
                self.look_at_node()
            self.look()

    def look_at_node(self) -> None:
        """Check this node's memory. If it has become short, refuse at once; if it is full, also disconnect clients that
        don't read."""
        marks, was = self.marks, (self.marks.is_short, self.marks.is_full)
        marks.looked(self._memory.resident_bytes())
        if marks.is_full:
            self.on_full()
            if self._relieve(marks.excess_bytes()):
                give_back()
        if (marks.is_short, marks.is_full) != was:
            self._refuse_or_not()

    def look(self) -> None:
        """Follow the alarms in the log, as all nodes do, and raise and clear this node's. A core also checks Redis."""
        self._refuse_or_not()
        self._give_back()
        self._update_own_alarms()
        if self._store is not None and (rooms := self._store.rooms()):
            self._rooms = list(rooms.values())
            self._update_alarms(rooms)
            self._keep_streams_small(rooms)

    def _refuse_or_not(self) -> None:
        marks, names = self.marks, [name for name, _ in self._rlog.tables.alarms.items()]
        self.is_redis_short = any(name.startswith(REDIS) for name in names)
        self.is_on = self.is_redis_short or marks.is_short or any(name.startswith(NODE) for name in names)
        self.takes_filters = not (marks.is_full or any(name.startswith(NODE_FULL) for name in names))
        self._slot_sender.redis_is_short(self.is_on)
        if self.pressure_reports is not None:
            self.pressure_reports.is_asked = self.is_on and self._cluster.version.at_least(2)
        if self._store is not None:
            self._store.core_is_short = marks.is_short or not self.takes_filters

    def _give_back(self) -> None:
        self._gives_back_in_s -= STORE_WATCH_EVERY_S
        if self.marks.is_short and self._gives_back_in_s <= 0:
            self._gives_back_in_s = NODE_GIVES_BACK_S
            give_back()

    def refuses(self, size_bytes: int) -> bool:
        """Whether a message for the log must be refused. If not, it counts until Redis is checked again, so that a
        burst doesn't fill it meanwhile."""
        refuses = self.is_on or any(room.is_reserved() for room in self._rooms)
        if not refuses:
            for room in self._rooms:
                room.written_bytes += size_bytes
        self.refused += refuses
        return refuses

    def _update_own_alarms(self) -> None:
        name, marks = self._cluster.settings.name, self.marks
        text = f"{name} uses {marks.used_bytes // _MIB} of {marks.limit_bytes // _MIB} MiB: "
        self._update_alarm(NODE + name, text + _REFUSED, is_on=marks.is_short)
        self._update_alarm(NODE_FULL + name, text + _FULL_REFUSED, is_on=marks.is_full)
        if self._cluster.is_leader:
            for prefix in (NODE, NODE_FULL):
                end_alarms_of_former_members(prefix, self._cluster, self._rlog)

    def _update_alarms(self, rooms: Mapping[str, MemoryRoom]) -> None:
        for address, room in rooms.items():
            used, limit = (size // _MIB for size in room.memory)
            text = f"Redis at {address} uses {used} of {limit} MiB: {_REFUSED}"
            if not (room.is_short and room.is_full()):
                self._update_alarm(REDIS + address, text, is_on=room.is_short)
        if self._cluster.is_leader:  # clear alarms of servers that were replaced
            for name in [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(REDIS)]:
                if name.removeprefix(REDIS) not in rooms:
                    self._rlog.clear_alarm(name)

    def _update_alarm(self, name: str, text: str, *, is_on: bool) -> None:
        exists = self._rlog.tables.alarms.get(name) is not None
        if is_on and not exists:
            log.error("%s", text)
            self._rlog.raise_alarm(name, text)
        elif exists and not is_on:
            self._rlog.clear_alarm(name)

    def _keep_streams_small(self, rooms: Mapping[str, MemoryRoom]) -> None:
        limit = min((room.memory.limit for room in rooms.values() if room.memory.limit), default=0)
        self._cluster.events.limit(limit)
        if self._rlog.core is not None:
            self._rlog.core.limit(limit)
