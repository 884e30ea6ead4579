"""The node: what its connections ask of the log and the cluster, and how their answers come back.

Everything here runs on the event loop and returns at once; what takes time ends in a callback.

What always holds: SUBACK follows the route in this node's own tables; a retained message is in the log, and this node
has seen every route that was written before it, when it is matched; so of a SUBSCRIBE and a retained PUBLISH one sees
the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from flockmq.auth.service import AuthService
from flockmq.auth.warrants import KNOWN, Said, Warrant, decoded, encode
from flockmq.bounds import (
    LAG_SAMPLE_INTERVAL_S,
    REFUSALS_LOGGED_PER_S,
    RETAINED_MESSAGE_BYTES,
    SESSIONS_TICK_S,
    WILLS_MAX_S,
)
from flockmq.clock import SYSTEM as SYSTEM_CLOCK
from flockmq.clock import Clock
from flockmq.config.plugin_settings import SysTopicsSettings
from flockmq.config.schema import QuotasSettings as QuotaSettings
from flockmq.delivery.delivery import Delivery
from flockmq.durable.session_store import SessionStore
from flockmq.durable.session_table import SessionTable
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.entropy import Entropy
from flockmq.logs import Sparing
from flockmq.membership.cluster import Cluster
from flockmq.membership.views import LocalStatus
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.mqtt.packets import Auth as AuthPacket
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import exclusively, is_delayed
from flockmq.node.access_control import AccessControl
from flockmq.node.arrivals import Arrivals
from flockmq.node.client_directory import ClientDirectory
from flockmq.node.clock_alarm import ClockAlarm
from flockmq.node.cluster_overview import ClusterOverview
from flockmq.node.connections import Connections
from flockmq.node.durable_host import DurableHost
from flockmq.node.judging_queue import JudgingQueue
from flockmq.node.judging_turns import JudgingTurns
from flockmq.node.management_view import ManagementView
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.reauthorization import Reauthorization
from flockmq.node.redis_shortage import RedisShortage
from flockmq.node.revocation import Revocation
from flockmq.node.standing_subscriptions import StandingSubscriptions
from flockmq.node.sys_topics import About, SysTopics
from flockmq.node.user_quotas import DelayedBytes, UserQuotas
from flockmq.protocol.channel import Channel
from flockmq.protocol.ports import ASKED, DENIED, NodePort
from flockmq.protocol.publish_queue import Inbound
from flockmq.protocol.publisher import Publisher
from flockmq.protocol.subscribe import SubscribeRequest
from flockmq.publishing.delayed import Delayed, warrant_of
from flockmq.publishing.retained_feed import Feeds, RetainedFeed
from flockmq.publishing.retained_giving import RetainedGiving
from flockmq.publishing.retained_log import OVER_QUOTA, RetainedLog
from flockmq.publishing.unattended import Unattended
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.retained_authors import author_of
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import (
    CLAIMS,
    DELAYED,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    SHARDS,
    SHARES,
    DelayedMessage,
)
from flockmq.routes.own_filters import OwnFilters, WriteReasons
from flockmq.routes.remote_routes import RemoteRoutes, slot_of_owner
from flockmq.routes.shared_members import RemoteShares
from flockmq.routing.router import Router
from flockmq.routing.slots import SlotPeers
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import NodeTarget
from flockmq.session.client_session import ClientSession
from flockmq.session.limits import TO_USER, Limits
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.clean_session_wills import Left
from flockmq.session_rpc.remote_sessions import RemoteSessions
from flockmq.session_rpc.server import SessionRpcServer
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.loop import LoopWatch
from flockmq.telemetry.metrics import Reasons
from flockmq.transport.reactor import Reactor

log: Final = logging.getLogger(__name__)


class Node(NodePort):
    """One per process; `view` is how others see it."""

    def __init__(
        self,
        role: str,
        name: str,
        router: Router,
        cluster: Cluster,
        delivery: Delivery,
        rlog: Rlog,
        hooking: PluginHooks,
        auth: AuthService,
        sys_topics: SysTopicsSettings,
        zones: Mapping[str, Limits],
        store: SessionStore | None,
        reactor: Reactor,
        quotas: QuotaSettings,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """`store`: a core's, where the sessions that run there are durable. `reactor`: it hears of its clients."""
        self.role = role
        self.name = name
        self.incarnation = cluster.incarnation
        self.router = router
        self.counters: Counters = router.counters
        self.cluster = cluster
        self.delivery = delivery
        self.rlog = rlog
        self.hooking = hooking
        self.clock = clock
        self.reason_of = WriteReasons(clock).of
        self.view = ManagementView(self, clock)
        self.overview = ClusterOverview(cluster, self.view.rlog)
        about = About(name, self.view.names, self.view.samples)
        self.system = SysTopics(sys_topics, about, router, self.flush_soon, clock)
        self.refusals = Reasons("connects_refused", "before_connect")
        self.ends = Reasons("disconnects", "before_connack")
        self.loop_watch = LoopWatch()
        self.reactor = reactor
        reactor.port = self
        self.sessions = SessionTable(router, self)
        self.fronts = RemoteSessions(router.turn, self.reactor.soon, hooking.unsubscribed, entropy.token_bytes)
        self.clients = Connections(
            self.sessions,
            self.fronts,
            router.counters,
            self.reactor.soon,
            self._connection_event,
            clock,
            entropy.token_bytes,
        )
        self.homes = SessionRpcServer(cluster, delivery.packets, self.clients)
        self.clients.homes = self.fronts.homes = self.homes
        self.clients.watcher = self
        self.clients.homes_keep_wills = cluster.version.gate(2)
        cluster.version.when(2, self.homes.register_wills)
        self.access = AccessControl(
            auth,
            hooking,
            self.clients.authenticated,
            self.clients.by_id.get,
            self._connections,
            self.reactor.soon,
            clock,
        )
        self.clients.must_authorize = self.access.must_authorize
        self.clients.refuses = router.refuses
        self.clients.warrant = self._warrant
        self.clients.identifies = self.access.identifies
        binds = any(limits.client_id_binding == TO_USER for limits in zones.values())
        have_users = (lambda: True) if binds else self.access.identifies
        self.quotas = UserQuotas(quotas, cluster, rlog, store, have_users, clock.monotonic)
        self.clients.usage = self.quotas.usage
        reauthorizing = Reauthorization(self._connections, self.access.must_authorize)
        auth.authorizer.on_change = reauthorizing.rules_changed
        revoking = Revocation(
            router,
            self.access,
            JudgingTurns(self.access),
            self._connections,
            self.clients.by_id.get,
            self.unsubscribe,
            self.fronts,
            cluster.version.gate(2),
            hooking.rewrites,
            self.flush_soon,
        )
        self.standing = StandingSubscriptions(revoking, auth.authorizer.revoking_disconnects, clock)
        auth.authorizer.on_rules = self._rules_changed
        judging = JudgingTurns(self.access)
        auth.authorizer.in_turn = judging.in_turn
        self.resting = JudgingQueue(judging, self.standing, reactor)
        self.access.on_principal = self.clients.on_unjudged = self.standing.judge_now
        self.clients.rules_of = self.access.fingerprint
        cluster.version.when(2, partial(self.standing.rules_changed, None))
        hooking.on_change = partial(self._hooks_changed, reauthorizing)
        self.remote = RemoteRoutes(
            router,
            self.incarnation,
            delivery.nodes.peer,
            on_slot_delete=self._slot_route_deleted,
            on_swap=self._routes_swapped,
        )
        self.filters = OwnFilters(
            self.incarnation,
            partial(rlog.submit, ROUTE),
            self.holders,
            router,
            self._has_alone,
            self._is_here,
            self.reason_of,
        )
        self.remote_shares = RemoteShares(router, self.incarnation, self._slot_share_written)
        self.slot_peers = SlotPeers(router.turn, delivery.slots.lanes)
        router.shared.find_peer = self._find_target
        router.courier = delivery.slots.lanes
        self.homes.on_crowd = delivery.slots.lanes.crowd
        self.homes.on_takers = delivery.slots.lanes.take
        cluster_clock = cluster.time.clock
        self.retained = RetainedFeed(self.quotas.quotas.retained)
        self.shortage = RedisShortage(cluster, delivery.slots.lanes, rlog, store)
        self.retaining = RetainedLog(
            rlog,
            self.retained,
            lambda: cluster.is_leader,
            self.reason_of,
            cluster_clock,
            cluster.version.gate(2),
            self.shortage.refuses,
            self.quotas,
        )
        self.delayed = Delayed(
            DelayedHost(self), self.reason_of, cluster_clock, entropy.token_bytes, cluster.version.gate(2)
        )
        self.publishing = Unattended(
            router, self.retaining.retain_left, self._delay_left, self.spawn, self.reactor.soon, clock.monotonic
        )
        router.shared.on_refused = self.publishing.share
        router.shared.keeps_deals = cluster.version.gate(2)
        self.homes.on_will = partial(self.publish_left, accepted=_nobody_waits)
        self.feeds = Feeds(
            self.retained, RetainedGiving(router), self.retaining.caught_up, self.reactor.soon, cluster_clock
        )
        self.hosting = None if store is None else DurableHost(self, store, router, zones, cluster_clock)
        residents = None if self.hosting is None else self.hosting.residents
        self.shortage.takers = None if residents is None else residents.takers
        self.directory = ClientDirectory(cluster, self.overview.teller, self.homes, self.clients, residents, clock)
        self._clock_alarm = ClockAlarm(name, cluster, rlog)
        self._dropped = Sparing(log, REFUSALS_LOGGED_PER_S, clock.monotonic)
        self.state = "starting"
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.watch(rlog)  # first, because the cluster must know a member before its routes are placed
        rlog.on_change(NODES.name, self.remote.members)
        rlog.on_change(ROUTES.name, self.remote)
        rlog.on_change(MESSAGES.name, self.retained)
        rlog.on_change(SHARES.name, self.remote_shares)
        rlog.on_change(CLAIMS.name, self.filters.exclusive.claims)
        rlog.on_change(DELAYED.name, self.delayed.schedule)
        rlog.on_change(DELAYED.name, DelayedBytes(self.quotas.quotas.delayed))
        self.remote.go_live()
        self.remote_shares.go_live()
        arrivals = Arrivals(router, self.reactor.soon, self.spawn, lambda: self.state == "ready")
        arrivals.listen(cluster, delivery)
        reactor.on_stood_still = arrivals.stood_still
        cluster.local_status = self._local_status

    def flush_soon(self) -> None:
        self.reactor.soon()

    # Connections.

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.access.admit(channel, connect)

    def refused(self, channel: Channel, reason: int) -> None:
        self.refusals.note(reason)
        self.hooking.refused(channel, reason)

    def continued(self, channel: Channel, packet: AuthPacket) -> None:
        self.access.continued(channel, packet)

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        if will is not None and not self.access.may_leave(channel, will):
            self._drop(session.client_id, will.message.topic)
            will = None
        self.access.gone(channel, session.client_id)
        if not session.is_remote() and not self.clients.is_will_at_home(channel.token):
            will = self.hooking.leaving(channel, will)
        self.clients.gone(channel, session, will)

    def will_of(self, channel: Channel) -> Will | None:
        return self.hooking.leaving(channel, channel.will)

    def connected(self, channel: Channel, connect: Connect, session: ClientSession, is_present: bool) -> None:
        self.system.connected(channel, connect, session)
        self.hooking.connected(channel, session, is_present)
        self.access.connected(channel)

    def disconnected(self, channel: Channel, session: ClientSession) -> None:
        self.ends.note(channel.close_reason)
        self.system.disconnected(channel)
        self.hooking.disconnected(channel)

    def taken_over(self, client_id: bytes) -> None:
        self.hooking.taken_over(client_id)

    def session_ended(self, session: LocalSession) -> None:
        shared = self.router.shared
        shared.redispatch(session.unacknowledged_shared())
        self.hooking.session_ended(session.client_id)

    # What clients may do.

    def authorize(
        self, channel: Publisher, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        return self.resting.authorize(channel, action, topic, qos, retain, done)

    def rests(self, subscribing: SubscribeRequest) -> bool:
        return self.resting.rests(subscribing)

    def denied(self, channel: Publisher, action: int, topic: bytes) -> bool:
        return self.access.denied(channel, action, topic)

    def _connections(self) -> Sequence[Channel | None]:
        return self.reactor.channels()

    def _rules_changed(self, key: tuple[str, str] | None) -> None:
        self.standing.rules_changed(key)
        if self.hosting is not None:
            self.hosting.away_claims.rules_changed()

    def _hooks_changed(self, reauthorizing: Reauthorization) -> None:
        reauthorizing.rules_changed()
        self.standing.rules_changed(None)

    def intercept(self, channel: Publisher, message: Publish) -> Publish | int:
        return self.hooking.intercept(channel, message)

    def subscribing(self, channel: Channel, request: Request) -> bytes:
        return self.hooking.subscribing(channel, request)

    def subscribed(self, channel: Channel, filter: bytes, qos: int) -> None:
        self.hooking.subscribed(channel, filter, qos)

    def unsubscribing(self, channel: Channel, filter: bytes) -> bytes:
        return self.hooking.unsubscribing(channel, filter)

    def violated(self, channel: Channel, error: PacketError) -> None:
        self.clients.violated(channel, error)

    # Subscriptions.

    def is_routed(self, filter: bytes) -> bool:
        return self.filters.is_routed(filter)

    def claim(self, subscribing: SubscribeRequest, filters: list[bytes]) -> None:
        self.filters.claim(subscribing.session.client_id, filters, subscribing.claimed)

    def routed(self, subscribing: SubscribeRequest) -> None:
        self.filters.route(subscribing.filters, partial(self._routed, subscribing))

    def _routed(self, subscribing: SubscribeRequest, reason: int) -> None:
        """A route that was written for it came behind all that was retained before the SUBSCRIBE."""
        subscribing.saw_retained = bool(subscribing.filters) and self.rlog.has_all(RETAINED, when=ROUTE)
        if reason < 0x80 and subscribing.retained and not subscribing.saw_retained:
            self.spawn(self._see_retained(subscribing))
        else:
            subscribing.finish(reason)
            self.reactor.soon()

    async def _see_retained(self, subscribing: SubscribeRequest) -> None:
        subscribing.saw_retained = await self.retaining.seen()
        subscribing.finish(Reason.SUCCESS)
        self.reactor.soon()

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        reasons = self.sessions.unsubscribe(session, filters)
        for filter, reason in zip(filters, reasons, strict=True):
            if reason == Reason.SUCCESS and not channel.has_ended():
                self.hooking.unsubscribed(channel, filter)
        return reasons

    def _has_alone(self, client_id: bytes, filter: bytes) -> bool:
        """By a claim of this node, not by one of the slot that the session is in."""
        session = self._passing_session(client_id)
        if session is not None and session.subscriptions.find(exclusively(filter)):
            return True
        return self.hosting is not None and self.hosting.has_by_node(client_id, filter)

    def _is_here(self, client_id: bytes) -> bool:
        if self._passing_session(client_id) is not None:
            return True
        return self.hosting is not None and self.hosting.is_home_of(client_id)

    def _passing_session(self, client_id: bytes) -> LocalSession | None:
        """Of a client of this node, that ends with its connection."""
        channel = self.clients.by_id.get(client_id)
        session = None if channel is None else channel.session
        return session if isinstance(session, LocalSession) else None

    def unrouted(self, session: LocalSession, filters: list[bytes]) -> None:
        self.filters.unrouted(filters)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.system.give(subscriptions)
        self.feeds.owe(subscriptions, saw_all)

    # Messages.

    def remember(self, inbound: Inbound) -> None:
        token = inbound.channel.token if isinstance(inbound.channel, Channel) else None
        if isinstance(token, int):
            self.fronts.remember(inbound, token)
        else:
            inbound.remembered()

    def log(self, inbound: Inbound) -> None:
        self.spawn(self._log_then(inbound))

    async def _log_then(self, inbound: Inbound) -> None:
        message, channel = inbound.message, inbound.channel
        if is_delayed(message.topic):
            warrant = self.access.warrant(channel, _said(inbound.said), message.topic)
            reason = await self._delay(message, warrant)
            inbound.logged(Reason.QUOTA_EXCEEDED if reason == OVER_QUOTA else reason, deliver=False)
            return
        if isinstance(channel, Channel) and isinstance(channel.token, int):
            message.author = author_of(channel.client_id(), channel.token, is_will=False)
        message.user = channel.principal.username
        reason = await self.retaining.retain(message)
        inbound.logged(reason, deliver=not self.retaining.is_overtaken(message))

    async def _delay(self, message: Publish, warrant: Warrant | None) -> int:
        size_bytes = RETAINED_MESSAGE_BYTES + len(message.packet)
        async with self.quotas.storing(None if warrant is None else warrant.user, size_bytes) as may:
            return await self.delayed.take(message, warrant) if may else OVER_QUOTA

    async def _delay_left(self, message: Publish, warrant: Warrant | None) -> int:
        """Of a client that is gone: what is beyond its user's quota is dropped, and not tried again."""
        reason = await self._delay(message, warrant)
        return Reason.SUCCESS if reason == OVER_QUOTA else reason

    def publish(self, will: Will, session: LocalSession) -> None:
        self.publish_left(Left(session.client_id, None, will), _nobody_waits)

    def publish_left(self, left: Left, accepted: Callable[[], None]) -> None:
        """A will that is due, if its client may still publish it."""
        message = left.will.message
        warrant = decoded(left.will.warrant, left.client_id, left.user)
        message.user = warrant.user if warrant.why & KNOWN else left.user
        said = warrant.said(message.topic, message.qos, message.retain)
        verdict = self.access.auth.warrants.judge(warrant, said)
        if verdict == DENIED:
            self._drop(warrant.client_id, message.topic)
            accepted()
            return
        may = partial(self._still_may, warrant, said, message) if verdict == ASKED else None
        self.publishing.publish(message, accepted, warrant, may)

    async def _still_may(self, warrant: Warrant, said: Said, message: Publish) -> bool:
        may = await self.access.auth.warrants.still_may(warrant, said)
        if not may:
            self._drop(warrant.client_id, message.topic)
        return may

    def drops(self, row: DelayedMessage) -> bool:
        """A delayed message that is due, which its client may not publish any more. Other services aren't asked:
        the others that are due don't wait for them."""
        warrant = warrant_of(row)
        said = warrant.said(row.topic, row.qos, row.retain)
        if self.access.auth.warrants.judge(warrant, said) != DENIED:
            return False
        self._drop(row.client_id, row.topic)
        return True

    def _drop(self, client_id: bytes, topic: bytes) -> None:
        """What was to be published for a client that is gone."""
        self.counters.dropped_revoked += 1
        said = "what client %r left for %r is dropped: it may not publish it any more"
        self._dropped.info(said, client_id.decode(), topic)

    def _warrant(self, channel: Channel, message: Publish) -> bytes:
        return encode(self.access.warrant(channel, _said(message)))

    def send_as_plugin(self, topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        self.publishing.publish(publication(4, qos, retain, topic, payload, b""), _nobody_waits)

    def _slot_route_deleted(self, slot: int, filter: bytes) -> None:
        if self.hosting is not None:
            self.hosting.route_deleted(slot, filter)

    def _routes_swapped(self) -> None:
        if self.hosting is not None:
            self.hosting.routes_swapped()

    def _slot_share_written(self, slot: int, share_filter: bytes) -> None:
        if self.hosting is not None:
            self.hosting.share_written(slot, share_filter)

    def _find_target(self, owner: str) -> NodeTarget | None:
        """Who gets shared deliveries for an owner of rows of `shares`."""
        slot = slot_of_owner(owner)
        return self.delivery.nodes.peer(owner) if slot < 0 else self.slot_peers.peer(slot)

    # Life.

    async def watch_sessions(self) -> None:
        """Publish wills that are due and end sessions whose clients stayed away, for as long as the node lives."""
        while True:
            await asyncio.sleep(SESSIONS_TICK_S)
            if self.hosting is not None:
                self.hosting.residents.tick()
                self.reactor.soon()

    async def sample_lag(self) -> None:
        """Lag events for the nightly report, for as long as the node lives; another try at routes in doubt, and a
        look at the clock."""
        while True:
            await asyncio.sleep(LAG_SAMPLE_INTERVAL_S)
            self.filters.try_again()
            self._clock_alarm.look()
            self.spawn(self.filters.exclusive.look())
            if self.hosting is not None:
                self.hosting.try_again()
            at_ms = self.clock.wall_ms()
            lags = ((shard, *self.rlog.lag(shard)) for shard in SHARDS)
            samples = [(at_ms, self.name, shard, entries, round(ms)) for shard, entries, ms in lags]
            self.cluster.hand_events("lag", samples)

    async def close_clients(self) -> None:
        """Send every client away; a 5.0 client hears 0x8B or 0x9C. Returns when their wills are on their way, and other
        nodes have what was acknowledged to them."""
        self.state = "draining"
        self.reactor.stop_accepting()
        for connection in list(self.reactor.channels()):
            if connection is not None:
                connection.send_away()
        self.reactor.end_turn()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=WILLS_MAX_S)
            self.reactor.end_turn()
        await self.delivery.until_accepted()

    def _connection_event(self, kind: str, client_id: bytes, reason: int, version: int) -> None:
        at_ms = self.clock.wall_ms()
        self.cluster.hand_events("connections", [(at_ms, self.name, kind, client_id.decode(), int(reason), version)])

    def _local_status(self) -> LocalStatus:
        return LocalStatus(
            connections=self.counters.connections,
            routes=len(self.rlog.tables.routes),
            ready=self.state == "ready" and not self.cluster.fitness.unfit,
            draining=self.state == "draining",
        )

    def holders(self, filter: bytes) -> Collection[str]:
        return self.rlog.tables.routes.nodes(filter)

    def spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class DelayedHost:
    """What delayed messages ask of their node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def leads(self) -> bool:
        return self._node.cluster.is_leader

    def row(self, key: bytes) -> DelayedMessage | None:
        return self._node.rlog.tables.delayed.get(key)

    def write(self, ops: Sequence[Op]) -> asyncio.Future[StreamId]:
        return self._node.rlog.submit(RETAINED, ops)

    def refuses(self) -> bool:
        return self._node.shortage.refuses()

    async def caught_up(self) -> bool:
        return await self._node.retaining.caught_up()

    def drops(self, row: DelayedMessage) -> bool:
        return self._node.drops(row)

    async def publish(self, message: Publish) -> bool:
        return await self._node.publishing.publish_due(message)


def _said(message: Publish) -> Said:
    return Said(message.topic, message.qos, message.retain)


def _nobody_waits() -> None:
    """A will's publisher is gone."""
