"""The order in which clients and sessions are listed: by slot, in that by client id. Whoever pages through them needs
nothing but the last client id, and no node keeps an order for them. Pure, but that it lets others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import TypeVar

import msgspec

from flockmq.bounds import (
    DIRECTORY_LOOKED_AT_MAX,
    DIRECTORY_PAGE_MAX_BYTES,
    DIRECTORY_SLICE_IDS,
    DIRECTORY_SLICE_ROWS,
)
from flockmq.session.slotted import slot_of

Row = tuple[bytes, bytes]
"""A client id, and what is told of it."""
Rows = AsyncIterator[Row]
T = TypeVar("T")


async def in_order(
    slots: Iterable[int], ids_of: Callable[[int], Collection[bytes]], after: bytes | None, together: int
) -> AsyncIterator[list[bytes]]:
    """The client ids of these slots, those that come after `after`, so many `together`."""
    first, behind = (-1, b"") if after is None else _place(after)
    some: list[bytes] = []
    for slot in sorted(slot for slot in slots if slot >= first):
        last = behind if slot == first else b""
        while found := await _smallest(list(ids_of(slot)), last, together - len(some)):
            some += found
            last = found[-1]
            if len(some) == together:
                yield some
                some = []
    if some:
        yield some


async def _smallest(ids: list[bytes], behind: bytes, most: int) -> list[bytes]:
    """Who calls itself what it likes may have many client ids of one slot."""
    found: list[bytes] = []
    for start in range(0, len(ids), DIRECTORY_SLICE_IDS):
        found += [client_id for client_id in ids[start : start + DIRECTORY_SLICE_IDS] if client_id > behind]
        found = sorted(found)[:most]
        if start + DIRECTORY_SLICE_IDS < len(ids):
            await asyncio.sleep(0)
    return found


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What one home has of a page, in order. `reached`: the client id up to which it looked; None: to the end. `count`:
    how many it has, whichever are asked for.
    """

    rows: list[Row]
    reached: bytes | None
    count: int


async def part_of(
    ids: AsyncIterator[list[bytes]], rows_of: Callable[[list[bytes]], Rows], most: int, count: int
) -> Part:
    """A page's worth of rows, or those of as many client ids as may be looked at."""
    rows: list[Row] = []
    looked_at = size_bytes = 0
    async for client_ids in ids:
        looked_at += len(client_ids)
        async for row in rows_of(client_ids):
            rows.append(row)
            size_bytes += len(row[0]) + len(row[1])
            if len(rows) == most or size_bytes >= DIRECTORY_PAGE_MAX_BYTES:
                return Part(rows, row[0], count)
        if looked_at >= DIRECTORY_LOOKED_AT_MAX:
            return Part(rows, client_ids[-1], count)
    return Part(rows, None, count)


def merged(parts: Sequence[Part], most: int) -> tuple[list[Row], bytes | None]:
    """A page of all of them, and what to go on behind: none may be ahead of one that looked less far."""
    reached = min((part.reached for part in parts if part.reached is not None), key=_place, default=None)
    in_order = merge(*(part.rows for part in parts), key=_row_place)
    within = in_order if reached is None else takewhile(lambda row: _row_place(row) <= _place(reached), in_order)
    rows = list(islice(within, most + 1))
    if len(rows) > most:
        return rows[:most], rows[most - 1][0]
    return rows, reached


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """Others have their turn in between."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % DIRECTORY_SLICE_ROWS == 0:
            await asyncio.sleep(0)


def _row_place(row: Row) -> tuple[int, bytes]:
    return _place(row[0])


def _place(client_id: bytes) -> tuple[int, bytes]:
    return slot_of(client_id), client_id
