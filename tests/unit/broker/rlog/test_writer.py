"""A writer: what a core answered is sent again where the log goes on without it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from flockmq.rlog.change import gather
from flockmq.rlog.entry import StreamId
from flockmq.rlog.shards import ROUTE, ROUTES
from flockmq.rlog.writer import Writer

ME = "a@00000001"


class Core:
    """Answers at once; `appends` has the first number of each."""

    def __init__(self) -> None:
        self.appends: asyncio.Queue[int] = asyncio.Queue()

    async def register(self, shard: str, incarnation: str) -> StreamId:
        return StreamId(1, 1)

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        self.appends.put_nowait(first)
        return StreamId(1, 1 + first)

    async def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        raise AssertionError("nobody bootstraps")
        yield b""

    async def appended(self) -> int:
        return await asyncio.wait_for(self.appends.get(), 10)


async def test_what_was_answered_and_is_not_in_the_next_generation_is_sent_again() -> None:
    writer = Writer(ROUTE, ME, core := Core())
    await writer.start()
    done = writer.submit(gather([ROUTES.put((b"t", ME), None)]))
    assert await core.appended() == 1
    writer.applied(0, StreamId(2, 1))  # Redis lost it before the own tables had it
    assert await core.appended() == 1
    writer.applied(1, StreamId(2, 2))
    assert await done == StreamId(2, 2)
    await writer.stop()


async def test_that_a_majority_is_in_a_later_generation_says_nothing_of_what_this_node_has_in_an_earlier_one() -> None:
    writer = Writer(ROUTE, ME, core := Core())
    await writer.start()
    done = writer.submit(gather([ROUTES.put((b"t", ME), None)]))
    assert await core.appended() == 1
    writer.applied(1, StreamId(1, 100))
    assert await done == StreamId(1, 100)
    writer.majority_reached(StreamId(2, 0))  # seeded on 1-99
    writer.applied(0, StreamId(2, 0))
    assert await core.appended() == 1
    await writer.stop()


async def test_what_a_majority_has_is_kept_no_more() -> None:
    writer = Writer(ROUTE, ME, core := Core())
    await writer.start()
    for number in (1, 2):
        done = writer.submit(gather([ROUTES.put((b"t", ME), None)]))
        assert await core.appended() == number
        writer.applied(number, StreamId(1, number))
        await done
    writer.majority_reached(StreamId(1, 1))
    writer.applied(1, StreamId(2, 0))
    assert await core.appended() == 2
    assert writer.rewritten == 1
    await writer.stop()


async def test_within_a_generation_what_was_answered_is_on_its_way() -> None:
    writer = Writer(ROUTE, ME, core := Core())
    await writer.start()
    writer.applied(0, StreamId(1, 1))
    done = writer.submit(gather([ROUTES.put((b"t", ME), None)]))
    assert await core.appended() == 1
    writer.applied(0, StreamId(1, 2))  # another node's
    writer.applied(1, StreamId(1, 3))
    assert await done == StreamId(1, 3)
    assert core.appends.empty()
    await writer.stop()
