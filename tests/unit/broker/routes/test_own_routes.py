"""A filter counts as routed only while nothing on its way to the log can take the route away again."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.bounds import LOG_TRANSACTION_MAX_BYTES
from flockmq.clock import SYSTEM
from flockmq.mqtt.reason import Reason
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routes.own_routes import OwnRoutes
from unit.broker.node.harness import RouteLog

ME = "node@1"


class Written:
    """Own routes over a log; `wanted` are the filters that clients subscribe to, `answers` what SUBACKs would say."""

    def __init__(self) -> None:
        self.log = RouteLog()
        self.wanted: set[bytes] = set()
        self.answers: list[int] = []
        self.routes = OwnRoutes(
            ME, self.log.submit, self.log.holders, self.wanted.__contains__, WriteReasons(SYSTEM).of
        )

    def put(self, filter: bytes) -> None:
        self.routes.put([filter], self.answers.append)


@pytest.fixture
async def written() -> Written:
    return Written()


async def test_a_filter_is_routed_when_the_table_has_it(written: Written) -> None:
    written.put(b"a")
    assert not written.routes.has(b"a")
    await written.log.answer()
    assert written.routes.has(b"a")
    assert written.answers == [Reason.SUCCESS]


async def test_a_filter_that_is_being_deleted_is_written_again(written: Written) -> None:
    written.put(b"a")
    await written.log.answer()
    written.routes.delete([b"a"])
    assert not written.routes.has(b"a"), "the row is still there, and about to go"
    written.put(b"a")
    written.routes.delete([b"a"])
    written.put(b"a")
    for _ in range(3):
        await written.log.answer()
        assert not written.routes.has(b"a")
    await written.log.answer()
    assert written.routes.has(b"a")


async def test_a_delete_that_may_still_come_keeps_the_filter_in_doubt_until_it_was_written_again(
    written: Written,
) -> None:
    written.put(b"a")
    await written.log.answer()
    written.routes.delete([b"a"])
    await written.log.answer(applied=False)
    assert not written.routes.has(b"a")
    written.put(b"a")
    await written.log.answer(applied=False)
    assert not written.routes.has(b"a")
    written.put(b"a")
    await written.log.answer()
    assert written.routes.has(b"a")
    assert written.answers == [Reason.SUCCESS, Reason.UNSPECIFIED_ERROR, Reason.SUCCESS]


async def test_what_nobody_wants_any_more_is_deleted_again(written: Written) -> None:
    for filter in (b"a", b"b"):
        written.put(filter)
        await written.log.answer()
    written.routes.delete([b"a", b"b"])
    await written.log.answer(applied=False)
    written.wanted.add(b"b")
    written.routes.delete_again()
    written.routes.delete_again()
    assert written.log.waiting() == 1
    await written.log.answer()
    assert not written.log.holders(b"a")
    assert written.log.holders(b"b")
    assert list(written.routes.in_doubt) == [b"b"]


async def test_what_a_client_leaves_is_deleted_in_pieces(written: Written) -> None:
    filters = [b"%d/" % number + b"x" * 60_000 for number in range(10)]
    written.routes.delete(filters)
    pieces = written.log.asked()
    assert [filter for ops in pieces for (_, _, _, filter, _) in ops] == filters
    assert max(len(ops) for ops in pieces) == LOG_TRANSACTION_MAX_BYTES // 60_002
    for piece in range(len(pieces)):
        await written.log.answer(applied=piece != 1)
    assert list(written.routes.in_doubt) == filters[4:8], "the piece that found no room is in doubt, and no other"
    written.routes.delete_again()
    await written.log.answer()
    assert not written.routes.in_doubt


async def test_filters_that_go_in_pieces_have_one_answer(written: Written) -> None:
    written.routes.put([b"%d/" % number + b"x" * 60_000 for number in range(10)], written.answers.append)
    for piece in range(written.log.waiting()):
        assert written.answers == []
        await written.log.answer(applied=piece != 0)
    assert written.answers == [Reason.UNSPECIFIED_ERROR]


async def test_a_delete_that_found_no_room_behind_a_write_is_tried_again_when_that_is_done(written: Written) -> None:
    """Its client left before it was there, while much waited for the log."""
    written.put(b"a")
    written.log.is_full = True
    written.routes.delete([b"a"])
    await asyncio.sleep(0)
    await written.log.answer()
    assert written.log.holders(b"a")
    written.log.is_full = False
    written.routes.delete_again()
    await written.log.answer()
    assert not written.log.holders(b"a")
    assert not written.routes.in_doubt


async def test_a_delete_before_that_one_does_not_stand_for_it(written: Written) -> None:
    written.routes.delete([b"a"])
    written.put(b"a")
    written.log.is_full = True
    written.routes.delete([b"a"])
    await asyncio.sleep(0)
    written.log.is_full = False
    await written.log.answer()
    await written.log.answer()
    assert written.log.holders(b"a")
    written.routes.delete_again()
    await written.log.answer()
    assert not written.log.holders(b"a")
