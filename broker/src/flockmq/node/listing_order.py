"""The order in which clients and sessions are listed: by slot, and within a slot by a hash of the client id.

So who pages through a list needs only a place, which is short however long client ids are. No node keeps an order for
them. Pure, except that it gives way to other tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeVar

import msgspec

from flockmq.bounds import (
    DIRECTORY_LOOKED_AT_MAX,
    DIRECTORY_PAGE_MAX_BYTES,
    DIRECTORY_SLICE_IDS,
    DIRECTORY_SLICE_ROWS,
)
from flockmq.routing.slots import slot_of

T = TypeVar("T")

START: Final = b""
_SLOT_BYTES: Final = 2
_HASH_BYTES: Final = 16


Placed = tuple[bytes, bytes]
"""A place, and the client id that has it."""


class PlacedRow(NamedTuple):
    """`told`: of this client id."""

    place: bytes
    client_id: bytes
    told: bytes


def place_of(client_id: bytes) -> bytes:
    """No two client ids that anybody can find have the same place."""
    return _placed(slot_of(client_id), [client_id])[0][0]


def _placed(slot: int, client_ids: Iterable[bytes]) -> list[Placed]:
    head = slot.to_bytes(_SLOT_BYTES, "big")
    return [(head + blake2b(client_id, digest_size=_HASH_BYTES).digest(), client_id) for client_id in client_ids]


async def in_order(
    slots: Iterable[int], ids_of: Callable[[int], Collection[bytes]], after: bytes, together: int
) -> AsyncIterator[list[Placed]]:
    """The client ids of these slots, those that come after a place, so many `together`."""
    first = int.from_bytes(after[:_SLOT_BYTES], "big")
    some: list[Placed] = []
    for slot in sorted(slot for slot in slots if slot >= first):
        has_more = True
        while has_more:
            found = await _first_of(slot, list(ids_of(slot)), after)
            has_more = len(found) == DIRECTORY_SLICE_IDS
            for one in found:
                some.append(one)
                after = one[0]
                if len(some) == together:
                    yield some
                    some = []
    if some:
        yield some


async def _first_of(slot: int, ids: list[bytes], after: bytes) -> list[Placed]:
    """In slices, because clients that choose their ids may choose many of one slot."""
    found: list[Placed] = []
    for start in range(0, len(ids), DIRECTORY_SLICE_IDS):
        if start:
            await asyncio.sleep(0)
        found += (one for one in _placed(slot, ids[start : start + DIRECTORY_SLICE_IDS]) if one[0] > after)
        found.sort()
        del found[DIRECTORY_SLICE_IDS:]
    return found


class Part(msgspec.Struct, frozen=True, array_like=True):
    """What one owner has of a page, in order. `reached`: up to where it looked; None: to the end. `count`: how many it
    has, whichever are asked for.
    """

    rows: list[PlacedRow]
    reached: bytes | None
    count: int


async def part_of(
    ids: AsyncIterator[list[Placed]], rows_of: Callable[[list[Placed]], AsyncIterator[PlacedRow]], most: int, count: int
) -> Part:
    """A page's worth of rows, or those of as many client ids as may be looked at."""
    rows: list[PlacedRow] = []
    looked_at = size_bytes = 0
    async for some in ids:
        looked_at += len(some)
        async for row in rows_of(some):
            rows.append(row)
            size_bytes += len(row.client_id) + len(row.told)
            if len(rows) == most or size_bytes >= DIRECTORY_PAGE_MAX_BYTES:
                return Part(rows, row.place, count)
        if looked_at >= DIRECTORY_LOOKED_AT_MAX:
            return Part(rows, some[-1][0], count)
    return Part(rows, None, count)


def merged(parts: Sequence[Part], most: int) -> tuple[list[PlacedRow], bytes | None]:
    """The page of all owners, and the place behind which to go on: no further than the owner that looked least far."""
    reached = min((part.reached for part in parts if part.reached is not None), default=None)
    in_order = merge(*(part.rows for part in parts))
    within = in_order if reached is None else takewhile(lambda row: row.place <= reached, in_order)
    rows = list(islice(within, most + 1))
    if len(rows) > most:
        return rows[:most], rows[most - 1].place
    return rows, reached


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """Other tasks have their turn in between."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % DIRECTORY_SLICE_ROWS == 0:
            await asyncio.sleep(0)
