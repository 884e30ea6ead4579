"""The servers of Redis that have slots of this core: which slot is where, and how full each server is.

What always holds: what waits for one server holds up no other; each has a share of what may wait in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, ValuesView

from flockmq import bounds
from flockmq.durable.write_batch import ServerQueue, SlotKeys, SlotQueue
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks
from flockmq.redis.memory import MemoryRoom


class StoreServer(ServerQueue):
    """The slots at one server, and what is done there. `turn` is held while what Redis has as the fence of one of them
    may be another than we think; `reading` while many slots are read.
    """

    def __init__(self, link: RedisLink) -> None:
        super().__init__()
        self.link = link
        self.turn = asyncio.Lock()
        self.reading = asyncio.Lock()
        self.has_work = asyncio.Event()
        self.is_full = False
        self.room = MemoryRoom()
        self.is_unwatched = True
        """Its connection was made since the last look."""
        self.tasks: list[asyncio.Task[None]] = []

    def arrived(self) -> None:
        self.has_work.set()

    def takes_nothing_new(self) -> bool:
        """Redis is full there, or nearly."""
        return self.is_full or self.room.is_reserved()

    def take_turn(self) -> list[SlotQueue]:
        """Slots whose first batch goes now; those that have more come behind all others."""
        taken: list[SlotQueue] = []
        size = 0
        while self.queue and size < bounds.STORE_TURN_MAX_BYTES:
            state = self.queue.pop(next(iter(self.queue)))
            state.queued = False
            if state.batches:  # else what it was queued for went with the batch before
                size += state.batches[0].size
                taken.append(state)
        return taken


class StoreServers:
    """`prepare` is called with each new connection; `found` with each server that is new."""

    def __init__(
        self,
        redis: RedisConfig,
        prepare: Callable[[RedisLink], Awaitable[None]],
        found: Callable[[StoreServer], None],
    ) -> None:
        self.in_use = 0
        """Servers that share what may wait: new ones, and those that have slots. A master that is started anew may have
        another address each time."""
        self._links = RedisLinks(redis, prepare)
        self._servers: dict[RedisLink, StoreServer] = {}
        self._found = found

    def all(self) -> ValuesView[StoreServer]:
        return self._servers.values()

    def at(self, link: RedisLink) -> StoreServer:
        return self._servers[link]

    def part_bytes(self) -> int:
        """What may wait for one server."""
        return bounds.STORE_QUEUE_MAX_BYTES // max(1, self.in_use)

    def of(self, keys: SlotKeys) -> StoreServer:
        """The server of a slot, as it was last looked up."""
        link = self._links.find(keys.text)
        server = self._servers.get(link)
        if server is None:
            server = self._servers[link] = StoreServer(link)
            self.in_use += 1
            self._found(server)
        return server

    async def group(self, slots: Iterable[int]) -> dict[StoreServer, list[int]]:
        """The slots by server. A connection that is lost is asked about: another server may have what it had. Raises
        RedisUnreachable.
        """
        keys = [(number, SlotKeys(number)) for number in slots]
        if not all(self._links.find(of_slot.text).connected for _, of_slot in keys):
            await self._links.look_up()
        groups: dict[StoreServer, list[int]] = {}
        for number, of_slot in keys:
            groups.setdefault(self.of(of_slot), []).append(number)
        return groups

    async def look_up(self) -> None:
        """Ask which server has which slot. Raises RedisUnreachable."""
        await self._links.look_up()

    async def connect(self, server: StoreServer, slot: SlotQueue) -> None:
        """To the server, of a slot that it has. Raises RedisUnreachable."""
        await self._links.connect(server.link, slot.keys.text)

    async def close(self) -> None:
        await self._links.close()
