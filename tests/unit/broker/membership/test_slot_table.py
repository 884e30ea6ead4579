"""Owners and place in the log go together, and who hears of moves hears in order."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.membership.slot_table import LET_GO, REGISTER, REGISTRY, SEND, TAKE, SlotMove, SlotTable
from flockmq.rlog.entry import PURGE, PUT, StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.schema import CLUSTER, ROUTES, SLOTS
from flockmq.rlog.sweeper import Sweeper
from flockmq.rlog.tables import Tables
from flockmq.tasks import VitalTaskFailed

ME, OTHER = "a@1", "b@1"


class Heard:
    """All that listeners heard: (order, epoch, moves)."""

    def __init__(self) -> None:
        self.table = SlotTable()
        self.came: list[tuple[int, int, list[SlotMove]]] = []
        for order in (REGISTER, SEND, TAKE, REGISTRY, LET_GO):
            self.table.listen(order, lambda moves, order=order: self.came.append((order, self.table.epoch, moves)))  # type: ignore[misc]


def test_an_entry_is_published_when_it_is_applied_whole() -> None:
    heard = Heard()
    table = heard.table
    for slot in (0, 1):
        table.put(slot, ME, None)
    assert (table.epoch, set(table.owners), heard.came) == (0, {""}, []), "amid an entry what was before it holds"
    table.entry_applied(StreamId(0, 2))
    moves = [SlotMove(0, "", ME), SlotMove(1, "", ME)]
    assert heard.came == [(order, 2, moves) for order in (LET_GO, REGISTRY, TAKE, SEND, REGISTER)]
    assert (table.owners[:3], table.count(), table.slots_of(ME)) == ([ME, ME, ""], {ME: 2}, [0, 1])
    table.entry_applied(StreamId(1, 0))
    assert (table.epoch, len(heard.came)) == (1 << 48, 5), "the epoch rises with entries that say nothing of slots"


def test_what_an_entry_moves_there_and_back_has_not_moved() -> None:
    heard = Heard()
    heard.table.put(0, ME, None)
    heard.table.put(0, "", ME)
    heard.table.entry_applied(StreamId(0, 1))
    assert heard.came == []


def test_a_bootstrap_is_published_by_what_is_different() -> None:
    heard = Heard()
    for slot in (0, 1, 2):
        heard.table.put(slot, ME, None)
    heard.table.entry_applied(StreamId(0, 1))
    heard.table.put(3, OTHER, None)  # of an entry that couldn't be applied
    fresh = heard.table.fresh()
    for slot, owner in ((0, ME), (1, OTHER), (5, OTHER)):
        fresh.put(slot, owner, None)
    fresh.delete(5, OTHER)
    heard.table.swap(fresh)
    heard.table.entry_applied(StreamId(0, 9))
    assert heard.came[-1] == (REGISTER, 9, [SlotMove(1, ME, OTHER), SlotMove(2, ME, "")])


async def test_a_purged_core_owns_nothing_once_its_rows_are_swept() -> None:
    heard, tables = Heard(), Tables()
    tables.slots.listeners.append(heard.table)
    shard = tables.shards[CLUSTER]
    sweeper = Sweeper(tables, lambda swept: heard.table.entry_applied(swept.applied))
    shard.apply(StreamId(0, 1), [(ME, 1, [(SLOTS.number, PUT, ME, [b"\0\7"], [ME.encode()])])])
    heard.table.entry_applied(shard.applied)
    shard.apply(StreamId(0, 2), [("", 0, [(0, PURGE, ME, [], [])])])
    heard.table.entry_applied(shard.applied)
    sweeper.sweep_if_needed()
    assert heard.came[-1] == (REGISTER, 2, [SlotMove(7, ME, "")])
    await sweeper.stop()


async def test_a_part_of_an_entry_that_cannot_be_applied_moves_no_slot() -> None:
    heard, tables = Heard(), Tables()
    tables.slots.listeners.append(heard.table)
    shard = tables.shards[CLUSTER]
    sweeper = Sweeper(tables, lambda swept: heard.table.entry_applied(swept.applied) if swept is shard else None)
    moved, unknown = (SLOTS.number, PUT, ME, [b"\0\7"], [ME.encode()]), (ROUTES.number, PUT, ME, [b"f"], [b""])
    with pytest.raises(LogCorrupt):
        shard.apply(StreamId(0, 1), [(ME, 1, [moved, (0, PURGE, OTHER, [], []), unknown])])
    sweeper.sweep_if_needed()
    assert heard.came == []
    shard.apply(StreamId(0, 1), [(ME, 1, [moved])])
    heard.table.entry_applied(shard.applied)
    assert heard.came[-1] == (REGISTER, 1, [SlotMove(7, "", ME)])
    await sweeper.stop()


async def test_a_listener_that_fails_keeps_the_move_from_no_other_and_ends_the_node() -> None:
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))

    def fail(moves: list[SlotMove]) -> None:
        raise ValueError("it can't")

    heard = Heard()
    heard.table.listen(LET_GO, fail)
    heard.table.put(0, ME, None)
    heard.table.entry_applied(StreamId(0, 1))
    assert len(heard.came) == 5
    assert [type(error) for error in failed] == [VitalTaskFailed]


def test_a_row_of_a_slot_that_this_release_does_not_have_moves_nothing() -> None:
    heard = Heard()
    heard.table.put(bounds.SLOTS, ME, None)
    heard.table.put(0, ME, None)
    heard.table.entry_applied(StreamId(0, 1))
    heard.table.delete(bounds.SLOTS, ME)
    heard.table.entry_applied(StreamId(0, 2))
    assert heard.came[0] == (LET_GO, 1, [SlotMove(0, "", ME)])
    assert len(heard.came) == 5
