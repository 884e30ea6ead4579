"""What tests do with nodes of the log: write routes, cut the link to a core, wait until the tables agree."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.core import Core
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import MESSAGES, ROUTES, RetainedMessage


def core_of(node: Rlog) -> Core:
    assert node.core is not None
    return node.core


async def stop_tails(node: Rlog) -> None:
    """It reads the logs no more."""
    for tail in node._replica._tails:
        tail.cancel()
    await asyncio.wait(node._replica._tails)


def start_tails(node: Rlog) -> None:
    """It reads the logs again."""
    node._replica._start_tails()


def route(node: Rlog, number: int) -> tuple[int, int, str, bytes, bytes]:
    return ROUTES.put((b"f/%d" % number, node.incarnation), None)


def retained(topic: bytes, payload: bytes = b"payload") -> tuple[int, int, str, bytes, bytes]:
    return MESSAGES.put(topic, RetainedMessage(payload, 1, b"", 5))


async def agree(shard: str, *nodes: Rlog) -> None:
    await asyncio.gather(*(node.catch_up(shard) for node in nodes))
    assert len({node.applied(shard) for node in nodes}) == 1
    assert len({str(node.tables.shards[shard].digests()) for node in nodes}) == 1


async def reaches(node: Rlog, shard: str, position: StreamId) -> None:
    """Return when its tables are there."""
    moved = asyncio.Event()
    node.on_entry(shard, lambda _: moved.set())
    while node.applied(shard) < position:
        await moved.wait()
        moved.clear()


class CountedPort:
    """A core behind a link that can be cut."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.bootstraps = 0
        self.lose_answers = 0
        self.reachable = True

    async def register(self, shard: str, incarnation: str) -> StreamId:
        return await self._reached().register(shard, incarnation)

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        answer = await self._reached().append(shard, incarnation, first, transactions)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StorageUnavailable("the link was lost before the answer came")
        return answer

    async def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        self.bootstraps += 1
        async for frame in self._reached().bootstrap(shard):
            yield frame

    def _reached(self) -> Core:
        if not self.reachable:
            raise StorageUnavailable("no core can be reached")
        return self.core


async def trimmed_below(core: Rlog, shard: str) -> None:
    """What trim does when a retention window of entries is behind a snapshot."""
    for number in range(100):
        await core.write(shard, [route(core, number)])
    await core_of(core).snapshot(shard)
    kept_from = await core_of(core).trim(shard, core.applied(shard), StreamId(1, 1))
    assert kept_from is not None
