"""Writes about filters of all kinds, and their one answer."""

from __future__ import annotations

import asyncio
import logging
import tracemalloc
from collections.abc import Callable, Collection, Sequence

import pytest

from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import DELETE, PUT, Op, StreamId
from flockmq.rlog.errors import LogFull, LogStopping
from flockmq.rlog.schema import CLAIMS, ROUTES, SHARES
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.filter_registration import FilterRegistration, claim_all
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.telemetry.counters import Counters
from unit.broker.routes.redis import secured

ME = "node@1"
SHARED = b"$share/g/s"
EXCLUSIVE = b"$exclusive/x"


class Log:
    def __init__(self) -> None:
        self.writes: list[tuple[Sequence[Op], asyncio.Future[StreamId]]] = []
        self.turns: list[bytes] = []
        self.held: dict[bytes, set[str]] = {}

    def submit(self, ops: Sequence[Op], user: bytes = b"") -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        self.writes.append((ops, done))
        self.turns.append(user)
        return done

    def holders(self, filter: bytes) -> Collection[str]:
        return self.held.get(filter, set())


class Written:
    def __init__(self) -> None:
        self.log = Log()
        self.router = Router(SinkHost(Counters()), 1 << 20)
        self.reason_of = WriteReasons(SYSTEM).of
        self.filters = FilterRegistration(
            ME,
            self.log.submit,
            secured,
            self.log.holders,
            self.router,
            lambda client_id, filter: filter in self.using,
            lambda client_id: False,
            self.reason_of,
            CountTurns(),
        )
        self.answers: list[int] = []
        self.using: set[bytes] = set()

    def claims(self) -> list[int]:
        """What was done to claims, in order."""
        return [op[1] for ops, _ in self.log.writes for op in ops if op[0] == CLAIMS.number]

    async def answer(self, number: int, error: Exception | None = None) -> None:
        ops, done = self.log.writes[number]
        if error is None:
            for table, kind, owner, filter, value in ops:
                if (table, kind) == (CLAIMS.number, PUT):
                    self.filters.exclusive.claims.put((filter, owner), value, None)
            done.set_result(StreamId(1, 1))
        else:
            done.set_exception(error)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.fixture
async def written() -> Written:
    return Written()


async def test_filters_of_two_tables_have_one_answer_the_worse(written: Written) -> None:
    written.filters.route([b"a", SHARED], written.answers.append)
    assert len(written.log.writes) == 2
    await written.answer(0)
    assert written.answers == []
    await written.answer(1, StorageUnavailable("away"))
    assert written.answers == [Reason.UNSPECIFIED_ERROR]


async def test_no_filter_has_an_answer_too(written: Written) -> None:
    written.filters.route([], written.answers.append)
    assert written.answers == [Reason.SUCCESS]
    assert written.log.writes == []


async def test_a_filter_is_routed_when_the_table_has_it(written: Written) -> None:
    written.filters.route([b"a"], written.answers.append)
    assert not written.filters.is_routed(b"a")
    written.log.held[b"a"] = {ME}
    await written.answer(0)
    assert written.filters.is_routed(b"a")
    assert written.answers == [Reason.SUCCESS]


async def test_claims_are_answered_together_with_those_that_are_refused(written: Written) -> None:
    refused: list[dict[bytes, int]] = []
    written.filters.claim(b"c", [EXCLUSIVE, b"$exclusive/y"], refused.append)
    await written.answer(0, LogFull("full"))
    assert refused == []
    await written.answer(1, StorageUnavailable("away"))
    assert refused == [{EXCLUSIVE: Reason.QUOTA_EXCEEDED, b"$exclusive/y": Reason.UNSPECIFIED_ERROR}]


async def test_claims_are_written_in_the_turn_of_their_user(written: Written) -> None:
    written.filters.claim(b"c", [EXCLUSIVE, b"$exclusive/y"], lambda refused: None, b"many")
    written.filters.route([b"a", SHARED], written.answers.append, b"other")
    assert written.log.turns == [b"many", b"many", b"other", b"other"]


async def test_what_a_client_asks_for_again_is_not_given_back_by_its_former_connection(written: Written) -> None:
    """Both SUBSCRIBEs wait for the same claims, and the first one's connection has ended."""
    filters, refused = [EXCLUSIVE, b"$exclusive/y"], []

    def placed(which: dict[bytes, int]) -> None:
        refused.append(which)
        written.using.update((b"x", b"y"))

    written.filters.claim(b"c", filters, lambda _: written.filters.unrouted(filters))
    written.filters.claim(b"c", filters, placed)
    await written.answer(0)
    await written.answer(1)
    assert refused == [{}]
    assert written.claims() == [PUT, PUT]
    written.using.clear()
    written.filters.unrouted(filters)
    assert written.claims() == [PUT, PUT, DELETE, DELETE]


async def test_claims_of_many_filters_take_a_kilobyte_each_at_most(written: Written) -> None:
    claimed: list[Callable[[int], None]] = []
    refused: list[dict[bytes, int]] = []
    filters = [b"%d" % number for number in range(2_000)]
    tracemalloc.start()
    claim_all(written.filters.exclusive.pending, b"c", filters, lambda *asked: claimed.append(asked[2]), refused.append)
    taken_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for done in claimed:
        assert refused == []
        done(Reason.QUOTA_EXCEEDED)
    assert refused == [dict.fromkeys(filters, Reason.QUOTA_EXCEEDED)]
    assert taken_bytes < 1024 * len(filters)


async def test_what_nobody_subscribes_to_any_more_is_deleted(written: Written) -> None:
    written.filters.route([b"a"], written.answers.append)
    written.log.held[b"a"] = {ME}
    await written.answer(0)
    written.log.writes.clear()
    written.filters.unrouted([b"a", SHARED])
    ((ops, _),) = written.log.writes
    assert [op[1] for op in ops] == [DELETE]


async def test_a_write_that_was_given_up_is_an_error(written: Written) -> None:
    done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
    done.cancel()
    assert written.reason_of(done) == Reason.UNSPECIFIED_ERROR


async def test_each_kind_of_filter_has_its_table(written: Written) -> None:
    written.filters.route([b"a", SHARED], written.answers.append)
    written.filters.claim(b"c", [EXCLUSIVE], lambda refused: None)
    names = [table for ops, _ in written.log.writes for table, *_ in ops]
    assert names == [SHARES.number, ROUTES.number, CLAIMS.number]


async def test_that_a_node_stops_is_no_fault_and_any_other_failure_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    reasons = WriteReasons(SYSTEM)
    for error in (LogStopping("this node is stopping"), StorageUnavailable("Redis is away")):
        written = asyncio.get_running_loop().create_future()
        written.set_exception(error)
        assert reasons.of(written) == Reason.UNSPECIFIED_ERROR
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
