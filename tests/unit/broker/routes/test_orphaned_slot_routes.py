"""Routes of slots that nobody wants: deleted when they are surely nobody's, and no others."""

from __future__ import annotations

import pytest

from flockmq.rlog.entry import PUT
from flockmq.rlog.route_table import RouteTable
from flockmq.rlog.schema import ROUTES
from flockmq.routes.orphaned_slot_routes import OrphanedSlotRoutes
from flockmq.routes.remote_routes import slot_owner


class Here:
    """Slots 1 and 2 run here, slot 3 doesn't."""

    def __init__(self) -> None:
        self.table = RouteTable(ROUTES)
        self.wanted: dict[tuple[int, bytes], int] = {}
        self.filters: dict[int, int] = {}
        self.slots = {1, 2}
        self.deleted: list[tuple[int, bytes]] = []
        self.orphans = OrphanedSlotRoutes(lambda: self.table, self, lambda slot: slot in self.slots, self._delete)

    def route(self, owner: int | str, *filters: bytes) -> None:
        name = owner if isinstance(owner, str) else slot_owner(owner)
        self.table.apply(PUT, name, filters, [b""] * len(filters))

    def want(self, slot: int, *filters: bytes) -> None:
        for filter in filters:
            self.wanted[slot, filter] = 1
            self.filters[slot] = self.filters.get(slot, 0) + 1

    async def look(self, times: int = 2) -> list[tuple[int, bytes]]:
        for _ in range(times):
            await self.orphans.look()
        deleted, self.deleted = sorted(self.deleted), []
        return deleted

    def _delete(self, slot: int, filters: list[bytes]) -> None:
        self.deleted += [(slot, filter) for filter in filters]


@pytest.fixture
def here() -> Here:
    made = Here()
    made.route("edge@1", b"a", b"b", b"c")
    return made


async def test_routes_that_nobody_wants_are_deleted(here: Here) -> None:
    here.route(1, b"a", b"b", b"c")
    here.route(2, b"a")
    here.want(1, b"b")
    assert await here.look() == [(1, b"a"), (1, b"c"), (2, b"a")]


async def test_what_is_wanted_stays(here: Here) -> None:
    here.route(1, b"a", b"b")
    here.want(1, b"a", b"b")
    assert await here.look() == []


async def test_routes_of_slots_that_run_elsewhere_are_theirs(here: Here) -> None:
    here.route(3, b"a")
    assert await here.look() == []
    here.slots.add(3)
    assert await here.look() == [(3, b"a")]


async def test_what_is_just_being_written_is_looked_at_again(here: Here) -> None:
    here.route(1, b"a")
    assert await here.look(1) == []
    here.want(1, b"a")
    assert await here.look(3) == []
    here.route(1, b"b")
    assert await here.look(1) == []
    assert await here.look(1) == [(1, b"b")]
