"""Routes of this core's slots that no session wants, because a former owner crashed before it deleted them.

Invariant: a route is deleted only while its slot runs here, all its sessions are loaded, and none of them wants the
route. A slot is suspected if its number of rows is too high at two checks in a row, because a single check also sees
writes under way. Only then is the table walked, in slices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from flockmq.bounds import LOG_TURN_MAX_S, SLOTS
from flockmq.rlog.route_table import RouteTable
from flockmq.routes.remote_routes import slot_of_owner, slot_owner

log: Final = logging.getLogger(__name__)


class WantedRoutes(Protocol):
    """What this module needs of `DurableRouter`."""

    wanted: dict[tuple[int, bytes], int]
    filters: dict[int, int]


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
        loop = asyncio.get_running_loop()
        slice_ends = loop.time() + LOG_TURN_MAX_S
        for _, _, owner, filters, _ in self._routes().export():
            if owner in owners:
                self._free(slot_of_owner(owner), filters)
            if loop.time() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = loop.time() + LOG_TURN_MAX_S

    def _free(self, slot: int, filters: list[bytes]) -> None:
        orphans = [filter for filter in filters if (slot, filter) not in self._router.wanted]
        if orphans and self._runs_here(slot):
            log.info("%d routes of slot %d that nobody wants are deleted", len(orphans), slot)
            self._delete(slot, orphans)
