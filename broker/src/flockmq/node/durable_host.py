"""This node as an owner of slots: its durable sessions, and what they need from the node. Only cores have one.

Invariants: the routes of slots (`SlotRoutes`), the claims (`DurableSessionClaims`) and the alarms (`SlotAlarms`) in the
log are kept up to date with the sessions that run here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping

from flockmq.bounds import STORE_STOP_MAX_S
from flockmq.clock import Clock
from flockmq.delivery.delivery import Delivery
from flockmq.delivery.slot_receiver import SlotReceiver
from flockmq.durable.retained_progress import RetainedProgress
from flockmq.durable.router import DurableRouter
from flockmq.durable.session_service import SessionService
from flockmq.durable.session_store import SessionStore
from flockmq.membership.cluster import Cluster
from flockmq.mqtt.topics import is_exclusive
from flockmq.node.access_control import AccessControl
from flockmq.node.alarms import SlotAlarms
from flockmq.node.durable_exclusive_claims import DurableSessionClaims
from flockmq.node.node_routes import NodeRoutes
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.sys_topics import SysTopics
from flockmq.node.user_quotas import UserQuotas
from flockmq.publishing.retained_feed import RetainedFeed, RetainedSender
from flockmq.publishing.retained_log import RetainedLog
from flockmq.rlog.rlog import ReasonOf, Rlog
from flockmq.routes.slot_routes import SlotRoutes
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session_rpc.clean_session_wills import PendingWill
from flockmq.session_rpc.server import SessionRpcServer


class DurableHost:
    """A `durable.ports.HostPort`. `publish` publishes a will. `flush` makes the reactor write queued output. `spawn`
    runs a coroutine as a task."""

    def __init__(
        self,
        store: SessionStore,
        zones: Mapping[str, Limits],
        clock: Clock,
        *,
        cluster: Cluster,
        delivery: Delivery,
        rlog: Rlog,
        routes: NodeRoutes,
        reason_of: ReasonOf,
        session_rpc: SessionRpcServer,
        router: Router,
        access: AccessControl,
        plugin_hooks: PluginHooks,
        quotas: UserQuotas,
        sys_topics: SysTopics,
        retained: RetainedFeed,
        retaining: RetainedLog,
        publish: Callable[[PendingWill, Callable[[], None]], None],
        flush: Callable[[], None],
        spawn: Callable[[Awaitable[None]], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        has_authors = cluster.version.gate(2)
        self.soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self.publish = publish
        self.flush_soon = flush
        self.usage = quotas.usage
        self.floor = session_rpc.floor
        self.has_authors = has_authors
        self.knows_subscribes = cluster.version.gate(2)
        self.store = store
        self.slots = cluster.slots
        self._cluster = cluster
        self._zones = zones
        self._plugin_hooks = plugin_hooks
        self._sys_topics = sys_topics
        self._retaining = retaining
        self._spawn = spawn
        self.router = DurableRouter(router, routes.slot_peers)
        self.session_service = SessionService(self, session_rpc, store, self.router, clock)
        runs_here = self.session_service.has_loaded
        submit, shares = routes.turns.submit, routes.shares
        self.routes = SlotRoutes(
            self.router, runs_here, submit, reason_of, lambda: rlog.tables.routes, shares.count, routes.counts, spawn
        )
        self.router.on_count = self.routes.members_changed
        self.router.on_missing = self.routes.members_missing
        self.route_slot = self.routes.put
        self.slot_gone = self.routes.slot_gone
        routes.remote.on_slot_delete = self.routes.route_deleted
        routes.remote.on_swap = self.routes.swapped
        shares.on_slot_row = self.routes.share_written
        self.claims = DurableSessionClaims(
            self.session_service,
            routes.filters.exclusive,
            access,
            submit,
            reason_of,
            cluster.version.gate(2),
            spawn,
        )
        self.claim = self.claims.claim
        self.release = self.claims.release
        self._alarms = SlotAlarms(rlog, runs_here)
        self.alarm = self._alarms.update
        giving = RetainedProgress(self.router, has_authors)
        self._feeds = RetainedSender(retained, giving, retaining.caught_up, flush, clock)
        self.intake = SlotReceiver(self.session_service.intake, cluster.nodes_table.__contains__, self.soon, loop.time)
        delivery.slots.receiver = self.intake
        session_rpc.sessions = self.session_service

    async def start(self) -> None:
        await self.store.start()

    async def stop(self) -> None:
        """Wait until all writes are committed, for at most STORE_STOP_MAX_S."""
        await self.session_service.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STORE_STOP_MAX_S):
                await self.session_service.manager.durable()
        await self.session_service.manager.close()
        await self.store.stop()

    def try_again(self) -> None:
        """Repeat writes that failed, or whose result is unknown, because the log was unavailable."""
        self.routes.try_again()
        self.claims.try_again()
        self._alarms.look()

    # Called by the sessions.

    @property
    def incarnation(self) -> str:
        return self._cluster.incarnation

    def may_do_what_is_due(self) -> bool:
        return self._cluster.fencing.is_confirmed_member and not self._cluster.heartbeats.is_cut_off()

    def members(self) -> Collection[str]:
        return self._cluster.nodes_table

    def limits(self, zone: str) -> Limits:
        return self._zones.get(zone) or self._zones["default"]

    def session_ended(self, client_id: bytes) -> None:
        self._plugin_hooks.session_ended(client_id)

    def changed(self) -> None:
        self.intake.advance()

    def filters_loaded(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        self.claims.filters_loaded(client_id, filters)
        self.routes.keep(slot, filters)

    def unrouted_slot(self, slot: int, client_id: bytes, filters: list[bytes]) -> None:
        self.claims.release(client_id, [filter for filter in filters if is_exclusive(filter)])
        self.routes.delete(slot, filters)

    def see_retained(self, then: Callable[[bool], None]) -> None:
        self._spawn(self._see_retained(then))

    async def _see_retained(self, then: Callable[[bool], None]) -> None:
        then(await self._retaining.seen())
        self.flush_soon()

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self._sys_topics.give(subscriptions)
        self._feeds.start(subscriptions, saw_all)
