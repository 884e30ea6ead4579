"""The order of lists of clients and sessions: by slot, and within a slot by a hash of the client id.

So the cursor of a page is short, however long client ids are, and no node has to keep clients in order. No I/O, except
that it yields to other tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeVar

import msgspec

from flockmq.bounds import DIRECTORY_LOOKED_AT_MAX, DIRECTORY_PAGE_MAX_BYTES, DIRECTORY_SLICE_IDS, DIRECTORY_SLICE_ROWS

T = TypeVar("T")

START: Final = b""
_SLOT_BYTES: Final = 2
_HASH_BYTES: Final = 16


Placed = tuple[bytes, bytes]
"""(the client id's place in the order, client id)"""


class PlacedRow(NamedTuple):
    """`value` is the row as JSON, or the incarnation of the node where the client is connected."""

    place: bytes
    client_id: bytes
    value: bytes


def place_of(client_id: bytes, slot: int) -> bytes:
    """The place in the order of a client id of this slot. The hash makes places unique in practice."""
    return slot.to_bytes(_SLOT_BYTES, "big") + blake2b(client_id, digest_size=_HASH_BYTES).digest()


async def in_order(
    slots: Iterable[int], ids_of: Callable[[int], Collection[bytes]], after: bytes, together: int
) -> AsyncIterator[list[Placed]]:
    """Yield the client ids of these slots that come after the place `after`, in lists of `together`."""
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
    """The first DIRECTORY_SLICE_IDS client ids after a place. It works in slices, because clients may choose very many
    ids of one slot."""
    found: list[Placed] = []
    for start in range(0, len(ids), DIRECTORY_SLICE_IDS):
        if start:
            await asyncio.sleep(0)
        placed = ((place_of(client_id, slot), client_id) for client_id in ids[start : start + DIRECTORY_SLICE_IDS])
        found += (one for one in placed if one[0] > after)
        found.sort()
        del found[DIRECTORY_SLICE_IDS:]
    return found


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One owner's part of a page."""

    rows: list[PlacedRow]
    """In order."""
    reached: bytes | None
    """The place up to which the owner searched; None means all."""
    count: int
    """How many clients or sessions the owner has, whether they match or not."""


async def part_of(
    ids: AsyncIterator[list[Placed]], rows_of: Callable[[list[Placed]], AsyncIterator[PlacedRow]], most: int, count: int
) -> Part:
    """Collect rows until the page is full, or DIRECTORY_LOOKED_AT_MAX client ids were searched."""
    rows: list[PlacedRow] = []
    looked_at = size_bytes = 0
    async for some in ids:
        looked_at += len(some)
        async for row in rows_of(some):
            rows.append(row)
            size_bytes += len(row.client_id) + len(row.value)
            if len(rows) == most or size_bytes >= DIRECTORY_PAGE_MAX_BYTES:
                return Part(rows, row.place, count)
        if looked_at >= DIRECTORY_LOOKED_AT_MAX:
            return Part(rows, some[-1][0], count)
    return Part(rows, None, count)


def merged(parts: Sequence[Part], most: int) -> tuple[list[PlacedRow], bytes | None]:
    """Merge the parts of all owners into one page. Also returns the place after which the next page begins: it isn't
    beyond the place that the slowest owner reached."""
    reached = min((part.reached for part in parts if part.reached is not None), default=None)
    in_order = merge(*(part.rows for part in parts))
    within = in_order if reached is None else takewhile(lambda row: row.place <= reached, in_order)
    rows = list(islice(within, most + 1))
    if len(rows) > most:
        return rows[:most], rows[most - 1].place
    return rows, reached


async def sliced(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let other tasks run after every DIRECTORY_SLICE_ROWS."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % DIRECTORY_SLICE_ROWS == 0:
            await asyncio.sleep(0)
