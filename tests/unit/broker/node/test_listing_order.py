"""The order in which clients and sessions are listed, and pages of several cores' parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq import bounds
from flockmq.node import listing_order
from flockmq.node.listing_order import START, Part, Placed, PlacedRow, in_order, merged, part_of
from flockmq.routing.slots import slot_of


def place_of(client_id: bytes) -> bytes:
    return listing_order.place_of(client_id, slot_of(client_id))


def by_slot(names: list[str]) -> dict[int, list[bytes]]:
    slots: dict[int, list[bytes]] = {}
    for name in names:
        slots.setdefault(slot_of(name.encode()), []).append(name.encode())
    return slots


async def read(names: list[str], after: bytes = START, together: int = 3) -> list[list[bytes]]:
    slots = by_slot(names)
    return [[client_id for _, client_id in some] async for some in in_order(slots, slots.__getitem__, after, together)]


def ordered() -> list[bytes]:
    return sorted((name.encode() for name in NAMES), key=place_of)


NAMES = [f"client-{number}" for number in range(40)]


async def test_all_come_once_in_their_order() -> None:
    together = await read(NAMES)
    assert all(len(some) == 3 for some in together[:-1])
    assert [one for some in together for one in some] == ordered()


async def test_who_goes_on_gets_what_comes_behind() -> None:
    for place, name in enumerate(ordered()):
        rest = [one for some in await read(NAMES, place_of(name)) for one in some]
        assert rest == ordered()[place + 1 :]
    assert sum(map(len, await read(NAMES, place_of(b"gone")))) == sum(
        name > place_of(b"gone") for name in map(place_of, ordered())
    )


async def test_many_client_ids_of_one_slot_are_put_in_order_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_order, "DIRECTORY_SLICE_IDS", 4)
    ids = list(islice((one for one in map(b"%d".__mod__, count()) if slot_of(one) == 0), 20))
    assert [some async for some in in_order([0], lambda slot: ids, START, 8)] == [
        sorted((place_of(one), one) for one in ids)[first : first + 8] for first in (0, 8, 16)
    ]


def row(client_id: bytes) -> PlacedRow:
    return PlacedRow(place_of(client_id), client_id, b"")


def pages(cores: list[list[bytes]], most: int) -> Iterator[list[bytes]]:
    """As cores that have these would answer."""
    after: bytes | None = None
    while True:
        parts = []
        for names in cores:
            ordered = sorted(names, key=place_of)
            rest = [name for name in ordered if after is None or place_of(name) > after]
            some = [row(name) for name in rest[:most]]
            parts.append(Part(some, some[-1][0] if len(some) == most else None, 0))
        rows, after = merged(parts, most)
        yield [one.client_id for one in rows]
        if after is None:
            return


NAMED = st.binary(min_size=1, max_size=3)


@given(st.lists(st.tuples(NAMED, st.integers(0, 2)), unique_by=lambda one: one[0]), st.integers(1, 5))
def test_pages_have_all_of_all_cores_once_and_in_order(whose: list[tuple[bytes, int]], most: int) -> None:
    cores = [[name for name, of in whose if of == core] for core in range(3)]
    shown = list(pages(cores, most))
    assert all(len(page) == most for page in shown[:-1])
    assert [name for page in shown for name in page] == sorted((name for name, _ in whose), key=place_of)


def test_no_core_is_ahead_of_one_that_looked_less_far() -> None:
    first, second, third = sorted([b"a", b"b", b"c"], key=place_of)
    parts = [Part([row(first), row(third)], None, 2), Part([], place_of(second), 1)]
    assert merged(parts, 10) == ([row(first)], place_of(second))


async def ids_of(names: list[bytes], together: int) -> AsyncIterator[list[Placed]]:
    """Whose places are their names."""
    for first in range(0, len(names), together):
        yield [(name, name) for name in names[first : first + together]]


async def every_tenth(some: list[Placed]) -> AsyncIterator[PlacedRow]:
    for place, client_id in some:
        if client_id.endswith(b"0"):
            yield PlacedRow(place, client_id, b"shown")


async def test_what_is_looked_at_for_a_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:03}".encode() for number in range(100)]
    some = await part_of(ids_of(names, 7), every_tenth, 3, 100)
    assert (some.reached, len(some.rows)) == (b"020", 3)
    assert (await part_of(ids_of(names, 7), every_tenth, 50, 100)).reached is None
    monkeypatch.setattr(listing_order, "DIRECTORY_LOOKED_AT_MAX", 30)
    some = await part_of(ids_of(names, 7), every_tenth, 50, 100)
    assert (some.reached, len(some.rows)) == (b"034", 4)
    monkeypatch.setattr(listing_order, "DIRECTORY_PAGE_MAX_BYTES", 9)
    some = await part_of(ids_of(names, 7), every_tenth, 50, 100)
    assert (some.reached, len(some.rows)) == (b"010", 2)


async def test_a_page_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_order, "DIRECTORY_SLICE_IDS", 10)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count_turns())
    ids = [str(number).encode() for number in range(100)]
    assert [some async for some in in_order([0], lambda slot: ids, START, 5)]
    counting.cancel()
    assert turns >= 9
    assert bounds.DIRECTORY_SLICE_IDS >= 1000
