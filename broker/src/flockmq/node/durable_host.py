"""This node as a home: what the sessions that run here need of the node around them. Only cores have one.

What always holds: a route of a slot is in the log while a session of the slot that runs here wants it; it is deleted
when that it isn't wanted is durable, and written again if a former home of the slot deletes it late, or it couldn't be.
How many members of shared subscriptions a slot has is in the log likewise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq.bounds import REJOIN_SLICE_FILTERS, STORE_STOP_MAX_S
from flockmq.clock import Clock
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.durable.noted_giving import NotedGiving
from flockmq.durable.router import DurableRouter
from flockmq.durable.session_service import SessionService
from flockmq.durable.session_store import SessionStore
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import exclusively, is_exclusive, is_shared, matching
from flockmq.node.away_claims import AwayClaims
from flockmq.publishing.retained_feed import Feeds
from flockmq.quotas import Usage
from flockmq.rlog.shards import ROUTE
from flockmq.routes.durable_claims import DurableClaims
from flockmq.routes.own_filters import claim_all
from flockmq.routes.own_routes import OwnRoutes, Worst
from flockmq.routes.remote_routes import slot_owner
from flockmq.routes.shared_members import OwnShares
from flockmq.routes.stale_routes import StaleRoutes
from flockmq.routing.router import Router
from flockmq.routing.slots import slot_of
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.clean_session_wills import Left

if TYPE_CHECKING:
    from flockmq.node.node import Node


_UNREADABLE: Final = "sessions-unreadable/"
"""What the alarm of a slot begins with."""


class DurableHost:
    """`session_rpc.ports.HostPort`, and the parts of a home."""

    def __init__(
        self, node: Node, store: SessionStore, router: Router, zones: Mapping[str, Limits], clock: Clock
    ) -> None:
        loop = asyncio.get_running_loop()
        self.soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.router = DurableRouter(router, node.slot_peers)
        self.router.on_count = self._members_changed
        self.router.on_missing = self._members_missing
        self.residents = SessionService(self, node.homes, store, self.router, clock)
        self.store = store
        self._node = node
        self._cluster = node.cluster
        self._filters = node.filters
        self._zones = zones
        self._routes: dict[int, OwnRoutes] = {}
        self._shares: dict[int, OwnShares] = {}
        self._misses = False
        """A route that is wanted couldn't be written."""
        self._strays = StaleRoutes(
            lambda: node.rlog.tables.routes, self.router, self.residents.has_loaded, self._delete_strays
        )
        self._claims_by_slot = node.cluster.version.gate(2)
        submit = partial(node.rlog.submit, ROUTE)
        self._home = _Home(self.residents)
        self.claims = DurableClaims(node.filters.exclusive.bids, submit, node.reason_of, self._home)
        self.away_claims = AwayClaims(self.residents, node.access, self.claims.claimants)
        self._alarms: dict[int, str] = {}
        """Slot -> what of it can't be read, of those that are this core's."""
        self._unclaimed: dict[tuple[bytes, bytes], None] = {}
        """(client id, exclusive filter) of sessions that came with a filter whose claim doesn't stand."""
        giving = NotedGiving(self.router, node.cluster.version.gate(2))
        self._feeds = Feeds(node.retained, giving, node.retaining.caught_up, node.flush_soon, clock)
        self.intake = SlotReceiver(self.residents.letters, node.cluster.nodes_table.__contains__, self.soon, loop.time)
        node.delivery.slots.receiver = self.intake
        node.homes.residents = self.residents

    async def start(self) -> None:
        await self.store.start()

    async def stop(self) -> None:
        """What was put is durable first, if Redis is there."""
        await self.residents.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_STOP_MAX_S):
                await self.residents.durable()
        await self.store.stop()

    def try_again(self) -> None:
        """What was in doubt, or couldn't be written, when the log was away."""
        for routes in self._routes.values():
            routes.delete_again()
        if self._misses:
            self.routes_swapped()
        unclaimed, self._unclaimed = self._unclaimed, {}
        for client_id, filter in unclaimed:
            self._claim_again(client_id, filter)
        if self._claims_by_slot():
            for filter, client_id in self._filters.exclusive.held():
                self._claim_again(client_id, exclusively(filter))
            self._node.spawn(self.claims.look())
            self._node.spawn(self.away_claims.look())
        self._node.spawn(self._strays.look())
        self._look_at_alarms()

    def routes_swapped(self) -> None:
        """After a bootstrap nobody says which routes went: look for all that are wanted. Amid an entry."""
        self._misses = False
        self.soon(self._look_soon)

    def _look_soon(self) -> None:
        self._node.spawn(self._look_for_routes())

    async def _look_for_routes(self) -> None:
        wanted = list(self.router.wanted)
        for first in range(0, len(wanted), REJOIN_SLICE_FILTERS):
            for slot, filter in wanted[first : first + REJOIN_SLICE_FILTERS]:
                if (routes := self._routes.get(slot)) is not None and not routes.has(filter):
                    self._route_anew(slot, filter)
            await asyncio.sleep(0)
        shared = [(slot, share_filter) for slot, by_filter in self.router.groups.items() for share_filter in by_filter]
        for first in range(0, len(shared), REJOIN_SLICE_FILTERS):
            for slot, share_filter in shared[first : first + REJOIN_SLICE_FILTERS]:
                self.share_written(slot, share_filter)
            await asyncio.sleep(0)

    def share_written(self, slot: int, share_filter: bytes) -> None:
        """The log has another number of members than before."""
        counts = self._node.remote_shares.count(share_filter, slot_owner(slot))
        if slot in self._shares and counts != self.router.count(slot, share_filter):
            self._shares[slot].doubt(share_filter)

    def _members_changed(self, slot: int, share_filter: bytes) -> None:
        if slot in self._shares:
            self._shares[slot].changed(share_filter)

    def _members_missing(self, slot: int, share_filter: bytes) -> None:
        """Somebody thinks that there are some. Of a slot whose sessions aren't all here that may be true."""
        if self.residents.has_loaded(slot):
            self._shares_of(slot).doubt(share_filter)

    def route_deleted(self, slot: int, filter: bytes) -> None:
        """A route of a slot went from the log; amid an entry."""
        if (slot, filter) in self.router.wanted and slot in self._routes:
            self.soon(partial(self._route_anew, slot, filter))

    def _route_anew(self, slot: int, filter: bytes) -> None:
        if (slot, filter) in self.router.wanted and slot in self._routes:
            self._routes[slot].put([filter], self._routed)

    def _delete_strays(self, slot: int, filters: list[bytes]) -> None:
        self._routes_of(slot).delete(filters)

    def _routed(self, reason: int) -> None:
        """Nobody waits for it, so nobody asks again."""
        if reason >= 0x80:
            self._misses = True

    # What residents ask of the cluster.

    @property
    def incarnation(self) -> str:
        return self._cluster.incarnation

    def flush_soon(self) -> None:
        self._node.flush_soon()

    def publish(self, left: Left, accepted: Callable[[], None]) -> None:
        self._node.publish_left(left, accepted)

    def session_ended(self, session: LocalSession) -> None:
        self._node.hooking.session_ended(session.client_id)

    def slots_epoch(self) -> int:
        return self._cluster.epoch()

    def floor(self, slot: int) -> int:
        return self._node.homes.floor(slot)

    def has_authors(self) -> bool:
        return self._cluster.version.at_least(2)

    def members(self) -> Collection[str]:
        return self._cluster.nodes_table

    def limits(self, zone: str) -> Limits:
        return self._zones.get(zone) or self._zones["default"]

    def usage(self, user: bytes | None) -> Usage | None:
        return self._node.quotas.usage(user)

    def alarm(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        if text:
            self._alarms[slot] = text
        else:
            self._alarms.pop(slot, None)
        if is_ours:
            self._look_at_alarm(slot)

    def _look_at_alarms(self) -> None:
        """What couldn't be written when the log was away; an alarm of a slot may be a former home's."""
        names = [name for name, _ in self._node.rlog.tables.alarms.items() if name.startswith(_UNREADABLE)]
        said = [int(digits) for name in names if (digits := name.removeprefix(_UNREADABLE)).isdigit()]
        for slot in dict.fromkeys((*said, *self._alarms)):
            if slot in self._alarms or self.residents.has_loaded(slot):
                self._look_at_alarm(slot)

    def _look_at_alarm(self, slot: int) -> None:
        name, text = f"{_UNREADABLE}{slot}", self._alarms.get(slot, "")
        stands = self._node.rlog.tables.alarms.get(name)
        if text and (stands is None or stands.text != text):
            self._node.rlog.raise_alarm(name, text)
        elif not text and stands is not None:
            self._node.rlog.clear_alarm(name)

    def changed(self) -> None:
        self.intake.advance()

    # What their subscriptions ask.

    def claim(self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        claims = self.claims if self._claims_by_slot() else self._filters.exclusive
        self.away_claims.claimed(client_id)
        claim_all(filters, lambda filter, claimed: claims.claim(matching(filter), client_id, claimed), done)

    def release(self, client_id: bytes, filters: list[bytes]) -> None:
        for filter in filters:
            self._filters.exclusive.release(matching(filter))
            if self._claims_by_slot():
                self.claims.release(matching(filter), client_id)

    def has_by_node(self, client_id: bytes, filter: bytes) -> bool:
        """A session that runs here has `$exclusive/FILTER`, and no claim that outlives this node."""
        return _has_exclusively(self.residents, client_id, filter) and not self.claims.stands(filter, client_id)

    def is_home_of(self, client_id: bytes) -> bool:
        """Its session runs here, if it has one that lasts."""
        return self._home.gained_at(slot_of(client_id)) >= 0

    def route_slot(self, slot: int, filters: list[bytes], done: Callable[[int], None]) -> None:
        routes, shares = self._routes_of(slot), self._shares_of(slot)
        shared = [filter for filter in filters if is_shared(filter) and not shares.has(filter)]
        others = [matching(f) for f in filters if not is_shared(f) and not routes.has(matching(f))]
        both = Worst(2, done)
        if shared:
            shares.put(shared, both.done)
        else:
            both.done(Reason.SUCCESS)
        if others:
            routes.put(others, both.done)
        else:
            both.done(Reason.SUCCESS)

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        routes = self._routes.get(slot)
        self.release(client_id, [filter for filter in filters if is_exclusive(filter)])
        ordinary = [matching(filter) for filter in filters if not is_shared(filter)]
        gone = [filter for filter in ordinary if (slot, filter) not in self.router.wanted]
        if gone and routes is not None:
            routes.delete(gone)

    def came_with(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        for filter in filters:
            if is_exclusive(filter):
                self._claim_again(client_id, filter)
        self.route_slot(slot, filters, self._routed)

    def _claim_again(self, client_id: bytes, filter: bytes) -> None:
        if _has_exclusively(self.residents, client_id, matching(filter)):
            claim = self.claims.keep if self._claims_by_slot() else self._filters.exclusive.claim
            claim(matching(filter), client_id, partial(self._claimed, client_id, filter))

    def _claimed(self, client_id: bytes, filter: bytes, reason: int) -> None:
        """The session goes on as it was; the claim is tried until it stands, or the subscription goes."""
        if reason >= 0x80:
            self._unclaimed[client_id, filter] = None

    def see_retained(self, then: Callable[[bool], None]) -> None:
        self._node.spawn(self._see_retained(then))

    async def _see_retained(self, then: Callable[[bool], None]) -> None:
        then(await self._node.retaining.seen())
        self.flush_soon()

    def owe(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self._node.system.give(subscriptions)
        self._feeds.owe(subscriptions, saw_all)

    def slot_gone(self, slot: int) -> None:
        self._routes.pop(slot, None)
        if (shares := self._shares.pop(slot, None)) is not None:
            shares.stop()

    def _routes_of(self, slot: int) -> OwnRoutes:
        routes = self._routes.get(slot)
        if routes is None:
            is_wanted = partial(self._is_wanted, slot)
            submit = partial(self._node.rlog.submit, ROUTE)
            routes = OwnRoutes(slot_owner(slot), submit, self._node.holders, is_wanted, self._node.reason_of)
            self._routes[slot] = routes
        return routes

    def _shares_of(self, slot: int) -> OwnShares:
        shares = self._shares.get(slot)
        if shares is None:
            submit = partial(self._node.rlog.submit, ROUTE)
            count = partial(self.router.count, slot)
            shares = self._shares[slot] = OwnShares(slot_owner(slot), submit, count, self._node.reason_of)
        return shares

    def _is_wanted(self, slot: int, filter: bytes) -> bool:
        return (slot, filter) in self.router.wanted


class _Home:
    """What claims ask of the sessions that run here."""

    def __init__(self, residents: SessionService) -> None:
        self._residents = residents
        self.has_loaded = residents.has_loaded
        self.settle = residents.holding.settle

    def has_exclusively(self, client_id: bytes, filter: bytes) -> bool:
        return _has_exclusively(self._residents, client_id, filter)

    def gained_at(self, slot: int) -> int:
        held = self._residents.holding.slots.get(slot)
        return -1 if held is None or held.is_lost else held.gained_at

    def loaded(self) -> Iterable[int]:
        return (slot for slot in self._residents.holding.slots if self.has_loaded(slot))


def _has_exclusively(residents: SessionService, client_id: bytes, filter: bytes) -> bool:
    session = residents.sessions.by_id.get(client_id)
    return session is not None and session.subscriptions.find(exclusively(filter)) is not None
