"""While Redis is short of memory (`redis/memory.py`), a node refuses what would be stored there. So the log keeps room,
and everything that stores nothing continues.

    a core checks its servers ─▶ alarm `redis-memory/ADDRESS` in the log ─▶ every node: `is_on`
    an owner checks its sessions (`durable/memory_pressure_reports.py`) ─▶ every node: which messages would wait

Invariants: while such an alarm exists, the node refuses QoS 1 and 2 messages that would be queued in a durable session,
retained, or delayed. The publisher gets 0x97. Clients free memory when they acknowledge, unsubscribe, clear retained
messages, or end sessions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from flockmq.bounds import STORE_WATCH_EVERY_S
from flockmq.delivery.slot_sender import SlotSender
from flockmq.durable.memory_pressure_reports import MemoryPressureReports
from flockmq.durable.session_store import SessionStore
from flockmq.membership.cluster import Cluster
from flockmq.redis.memory import MemoryRoom
from flockmq.rlog.rlog import Rlog

log: Final = logging.getLogger(__name__)

PREFIX: Final = "redis-memory/"
_REFUSED: Final = "nothing more waits for durable sessions, is retained or delayed (0x97) until it has room"


class RedisShortage:
    """`store` and `pressure_reports` are None if this node isn't a core."""

    def __init__(self, cluster: Cluster, slot_sender: SlotSender, rlog: Rlog, store: SessionStore | None) -> None:
        self.refused = 0
        """Count of refused retained and delayed messages. `SlotSender.refused` counts the others."""
        self._cluster = cluster
        self._slot_sender = slot_sender
        self._rlog = rlog
        self._store = store
        self.pressure_reports: MemoryPressureReports | None = None
        self.is_on = False

    async def watch(self) -> None:
        """Call `look` regularly. Runs until cancelled."""
        while True:
            await asyncio.sleep(STORE_WATCH_EVERY_S)
            self.look()

    def look(self) -> None:
        """Follow the alarms in the log, as all nodes do. A core also raises and clears them."""
        self.is_on = any(name.startswith(PREFIX) for name, _ in self._rlog.tables.alarms.items())
        self._slot_sender.redis_is_short(self.is_on)
        if self.pressure_reports is not None:
            self.pressure_reports.is_asked = self.is_on and self._cluster.version.at_least(2)
        if self._store is not None and (rooms := self._store.rooms()):
            self._update_alarms(rooms)
            self._keep_streams_small(rooms)

    def refuses(self) -> bool:
        """Whether a message for the log must be refused."""
        self.refused += self.is_on
        return self.is_on

    def _update_alarms(self, rooms: Mapping[str, MemoryRoom]) -> None:
        for address, room in rooms.items():
            alarm, exists = PREFIX + address, self._rlog.tables.alarms.get(PREFIX + address) is not None
            if room.is_short and not exists and not room.is_full():
                used, limit = (size // 2**20 for size in room.memory)
                text = f"Redis at {address} uses {used} of {limit} MiB: {_REFUSED}"
                log.error("%s", text)
                self._rlog.raise_alarm(alarm, text)
            elif exists and not room.is_short:
                self._rlog.clear_alarm(alarm)
        if self._cluster.is_leader:  # clear alarms of servers that were replaced
            for name in [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(PREFIX)]:
                if name.removeprefix(PREFIX) not in rooms:
                    self._rlog.clear_alarm(name)

    def _keep_streams_small(self, rooms: Mapping[str, MemoryRoom]) -> None:
        limit = min((room.memory.limit for room in rooms.values() if room.memory.limit), default=0)
        self._cluster.events.limit(limit)
        if self._rlog.core is not None:
            self._rlog.core.limit(limit)
