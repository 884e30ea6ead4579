"""Routes and member counts of shared subscriptions for the slots that run here. Only on cores.

Invariants: a slot's route is in the log while a session of the slot wants it. It is deleted when it is durable that no
session wants it any more. It is written again if a former owner of the slot deletes it late, or if a write failed. The
same holds for a slot's member counts of shared subscriptions.

A former owner that crashed may have left routes that no session wants (`OrphanedSlotRoutes`). A route is deleted only
while its slot runs here, all its sessions are loaded, and none of them wants the route. A slot is suspected if its
number of rows is too high at two checks in a row, because a single check also sees writes under way. Only then is the
table walked, in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, Protocol

from flockmq.bounds import LOG_TURN_MAX_S, REJOIN_SLICE_FILTERS, SLOTS
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_shared, matching
from flockmq.rlog.rlog import ReasonOf
from flockmq.rlog.route_table import RouteTable
from flockmq.routes.count_turns import CountTurns
from flockmq.routes.own_routes import OwnRoutes, WorstReason
from flockmq.routes.remote_routes import slot_of_owner, slot_owner
from flockmq.routes.route_turns import NOBODY, Submit
from flockmq.routes.shared_members import OwnSharedMembers
from flockmq.routing.group import Group

log: Final = logging.getLogger(__name__)


class WantedRoutes(Protocol):
    """What `DurableRouter` knows of routes."""

    wanted: dict[tuple[int, bytes], int]
    filters: dict[int, int]


class SlotFilters(WantedRoutes, Protocol):
    """What this module needs of `DurableRouter`."""

    groups: dict[int, dict[bytes, Group]]

    def count(self, slot: int, share_filter: bytes) -> tuple[int, int]: ...


Members = Callable[[bytes, str], tuple[int, int]]
"""How many members of a shared subscription the log has for another owner: (connected, offline)."""


class SlotRoutes:
    """`runs_here`: the slot runs here and is loaded. `table` returns the log's current routes, which a bootstrap
    replaces. `spawn` runs long work in the background."""

    def __init__(
        self,
        router: SlotFilters,
        runs_here: Callable[[int], bool],
        submit: Submit,
        reason_of: ReasonOf,
        table: Callable[[], RouteTable],
        members: Members,
        counts: CountTurns,
        spawn: Callable[[Awaitable[None]], object],
    ) -> None:
        self._router = router
        self._runs_here = runs_here
        self._submit = submit
        self._table = table
        self._reason_of = reason_of
        self._members = members
        self._counts = counts
        self._spawn = spawn
        self._soon = asyncio.get_running_loop().call_soon
        self._routes: dict[int, OwnRoutes] = {}
        self._shares: dict[int, OwnSharedMembers] = {}
        self._has_failed = False
        """A wanted route couldn't be written."""
        self._orphaned = OrphanedSlotRoutes(table, router, runs_here, self._delete_orphans)

    # --- requests of a slot's sessions ---

    def put(self, slot: int, filters: list[bytes], done: Callable[[int], None], user: bytes = NOBODY) -> None:
        """Write routes for filters that aren't routed to the slot yet, in the user's turn. `done` gets the worst reason
        code."""
        routes, shares = self._routes_of(slot), self._shares_of(slot)
        shared = [filter for filter in filters if is_shared(filter) and not shares.has(filter)]
        others = [matching(f) for f in filters if not is_shared(f) and not routes.has(matching(f))]
        both = WorstReason(2, done)
        if shared:
            shares.put(shared, both.done, user)
        else:
            both.done(Reason.SUCCESS)
        if others:
            routes.put(others, both.done, user)
        else:
            both.done(Reason.SUCCESS)

    def keep(self, slot: int, filters: list[bytes]) -> None:
        """`put` without a caller that waits and would retry."""
        self.put(slot, filters, self._written)

    def _written(self, reason: int) -> None:
        if reason >= 0x80:
            self._has_failed = True

    def delete(self, slot: int, filters: list[bytes]) -> None:
        """Delete the routes that no session of the slot wants."""
        routes = self._routes.get(slot)
        ordinary = [matching(filter) for filter in filters if not is_shared(filter)]
        gone = [filter for filter in ordinary if not self._is_wanted(slot, filter)]
        if gone and routes is not None:
            routes.delete(gone)

    def slot_gone(self, slot: int) -> None:
        self._routes.pop(slot, None)
        if (shares := self._shares.pop(slot, None)) is not None:
            shares.stop()

    def members_changed(self, slot: int, share_filter: bytes, user: bytes) -> None:
        if slot in self._shares:
            self._shares[slot].changed(share_filter, user)

    def members_missing(self, slot: int, share_filter: bytes) -> None:
        """The log has members that this slot may not have. Correct that if all its sessions are loaded here."""
        if self._runs_here(slot):
            self._shares_of(slot).mark_unknown(share_filter)

    # --- changes in the log, called within an entry ---

    def route_deleted(self, slot: int, filter: bytes) -> None:
        if self._is_wanted(slot, filter) and slot in self._routes:
            self._soon(self._write_again, slot, filter)

    def share_written(self, slot: int, share_filter: bytes) -> None:
        """The log has a new member count."""
        counts = self._members(share_filter, slot_owner(slot))
        if slot in self._shares and counts != self._router.count(slot, share_filter):
            self._shares[slot].mark_unknown(share_filter)

    def swapped(self) -> None:
        """A bootstrap doesn't tell which routes were deleted: check all that are wanted."""
        self._has_failed = False
        self._soon(self._check_soon)

    def try_again(self) -> None:
        """Retry what failed while the log was unavailable, and look for leftovers of former owners."""
        for routes in self._routes.values():
            routes.delete_again()
        if self._has_failed:
            self.swapped()
        self._spawn(self._orphaned.look())

    # --- inside ---

    def _check_soon(self) -> None:
        self._spawn(self._check_all())

    async def _check_all(self) -> None:
        wanted = list(self._router.wanted)
        for first in range(0, len(wanted), REJOIN_SLICE_FILTERS):
            for slot, filter in wanted[first : first + REJOIN_SLICE_FILTERS]:
                if (routes := self._routes.get(slot)) is not None and not routes.has(filter):
                    self._write_again(slot, filter)
            await asyncio.sleep(0)
        shared = [(slot, share_filter) for slot, by_filter in self._router.groups.items() for share_filter in by_filter]
        for first in range(0, len(shared), REJOIN_SLICE_FILTERS):
            for slot, share_filter in shared[first : first + REJOIN_SLICE_FILTERS]:
                self.share_written(slot, share_filter)
            await asyncio.sleep(0)

    def _write_again(self, slot: int, filter: bytes) -> None:
        if self._is_wanted(slot, filter) and slot in self._routes:
            self._routes[slot].put([filter], self._written)

    def _delete_orphans(self, slot: int, filters: list[bytes]) -> None:
        self._routes_of(slot).delete(filters)

    def _routes_of(self, slot: int) -> OwnRoutes:
        routes = self._routes.get(slot)
        if routes is None:
            is_wanted = partial(self._is_wanted, slot)
            routes = OwnRoutes(slot_owner(slot), self._submit, self._holders, is_wanted, self._reason_of)
            self._routes[slot] = routes
        return routes

    def _shares_of(self, slot: int) -> OwnSharedMembers:
        shares = self._shares.get(slot)
        if shares is None:
            count = partial(self._router.count, slot)
            me, counts = slot_owner(slot), self._counts
            shares = self._shares[slot] = OwnSharedMembers(me, self._submit, count, self._reason_of, counts)
        return shares

    def _holders(self, filter: bytes) -> Collection[str]:
        return self._table().nodes(filter)

    def _is_wanted(self, slot: int, filter: bytes) -> bool:
        return (slot, filter) in self._router.wanted


