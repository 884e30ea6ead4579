"""The Redis servers that have slots of this core: which slot is on which server, and how full each server is.

Invariant: writes that wait for one server don't delay other servers. Each has an equal share of the memory for waiting
writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, ValuesView
from typing import Final

from flockmq import bounds
from flockmq.durable.pending_writes import ServerQueue, SlotKeys, SlotQueue
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks
from flockmq.redis.memory import RedisMemory, memory_of

_WRITTEN_TAKES: Final = 2
"""About how many bytes Redis uses per byte that is written to a session."""


class MemoryRoom:
    """The memory of one server, and which writes may use the rest of it."""

    def __init__(self) -> None:
        self.memory = RedisMemory(0, 0)
        self.is_short = False
        """Starts at REDIS_SHORT_PART, and ends below REDIS_ROOM_PART."""
        self.written_bytes = 0
        """Since the last look."""

    def looked(self, memory: RedisMemory) -> None:
        self.memory = memory
        self.written_bytes = 0
        part = bounds.REDIS_ROOM_PART if self.is_short else bounds.REDIS_SHORT_PART
        self.is_short = memory.limit > 0 and memory.used >= memory.limit * part

    def is_full(self) -> bool:
        """True if not even the log can write."""
        return 0 < self.memory.limit <= self.memory.used

    def is_reserved(self) -> bool:
        """True if, as far as this node knows, the remaining memory is reserved for the log."""
        used, limit = self.memory
        return limit > 0 and used + self.written_bytes * _WRITTEN_TAKES >= limit * bounds.REDIS_RESERVED_PART


class StoreServer(ServerQueue):
    """The slots at one server. Hold `turn` while the fences in Redis may differ from what this core knows. Hold
    `reading` while reading many slots.
    """

    def __init__(self, link: RedisLink) -> None:
        self.has_work = asyncio.Event()
        super().__init__(self.has_work.set)
        self.link = link
        self.turn = asyncio.Lock()
        self.reading = asyncio.Lock()
        self.is_full = False
        self.room = MemoryRoom()
        self.is_unwatched = True
        """The connection was made after the last check, or a slot was found lost. So all slots are checked next."""
        self.page_bytes = bounds.STORE_READ_BYTES
        """How much a round trip may bring while slots are read."""
        self.tasks: list[asyncio.Task[None]] = []

    def has_no_slots(self) -> None:
        """Nobody looks whether it has room again before it has slots."""
        self.is_full = False
        self.room = MemoryRoom()

    def takes_nothing_new(self) -> bool:
        """True if Redis is full, or nearly full."""
        return self.is_full or self.room.is_reserved()

    def was_read(self) -> None:
        self.page_bytes = bounds.STORE_READ_BYTES

    def was_not_read(self) -> None:
        """The connection was lost, maybe because it is too slow: the next try reads less at once."""
        self.page_bytes = max(bounds.STORE_READ_MIN_BYTES, self.page_bytes // 4)

    def take_turn(self) -> list[SlotQueue]:
        """Take the slots whose first batch is sent now. Slots with more batches are queued again behind all others."""
        taken: list[SlotQueue] = []
        size = 0
        while self.queue and size < bounds.STORE_TURN_MAX_BYTES:
            state = self.queue.pop(next(iter(self.queue)))
            state.queued = False
            if state.batches:  # Otherwise the change for which it was queued went with the batch before.
                size += state.batches[0].size
                taken.append(state)
        return taken


class StoreServers:
    """`prepare` is called with each new connection, `found` with each new server."""

    def __init__(
        self, redis: RedisConfig, prepare: Callable[[RedisLink], Awaitable[None]], found: Callable[[StoreServer], None]
    ) -> None:
        self.in_use = 0
        """Number of servers that share the memory for waiting writes: new ones, and those with slots. (A restarted
        master may have a new address each time.)
        """
        self._links = RedisLinks(redis, prepare)
        self._servers: dict[RedisLink, StoreServer] = {}
        self._found = found

    def all(self) -> ValuesView[StoreServer]:
        return self._servers.values()

    def at(self, link: RedisLink) -> StoreServer:
        return self._servers[link]

    def part_bytes(self) -> int:
        """How many bytes may wait for one server."""
        return bounds.STORE_QUEUE_MAX_BYTES // max(1, self.in_use)

    def of(self, keys: SlotKeys) -> StoreServer:
        """The server of a slot, as of the last lookup."""
        link = self._links.find(keys.text)
        server = self._servers.get(link)
        if server is None:
            server = self._servers[link] = StoreServer(link)
            self.in_use += 1
            self._found(server)
        return server

    async def group(self, slots: Iterable[int]) -> dict[StoreServer, list[int]]:
        """Group the slots by server. If a connection is lost, look up the servers first: another one may have the slots
        now. Raises RedisUnreachable.
        """
        keys = [(number, SlotKeys(number)) for number in slots]
        if not all(self._links.find(of_slot.text).connected for _, of_slot in keys):
            await self._links.look_up()
        groups: dict[StoreServer, list[int]] = {}
        for number, of_slot in keys:
            groups.setdefault(self.of(of_slot), []).append(number)
        return groups

    async def look_up(self) -> None:
        """Ask Redis which server has which slot. Raises RedisUnreachable."""
        await self._links.look_up()

    async def connect(self, server: StoreServer, slot: SlotQueue) -> None:
        """Connect to the server of this slot. Raises RedisUnreachable."""
        await self._links.connect(server.link, slot.keys.text)

    async def close(self) -> None:
        await self._links.close()


def memory_in(info: object) -> RedisMemory:
    """If Redis doesn't allow INFO, we learn that it is full from its errors."""
    try:
        return memory_of(info) if isinstance(info, bytes) else RedisMemory(0, 0)
    except (KeyError, ValueError):
        return RedisMemory(0, 0)
