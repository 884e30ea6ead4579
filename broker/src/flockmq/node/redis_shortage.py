"""What a node does while Redis is short of memory (`redis/memory.py`): it refuses what would stay there. So the log has
room, and all goes on that keeps nothing.

    a core's look at its servers ─▶ alarm `redis-memory/ADDRESS` in the log ─▶ every node: `is_on`
    an owner's look at its sessions (`durable/memory_pressure_reports.py`) ─▶ every node: what would wait

What always holds: while such an alarm stands, no message of QoS 1 or 2 is taken that would wait in a session that
lasts, be retained, or be delayed. Its publisher hears 0x97. Clients that acknowledge, unsubscribe, clear or end
something make room.
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
_REFUSED: Final = "nothing more waits for sessions that last, is retained or delayed (0x97) until it has room"


class RedisShortage:
    """`store` and `takers`: a core's."""

    def __init__(self, cluster: Cluster, lanes: SlotSender, rlog: Rlog, store: SessionStore | None) -> None:
        self.refused = 0
        """How many retained and delayed messages were refused; `SlotSender.refused` counts the others."""
        self._cluster = cluster
        self._lanes = lanes
        self._rlog = rlog
        self._store = store
        self.takers: MemoryPressureReports | None = None
        self.is_on = False

    async def watch(self) -> None:
        """For as long as the node lives."""
        while True:
            await asyncio.sleep(STORE_WATCH_EVERY_S)
            self.look()

    def look(self) -> None:
        """Do what the log says, as all nodes do. A core writes there what it finds."""
        self.is_on = any(name.startswith(PREFIX) for name, _ in self._rlog.tables.alarms.items())
        self._lanes.redis_is_short(self.is_on)
        if self.takers is not None:
            self.takers.is_asked = self.is_on and self._cluster.version.at_least(2)
        if self._store is not None and (rooms := self._store.rooms()):
            self._tell(rooms)
            self._keep_streams_small(rooms)

    def refuses(self) -> bool:
        """Whether the log may keep no more messages."""
        self.refused += self.is_on
        return self.is_on

    def _tell(self, rooms: Mapping[str, MemoryRoom]) -> None:
        for address, room in rooms.items():
            alarm, stands = PREFIX + address, self._rlog.tables.alarms.get(PREFIX + address) is not None
            if room.is_short and not stands and not room.is_full():
                used, limit = (size // 2**20 for size in room.memory)
                text = f"Redis at {address} uses {used} of {limit} MiB: {_REFUSED}"
                log.error("%s", text)
                self._rlog.raise_alarm(alarm, text)
            elif stands and not room.is_short:
                self._rlog.clear_alarm(alarm)
        if self._cluster.is_leader:  # of servers that were replaced
            for name in [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(PREFIX)]:
                if name.removeprefix(PREFIX) not in rooms:
                    self._rlog.clear_alarm(name)

    def _keep_streams_small(self, rooms: Mapping[str, MemoryRoom]) -> None:
        limit = min((room.memory.limit for room in rooms.values() if room.memory.limit), default=0)
        self._cluster.events.limit(limit)
        if self._rlog.core is not None:
            self._rlog.core.limit(limit)
