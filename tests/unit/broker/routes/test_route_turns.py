"""Rows of routes go to the log a few at a time, users in turn, and the changes of one row in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flockmq.bounds import ROUTE_ROWS_UNDER_WAY_MAX
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import DELETE, PUT, Op, StreamId
from flockmq.rlog.errors import LogFull, LogStopping
from flockmq.rlog.schema import ROUTES
from flockmq.routes import route_turns
from flockmq.routes.route_turns import RouteTurns
from unit.broker.node.harness import RouteLog

ME = "node@1"
MANY = 10 * ROUTE_ROWS_UNDER_WAY_MAX


class Turns:
    def __init__(self) -> None:
        self.log = RouteLog()
        self.takes_puts = True
        self.turns = RouteTurns(self._write)

    def _write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        self.log.is_full = not self.takes_puts and any(op[1] == PUT for op in ops)
        return self.log.submit(list(ops))

    def put(self, user: bytes, *filters: bytes) -> asyncio.Future[StreamId]:
        return self.turns.submit([ROUTES.put((filter, ME), None) for filter in filters], user)

    def delete(self, user: bytes, *filters: bytes) -> asyncio.Future[StreamId]:
        return self.turns.submit([ROUTES.delete((filter, ME)) for filter in filters], user)

    def put_many(self, user: bytes = b"many") -> asyncio.Future[StreamId]:
        return self.put(user, *(b"%b/%d" % (user, number) for number in range(MANY)))

    def asked(self) -> list[Op]:
        return [op for ops in self.log.asked() for op in ops]

    async def answer_all(self) -> None:
        while self.log.waiting():
            await self.log.answer()


@pytest.fixture
async def turns() -> Turns:
    return Turns()


async def test_a_users_row_waits_for_a_few_of_another_users_however_many_wait(turns: Turns) -> None:
    many = [turns.put_many(), turns.put(b"many", *(b"more/%d" % number for number in range(MANY)))]
    one = turns.put(b"one", b"x")
    assert len(turns.asked()) == ROUTE_ROWS_UNDER_WAY_MAX
    await turns.log.answer()
    assert len(turns.asked()) == ROUTE_ROWS_UNDER_WAY_MAX
    await turns.log.answer()
    await asyncio.sleep(0)
    assert one.done()
    assert not any(each.done() for each in many)
    await turns.answer_all()
    await asyncio.gather(*many)
    assert len(turns.log.rows) == 2 * MANY + 1
    assert (len(turns.turns), turns.turns.waiting_bytes) == (0, 0)


async def test_changes_of_a_row_are_written_in_their_order_whosever_turn_it_is(turns: Turns) -> None:
    """A delete that waits among many rows isn't overtaken by the put of a user whose turn comes first."""
    await asyncio.gather(turns.put(b"one", b"x"), turns.answer_all())
    many = turns.put_many()
    deleted = turns.delete(b"many", b"x")
    put = turns.put(b"one", b"x")
    await turns.log.answer()
    await turns.log.answer()
    await asyncio.sleep(0)
    assert put.done(), "in the turn of who changed it last"
    assert deleted.done()
    assert not many.done()
    await turns.answer_all()
    assert turns.log.rows[b"x"] == {ME}


async def test_of_a_row_that_waits_the_last_change_is_written(turns: Turns) -> None:
    turns.put_many()
    changes = [turns.put(b"one", b"x"), turns.delete(b"one", b"x"), turns.put(b"two", b"x"), turns.delete(b"two", b"x")]
    written: list[int] = []
    turns.log.on_apply = lambda op: written.append(op[1]) if op[3] == b"x" else None
    await turns.answer_all()
    assert written == [DELETE]
    assert all(change.done() for change in changes)


async def test_a_change_of_a_row_under_way_comes_after_it(turns: Turns) -> None:
    written: list[int] = []
    turns.log.on_apply = lambda op: written.append(op[1])
    turns.delete(b"one", b"x")
    turns.put(b"two", b"x")
    await turns.answer_all()
    assert written == [DELETE, PUT]


async def test_what_waits_too_long_fails_and_is_never_written(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_turns, "LOG_WRITE_DEADLINE_S", 0.01)
    many, shared, late = turns.put_many(), turns.put(b"one", b"x"), turns.put(b"one", b"y")
    monkeypatch.setattr(route_turns, "LOG_WRITE_DEADLINE_S", 10.0)
    again = turns.put(b"two", b"x")
    for failed in (many, shared, late):
        with pytest.raises(StorageUnavailable):
            await failed
    assert len(turns.turns) == 1, "the row that another one waits for"
    await turns.answer_all()
    await again
    assert set(turns.log.rows) == {b"many/%d" % number for number in range(ROUTE_ROWS_UNDER_WAY_MAX)} | {b"x"}


async def test_what_fails_in_part_writes_no_more(turns: Turns) -> None:
    many = turns.put_many()
    await turns.log.answer(applied=False)
    with pytest.raises(StorageUnavailable):
        await many
    assert len(turns.turns) == 0


async def test_where_the_log_has_no_room_for_a_put_it_still_deletes(turns: Turns) -> None:
    await asyncio.gather(turns.put(b"one", b"x"), turns.answer_all())
    turns.put_many()
    deleted, put = turns.delete(b"one", b"x"), turns.put(b"one", b"y")
    turns.takes_puts = False
    await turns.answer_all()
    await asyncio.sleep(0)
    await turns.answer_all()
    await deleted
    with pytest.raises(LogFull):
        await put


async def test_one_user_fills_half_of_what_may_wait(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_turns, "ROUTES_OF_USER_WAITING_MAX_BYTES", turns.turns.waiting_bytes)
    with pytest.raises(LogFull):
        await turns.put_many()
    assert (len(turns.turns), turns.asked()) == (0, [])


async def test_another_incarnation_writes_none_of_the_former_ones_rows(turns: Turns) -> None:
    many = turns.put_many()
    turns.turns.fail(LogStopping("another incarnation"))
    with pytest.raises(LogStopping):
        await many
    after = turns.put(b"one", b"x")
    await turns.answer_all()
    await after
    assert len(turns.log.rows) == ROUTE_ROWS_UNDER_WAY_MAX + 1