class OrphanedSlotRoutes:
    """`routes` returns the current table, which a bootstrap replaces. `runs_here`: the slot runs here and is loaded."""

    def __init__(
        self,
        routes: Callable[[], RouteTable],
        router: WantedRoutes,
        runs_here: Callable[[int], bool],
        delete: Callable[[int, list[bytes]], None],
    ) -> None:
        self._routes = routes
        self._router = router
        self._runs_here = runs_here
        self._delete = delete
        self._suspects: set[int] = set()

    async def look(self) -> None:
        suspects = {slot for slot in range(SLOTS) if self._has_too_many(slot)}
        known, self._suspects = suspects & self._suspects, suspects - self._suspects
        if known:
            await self._walk({slot_owner(slot) for slot in known})

    def _has_too_many(self, slot: int) -> bool:
        rows = self._routes().rows_of(slot_owner(slot))
        return rows > self._router.filters.get(slot, 0) and self._runs_here(slot)

    async def _walk(self, owners: set[str]) -> None:
        """Logs one line for all slots: each may have few."""
        freed: dict[str, int] = {}
        loop = asyncio.get_running_loop()
        slice_ends = loop.time() + LOG_TURN_MAX_S
        for _, _, owner, filters, _ in self._routes().export():
            if owner in owners and (count := self._free(slot_of_owner(owner), filters)):
                freed[owner] = freed.get(owner, 0) + count
            if loop.time() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = loop.time() + LOG_TURN_MAX_S
        if freed:
            log.info("%d routes that nobody wants are deleted, of %d slots", sum(freed.values()), len(freed))

    def _free(self, slot: int, filters: list[bytes]) -> int:
        orphans = [filter for filter in filters if (slot, filter) not in self._router.wanted]
        if not orphans or not self._runs_here(slot):
            return 0
        self._delete(slot, orphans)
        return len(orphans)
