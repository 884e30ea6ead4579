"""Builds a node from its parts and connects them; runs its periodic tasks and its shutdown.

Everything here runs on the event loop and must not block it: a callback gets the result of a slow operation.
connection_services.py serves the connections, and inbound_messages.py handles what other nodes send.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial

from flockmq.auth.service import AuthService
from flockmq.bounds import EVICTION_TICK_S, LAG_SAMPLE_INTERVAL_S, SESSIONS_TICK_S, WILLS_MAX_S
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.config.feature_settings import SysTopicsSettings
from flockmq.config.schema import QuotasSettings
from flockmq.delivery.delivery import Delivery
from flockmq.durable.session_store import SessionStore
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.entropy import Entropy
from flockmq.management.settings_rows import SettingsView
from flockmq.management.view import Views
from flockmq.membership.cluster import Cluster
from flockmq.membership.membership_settings import LocalStatus
from flockmq.memory_limit import ANY_MEMORY, NodeMemory
from flockmq.node import metrics
from flockmq.node.access_control import AccessControl, identifies
from flockmq.node.alarms import Alarms, ClockAlarm
from flockmq.node.authorization import NodeAuthorization
from flockmq.node.client_admin import ClientAdmin
from flockmq.node.client_traffic import ClientTraffic
from flockmq.node.cluster_overview import ClusterOverview
from flockmq.node.connection_services import CleanSessionEndHandler, ConnectionServices
from flockmq.node.connections import Connections
from flockmq.node.core_admin import CoreAdmin
from flockmq.node.durable_host import DurableHost
from flockmq.node.evacuation import Evacuation
from flockmq.node.event_rows import EventRows
from flockmq.node.eviction_pace import Draining
from flockmq.node.inbound_messages import InboundMessages
from flockmq.node.management_view import ManagementView
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.node.node_routes import NodeRoutes
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.rebalance_admin import RebalanceAdmin
from flockmq.node.rebalancing import Rebalances, Rebalancing
from flockmq.node.saved_tables import SavedTables
from flockmq.node.sys_topics import About, SysTopics
from flockmq.node.unattended_publishing import LeftMessages, nobody_waits
from flockmq.node.user_quotas import UserQuotas
from flockmq.protocol.channel import Channel
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.publishing.log_queue import LogQueue
from flockmq.publishing.retained_feed import RetainedFeed, RetainedGiving, RetainedSender
from flockmq.publishing.retained_log import RetainedLog
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import DELAYED, MESSAGES, NODES, RETAINED
from flockmq.rlog.write_reasons import WriteReasons
from flockmq.routing.router import Router
from flockmq.session.limits import TO_USER, Limits
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.session_rpc.rpc import SessionRpc
from flockmq.tasks import Spawned
from flockmq.telemetry.loop import LoopWatch
from flockmq.telemetry.metrics import Reasons, counter_samples
from flockmq.time_slices import TimeSlices
from flockmq.transport.reactor import Reactor


class Node:
    """A process has one node. `state`: `starting`, `ready` or `draining`."""

    def __init__(
        self,
        router: Router,
        cluster: Cluster,
        delivery: Delivery,
        rlog: Rlog,
        plugin_hooks: PluginHooks,
        auth: AuthService,
        sys_topics: SysTopicsSettings,
        zones: Mapping[str, Limits],
        store: SessionStore | None,
        reactor: Reactor,
        quotas: QuotasSettings,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        draining: Draining = Draining(),  # noqa: B008 - it never changes
        rebalances: Rebalances = Rebalances(),  # noqa: B008 - it never changes
        *,
        takes_clients: bool = True,
        memory: NodeMemory = ANY_MEMORY,
    ) -> None:
        """`store`: the store of a core's durable sessions; None on a replicant. `reactor`: runs the connections.
        `takes_clients`: whether this node has listeners for clients. `memory`: what this process may use, and uses."""
        self.state = "starting"
        self._takes_clients = takes_clients
        self.router = router
        self.cluster = cluster
        self.delivery, self.rlog = delivery, rlog
        self.plugin_hooks, self.reactor = plugin_hooks, reactor
        self.loop_watch = LoopWatch()
        self.refusals = Reasons("connects_refused", "before_connect")
        self._auth, self._clock = auth, clock
        self._token_bytes = entropy.token_bytes
        self._reason_of = WriteReasons(clock).of
        self._spawned = Spawned()
        self.metrics = metrics.NodeMetrics()
        self._event_rows = EventRows(cluster, rlog, delivery, router.counters, self.loop_watch, clock)
        self._show(sys_topics)
        self._keep_messages(quotas, zones, store, memory)
        self.routes = NodeRoutes(router, cluster, delivery, rlog, self._reason_of)
        self._take_clients()
        self._serve_clients()
        self._own_slots(zones, store)
        self.evacuation = Evacuation(self.clients, self.access, reactor, cluster, self.overview.members, draining)
        self.core_admin = CoreAdmin(cluster, self.overview, self.evacuation, clock)
        self.traffic = ClientTraffic(self.clients.by_id, clock.monotonic)
        self.rebalancing = Rebalancing(self.evacuation, self.traffic, cluster, self.overview.members, rebalances)
        self.rebalance_admin = RebalanceAdmin(cluster, self.overview, self.rebalancing)
        self._listen()

    # --- the parts --------------------------------------------------------------------------------------------------

    def _show(self, sys_topics: SysTopicsSettings) -> None:
        """Build what the REST API and the `$SYS` topics show, and the alarms."""
        self.view = ManagementView(self.cluster, self.rlog, self._shown_state, self._clock)
        self.overview = ClusterOverview(self.cluster, self.rlog)
        self.alarms = Alarms(self.rlog, self.cluster.readiness, self._clock)
        self._clock_alarm = ClockAlarm(self.cluster.settings.name, self.cluster, self.rlog)
        about = About(self.cluster.settings.name, self.view.names, self.metrics.samples)
        self.system = SysTopics(sys_topics, about, self.router, self.reactor.soon, self._clock)

    def _keep_messages(
        self, quotas: QuotasSettings, zones: Mapping[str, Limits], store: SessionStore | None, memory: NodeMemory
    ) -> None:
        """Build what stores and publishes retained messages, delayed messages and wills, and the quotas of users."""
        cluster, rlog, router, soon = self.cluster, self.rlog, self.router, self.reactor.soon
        cluster_clock, has_authors = cluster.time.clock, cluster.version.gate(2)
        binds = any(limits.client_id_binding == TO_USER for limits in zones.values())
        have_users = (lambda: True) if binds else partial(identifies, self._auth, self.plugin_hooks)
        self.quotas = UserQuotas(quotas, cluster, rlog, store, have_users, self._clock.monotonic, memory.limit_bytes)
        self.shortage = MemoryShortage(cluster, self.delivery.slots.sender, rlog, store, memory, self.reactor.relieve)
        self.shortage.on_full = self._auth.authorizer.forget_all
        self.retained = RetainedFeed(self.quotas.quotas.retained)
        self.retaining = RetainedLog(
            rlog,
            self.retained,
            lambda: cluster.is_leader,
            self._reason_of,
            cluster_clock,
            has_authors,
            self.shortage.refuses,
            self.quotas,
        )
        self._feeds = RetainedSender(
            self.retained, RetainedGiving(router), self.retaining.caught_up, soon, cluster_clock
        )
        self.left = LeftMessages(
            cluster,
            rlog,
            router,
            self._auth.deferred_authorization,
            self.quotas,
            self.shortage,
            self.retaining,
            self._reason_of,
            self._spawned.spawn,
            soon,
            self._clock,
            self._token_bytes,
        )
        router.shared.on_refused = self.left.unattended.share
        router.pauses.on_release = self.left.unattended.go_on
        router.shared.keeps_deals = has_authors

    def _take_clients(self) -> None:
        """Build the connections, their sessions, and the RPC to the owners of their client ids."""
        cluster, soon, slot_sender = self.cluster, self.reactor.soon, self.delivery.slots.sender
        has_wills = cluster.version.gate(2)
        ends = CleanSessionEndHandler(self.router, self.plugin_hooks, self.routes.filters, self.left)
        slices = TimeSlices(asyncio.get_running_loop().call_soon, self._clock)
        self.sessions = CleanSessionEnd(self.router, ends, slices)
        self.remote_sessions = RemoteSessions(self.router.turn, soon, self.plugin_hooks.unsubscribed, self._token_bytes)
        self.clients = Connections(
            self.sessions,
            self.remote_sessions,
            self.router.counters,
            soon,
            self.plugin_hooks,
            self.system,
            self._event_rows.connection,
            cluster.time.clock,
            self._token_bytes,
        )
        self.session_rpc = SessionRpc(cluster, self.delivery.packets, self.clients, self.remote_sessions)
        self.session_rpc.client.on_congestion = slot_sender.back_pressure.congest
        self.session_rpc.client.on_memory_report = slot_sender.back_pressure.report_memory_pressure
        self.session_rpc.server.on_will = partial(self.left.publish_left, accepted=nobody_waits)
        cluster.version.when(2, self.session_rpc.client.register_wills)
        self.access = AccessControl(
            self._auth,
            self.plugin_hooks,
            self.clients.authenticated,
            self.clients.by_id.get,
            self.reactor.channels,
            soon,
            self._clock,
        )
        ends.clients = self.routes.clients = self.clients
        self.clients.owners = self.remote_sessions.owners = self.session_rpc.client
        self.clients.on_connected = self.access.connected
        self.clients.authorization = self.access.will_authorization
        self.clients.registrations.owners_keep_wills = has_wills
        self.clients.registrations.identifies = partial(identifies, self._auth, self.plugin_hooks)
        self.clients.registrations.rules_of = self.access.fingerprint
        self.clients.registrations.will_of = self.plugin_hooks.leaving
        self.clients.must_authorize = self.access.must_authorize
        self.clients.refuses = self.router.refuses
        self.clients.usage = self.quotas.usage

    def _serve_clients(self) -> None:
        """Build the authorization of clients, and the services that their connections use."""
        self._authorization = NodeAuthorization(
            self._auth.authorizer,
            self.access,
            self.plugin_hooks,
            self.router,
            self.reactor,
            self.clients,
            self.sessions,
            self.remote_sessions,
            self.cluster.version,
            self._clock,
        )
        log_queue = partial(
            LogQueue[PendingPublish],
            submit=partial(self.rlog.submit, RETAINED),
            quotas=self.quotas,
            reason_of=self._reason_of,
            see_routes=self.retaining.see_routes,
            spawn=self._spawned.spawn,
            clock=self._clock,
        )
        services = ConnectionServices(
            self.clients,
            self.sessions,
            self.remote_sessions,
            self.access,
            self._authorization.queue,
            self.plugin_hooks,
            self.routes.filters,
            self.left,
            self.rlog,
            self.retaining,
            log_queue,
            self._feeds,
            self.shortage,
            self.system,
            self._refused,
            self._spawned.spawn,
            self.reactor.soon,
        )
        self.reactor.port = services
        self._log_queue = services.log_queue

    def _own_slots(self, zones: Mapping[str, Limits], store: SessionStore | None) -> None:
        """On a core, build the host of its durable sessions. On every node, build the administration of clients."""
        self.durable_host = None
        session_service = None
        if store is not None:
            self.durable_host = DurableHost(
                store,
                zones,
                self.cluster.time.clock,
                cluster=self.cluster,
                delivery=self.delivery,
                rlog=self.rlog,
                routes=self.routes,
                reason_of=self._reason_of,
                session_rpc=self.session_rpc.server,
                router=self.router,
                access=self.access,
                plugin_hooks=self.plugin_hooks,
                quotas=self.quotas,
                sys_topics=self.system,
                retained=self.retained,
                retaining=self.retaining,
                publish=self.left.publish_left,
                flush=self.reactor.soon,
                spawn=self._spawned.spawn,
            )
            session_service = self.durable_host.session_service
            self.shortage.pressure_reports = session_service.pressure_reports
            self.routes.durable_claims = self.durable_host.claims
            self._event_rows.durable = session_service, store
            self._authorization.offline_exclusive_subscriptions = self.durable_host.claims.offline
        owners, registry = self.session_rpc.client, self.session_rpc.server.registry
        self.directory = ClientAdmin(
            self.cluster, self.overview.answering_core, owners, registry, self.clients, session_service, self._clock
        )

    def _listen(self) -> None:
        """Connect the parts to changes of the log, to messages of other nodes, and to the metrics."""
        cluster, rlog, counters, delayed = self.cluster, self.rlog, self.router.counters, self.left.delayed
        cluster.watch(rlog)  # first, because the cluster must know a member before its routes are placed
        rlog.on_change(NODES.name, self.routes.remote.members)
        rlog.on_change(MESSAGES.name, self.retained)
        rlog.on_change(DELAYED.name, delayed.schedule)
        self.routes.listen(rlog)
        inbound = InboundMessages(self.router, self.reactor.soon, self._spawned.spawn, lambda: self.state == "ready")
        inbound.listen(cluster, self.delivery)
        self.reactor.on_stood_still = inbound.stood_still
        cluster.local_status = self._local_status
        self.metrics.parts = (
            partial(counter_samples, counters),
            partial(self.refusals.samples, counters),
            partial(self.clients.ends.samples, counters),
            self.loop_watch.samples,
            self.plugin_hooks.samples,
            self._auth.samples,
            partial(metrics.client_samples, self.reactor, counters),
            partial(metrics.subscription_samples, self.router, self.routes.filters, self.sessions, self.durable_host),
            partial(
                metrics.message_samples,
                rlog,
                self.router,
                self.retained,
                delayed,
                self.left.unattended,
                self.routes.turns,
                self._log_queue,
            ),
            partial(metrics.client_id_samples, self.session_rpc),
            partial(metrics.delivery_samples, self.delivery),
            partial(metrics.slot_message_samples, self.delivery.slots.sender, self.shortage),
            partial(metrics.session_samples, self.durable_host),
            self.quotas.samples,
            partial(metrics.log_samples, rlog, cluster),
            partial(metrics.cluster_samples, cluster),
            self.rebalancing.samples,
            self.alarms.samples,
        )

    def views(self, settings: SettingsView) -> Views:
        """The interfaces that the management server uses."""
        return Views(
            self.view,
            self.metrics.samples,
            plugins=self.plugin_hooks,
            alarms=self.alarms,
            quotas=self.quotas,
            clients=self.directory,
            sessions=self.directory,
            overview=self.overview,
            evacuation=self.evacuation,
            rebalance=self.rebalance_admin,
            tables=SavedTables(self.rlog),
            cores=self.core_admin,
            settings=settings,
        )

    # --- called by the parts ----------------------------------------------------------------------------------------

    def _refused(self, channel: Channel, reason: int) -> None:
        self.refusals.note(reason)
        self._event_rows.refused(channel, reason)

    def _shown_state(self) -> str:
        """As `state`, but `draining` also while an operator evacuates the node."""
        return "draining" if self.state == "ready" and self.evacuation.is_wanted else self.state

    def _local_status(self) -> LocalStatus:
        figures = self.traffic.figures()
        return LocalStatus(
            connections=self.router.counters.connections,
            routes=len(self.rlog.tables.routes),
            ready=self._shown_state() == "ready" and not self.cluster.readiness.unfit,
            draining=self._shown_state() == "draining",
            takes_clients=self._takes_clients,
            connect_wait_s=max(self.access.waits.longest_s(self._clock.monotonic()), self.loop_watch.late_now_s),
            rebalancing=self.rebalancing.is_shedding,
            durable_clients=figures.sessions,
            messages_per_s=figures.messages_per_s,
            has_too_much=self.rebalancing.has_too_much,
        )

    # --- periodic tasks and shutdown --------------------------------------------------------------------------------

    async def watch_sessions(self) -> None:
        """Publish due wills and end expired sessions, until cancelled."""
        while True:
            await asyncio.sleep(SESSIONS_TICK_S)
            if self.durable_host is not None:
                self.durable_host.session_service.tick()
                self.reactor.soon()

    async def sample_lag(self) -> None:
        """Until cancelled: sample this node for the nightly report, retry writes of routes whose result is unknown,
        check the clock, and delete unused exclusive claims."""
        while True:
            await asyncio.sleep(LAG_SAMPLE_INTERVAL_S)
            self.routes.filters.try_again()
            self._clock_alarm.look()
            self._spawned.spawn(self.routes.filters.exclusive.look())
            if self.durable_host is not None:
                self.durable_host.try_again()
            self._event_rows.sample(self._local_status().ready)

    async def drain(self) -> None:
        """Send the clients to other nodes, at a limited rate, while other nodes accept clients."""
        self.state = "draining"
        await self.evacuation.run()

    async def close_clients(self) -> None:
        """Disconnect all remaining clients; an MQTT 5.0 client gets reason code 0x8B or 0x9C. Returns when this node
        has sent their wills, or has told the owners of their client ids about them (it waits at most WILLS_MAX_S for
        each), and when other nodes have accepted the messages that this node acknowledged."""
        self.state = "draining"
        self.reactor.stop_accepting()
        self.evacuation.end()
        if await self._spawned.done(WILLS_MAX_S):
            self.reactor.end_turn()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WILLS_MAX_S):
                while not self.session_rpc.client.has_sent_evictions():  # noqa: ASYNC110 - as fast as the links can send
                    await asyncio.sleep(EVICTION_TICK_S)
        await self.delivery.until_accepted()
