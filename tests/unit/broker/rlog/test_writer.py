"""A writer: what a core answered is sent again where the log goes on without it; what was given up has no effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import pytest

from flockmq import bounds
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.change import gather
from flockmq.rlog.entry import Op, StreamId, encode_transaction
from flockmq.rlog.errors import LogRefused, LogUntried
from flockmq.rlog.rlog import _update_writer as update_writer
from flockmq.rlog.schema import MESSAGES, RETAINED, ROUTE, ROUTES, RetainedMessage
from flockmq.rlog.tables import Shard, Tables
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


class FailingCore(Core):
    """Its appends fail with what `errors` has for them, in turn; those behind are answered."""

    def __init__(self, *errors: StorageError) -> None:
        super().__init__()
        self.errors = [*errors]
        self.sent: list[tuple[int, bytes]] = []

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        self.sent += [(first + place, data) for place, data in enumerate(transactions)]
        if self.errors:
            await asyncio.sleep(0)
            raise self.errors.pop(0)
        return await super().append(shard, incarnation, first, transactions)


def retained(payload: bytes) -> list[Op]:
    return [MESSAGES.put(b"t", RetainedMessage(payload, 1, b"", 4))]


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes are given up as soon as they may be."""
    monkeypatch.setattr(bounds, "LOG_WRITE_DEADLINE_S", 0.0)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("_at_once")
async def test_what_redis_surely_was_not_given_is_withdrawn_when_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = FailingCore(LogUntried("Redis is away"))
    writer = Writer(RETAINED, ME, core)
    await writer.start()
    with pytest.raises(StorageUnavailable):
        await writer.submit(gather(retained(b"refused")))
    monkeypatch.setattr(bounds, "LOG_WRITE_DEADLINE_S", 10.0)
    later = writer.submit(gather(retained(b"later")))
    assert await core.appended() == 1
    assert dict(core.sent)[1] == encode_transaction(ME, 1, ())
    writer.applied(2, StreamId(1, 2))
    assert await later == StreamId(1, 2)
    assert (writer.pending_bytes, writer.pending.get(MESSAGES.number)) == (0, (0, 0))
    await writer.stop()


@pytest.mark.usefixtures("_at_once")
async def test_what_redis_may_have_been_given_is_not_refused_before_that_is_known() -> None:
    core = FailingCore(StorageUnavailable("no answer"), LogUntried("Redis is away"), LogUntried("Redis is away"))
    writer = Writer(RETAINED, ME, core)
    await writer.start()
    done = writer.submit(gather(retained(b"in doubt")))
    assert await core.appended() == 1
    assert {data for _, data in core.sent} == {core.sent[0][1]}, "it is sent again as it was"
    await turns()
    assert not done.done()
    writer.applied(1, StreamId(1, 1))
    assert await done == StreamId(1, 1)
    await writer.stop()


async def purged_in_doubt() -> tuple[Writer, asyncio.Future[StreamId]]:
    """A writer whose incarnation was purged, and what Redis may have of it."""
    writer = Writer(RETAINED, ME, FailingCore(StorageUnavailable("no answer"), LogRefused("purged")))
    await writer.start()
    writer.applied(0, StreamId(1, 1))
    in_doubt = writer.submit(gather(retained(b"in doubt")))
    await turns()
    with pytest.raises(LogRefused):
        await writer.submit(gather(retained(b"never tried")))
    assert writer.is_undecided
    return writer, in_doubt


@pytest.mark.parametrize("is_there", [True, False])
async def test_what_redis_may_have_of_an_incarnation_that_was_purged_is_decided_by_the_log(is_there: bool) -> None:
    writer, in_doubt = await purged_in_doubt()
    await writer.retire()
    writer.applied(0, StreamId(1, 2))  # another node's
    assert not in_doubt.done()
    writer.applied(int(is_there), StreamId(1, 3), is_final=True)
    if is_there:
        assert await in_doubt == StreamId(1, 3)
    else:
        with pytest.raises(LogRefused):
            await in_doubt
    assert (writer.is_undecided, writer.pending_bytes, writer.pending.get(MESSAGES.number)) == (False, 0, (0, 0))


async def test_a_new_generation_that_has_the_incarnation_decides_nothing_yet() -> None:
    """Redis lost the purge, and a core still sends what it was given before."""
    writer, in_doubt = await purged_in_doubt()
    await writer.retire()
    writer.applied(0, StreamId(2, 0))
    assert not in_doubt.done()
    writer.applied(1, StreamId(2, 1))
    assert await in_doubt == StreamId(2, 1)
    assert not writer.is_undecided


async def test_a_new_generation_without_the_incarnation_decides_that_nothing_came() -> None:
    writer, in_doubt = await purged_in_doubt()
    update_writer(writer, tables_at(StreamId(2, 0)))
    with pytest.raises(LogRefused):
        await in_doubt
    assert not writer.is_undecided


async def test_tables_that_do_not_have_the_registration_yet_decide_nothing() -> None:
    writer, in_doubt = await purged_in_doubt()
    update_writer(writer, tables_at(StreamId(1, 0)))
    assert not in_doubt.done()
    update_writer(writer, tables_at(StreamId(1, 1), {ME: 0}))
    assert not in_doubt.done()
    update_writer(writer, tables_at(StreamId(1, 2), {ME: 1}))
    assert await in_doubt == StreamId(1, 2)


def tables_at(position: StreamId, sequences: Mapping[str, int] | None = None) -> Shard:
    state = Tables().shards[RETAINED]
    state.applied = position
    state.sequences = dict(sequences or {})
    return state


async def test_who_stops_waits_for_nothing() -> None:
    writer, in_doubt = await purged_in_doubt()
    await writer.stop()
    with pytest.raises(LogRefused):
        await in_doubt


@pytest.mark.usefixtures("_at_once")
async def test_what_is_given_up_amid_an_append_is_withdrawn_when_that_failed_for_sure() -> None:
    class Held(Core):
        def __init__(self) -> None:
            super().__init__()
            self.fails = asyncio.Event()

        async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
            await self.fails.wait()
            raise LogUntried("Redis is away")

    core = Held()
    writer = Writer(RETAINED, ME, core)
    await writer.start()
    done = writer.submit(gather(retained(b"refused")))
    await turns()
    assert not done.done()
    core.fails.set()
    with pytest.raises(StorageUnavailable):
        await done
    assert writer.pending_bytes == len(encode_transaction(ME, 1, ()))
    await writer.stop()
