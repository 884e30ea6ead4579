"""The node: what its connections ask of the log and the cluster, and how their answers come back.

Everything here runs on the event loop and returns at once; what takes time ends in a callback.

What always holds: SUBACK follows the route in this node's own tables; a retained message is in the log, and this node
has seen every route that was written before it, when it is matched; so of a SUBSCRIBE and a retained PUBLISH one sees
the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final

from flockmq import __version__, build
from flockmq.bounds import LAG_SAMPLE_INTERVAL_S, RETAINED_SEEN_MAX_S, SESSIONS_TICK_S, WILLS_MAX_S
from flockmq.cluster.service import Cluster, LocalStatus
from flockmq.home.service import Homes
from flockmq.listeners.engine import Engine
from flockmq.management.view import NodeRow, NodeStatus, Sample, ShardStatus
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.packets import Auth, Connect
from flockmq.mqtt.packets import Subscription as Request
from flockmq.mqtt.reason import Reason
from flockmq.node.clients import Clients
from flockmq.node.handover import Handovers
from flockmq.node.remote import RemoteRoutes
from flockmq.node.retained import Feeds, Retained
from flockmq.node.routes import OwnRoutes
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogFull
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.shards import MESSAGES, NODES, RETAINED, ROUTE, ROUTES, SHARDS, RetainedMessage
from flockmq.session import forwarded
from flockmq.session.channel import CONNECTED, Channel
from flockmq.session.counters import Counters
from flockmq.session.inbound import Inbound
from flockmq.session.limits import Limits
from flockmq.session.opening import Will
from flockmq.session.port import ALLOWED, NodePort
from flockmq.session.principal import ANONYMOUS
from flockmq.session.publish import NO_EXPIRY, Publish
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.sessions import Sessions
from flockmq.session.sink import Peer
from flockmq.session.subscribing import Subscribing
from flockmq.session.subscription import Subscription
from flockmq.telemetry.metrics import counter_samples

log: Final = logging.getLogger(__name__)


class Node(NodePort):
    """Also a `management.view.NodeView`."""

    def __init__(self, role: str, name: str, limits: Limits, router: Router, cluster: Cluster, rlog: Rlog) -> None:
        self.role = role
        self.name = name
        self.incarnation = cluster.incarnation
        self.router = router
        self.counters: Counters = router.counters
        self.cluster = cluster
        self.rlog = rlog
        self.engine = Engine(router, self, limits)
        self.sessions = Sessions(router, self)
        self.clients = Clients(
            self.incarnation, self.sessions, router.counters, self.engine.soon, self._connection_event
        )
        self.homes = Homes(cluster, self.clients)
        self.clients.homes = self.homes
        self.handovers = Handovers(self.homes, self.sessions, router, limits, self._route_all, self.engine.soon)
        self.clients.handovers = self.handovers
        self.homes.on_relay = self.handovers.heard
        self._limits = limits
        self.remote = RemoteRoutes(router, self.incarnation, cluster.peer)
        self.routes = OwnRoutes(self.incarnation, partial(rlog.submit, ROUTE), self._holders, router.has_local, _reason)
        self.retained = Retained()
        self.feeds = Feeds(self.retained, router, partial(self._caught_up, RETAINED), self.engine.soon)
        self.state = "starting"
        self._started_s = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.watch(rlog)  # first, because the cluster must know a member before its routes are placed
        rlog.on_change(NODES.name, self.remote.members)
        rlog.on_change(ROUTES.name, self.remote)
        rlog.on_change(MESSAGES.name, self.retained)
        self.remote.go_live()
        cluster.on_forward = self._forwarded
        cluster.on_drained = self._peer_drained
        cluster.local_status = self._local_status

    def flush_soon(self) -> None:
        self.engine.soon()

    # Connections.

    def admit(self, channel: Channel, connect: Connect) -> None:
        if channel.authentication_method is not None:
            channel.refuse(Reason.BAD_AUTHENTICATION_METHOD)
        elif self._limits.allow_anonymous:
            self.clients.authenticated(channel, connect, ANONYMOUS)
        else:
            channel.refuse(Reason.NOT_AUTHORIZED)

    def continued(self, channel: Channel, packet: Auth) -> None:
        channel.close(Reason.BAD_AUTHENTICATION_METHOD)

    def gone(self, channel: Channel, session: Session, will: Will | None) -> None:
        self.clients.gone(channel, session, will)

    def session_ended(self, session: Session) -> None:
        """Nothing of it is left."""

    # What clients may do.

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[bool], None]
    ) -> int:
        return ALLOWED

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        return False

    def authorization_changed(self) -> None:
        """Whatever clients were allowed before, they are to be asked about again."""
        for connection in self.engine.connections:
            if connection is not None and connection.state == CONNECTED:
                connection.allowed = None
                connection.must_authorize = self.clients.must_authorize(connection.principal)

    def intercept(self, channel: Channel, message: Publish) -> Publish | None:
        return message

    def subscribing(self, channel: Channel, request: Request) -> bytes:
        return request.filter

    def violated(self, channel: Channel, error: PacketError) -> None:
        self.clients.violated(channel, error)

    # Subscriptions.

    def is_routed(self, filter: bytes) -> bool:
        return self.routes.has(filter)

    def routed(self, subscribing: Subscribing) -> None:
        if subscribing.filters:
            self.routes.put(subscribing.filters, partial(self._routed, subscribing))
        else:
            self._routed(subscribing, Reason.SUCCESS)

    def _routed(self, subscribing: Subscribing, reason: int) -> None:
        if reason < 0x80 and subscribing.retained:
            self._spawn(self._see_retained(subscribing))
        else:
            subscribing.finish(reason)
            self.engine.soon()

    async def _see_retained(self, subscribing: Subscribing) -> None:
        """While the log is away SUBACK waits for a moment only; the retained messages then come when it is back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RETAINED_SEEN_MAX_S):
                subscribing.saw_retained = await self._caught_up(RETAINED)
        subscribing.finish(Reason.SUCCESS)
        self.engine.soon()

    def unsubscribe(self, channel: Channel, session: Session, filters: list[bytes]) -> list[int]:
        return self.sessions.unsubscribe(session, filters)

    def unrouted(self, filters: list[bytes]) -> None:
        self.routes.delete(filters)

    def _route_all(self, filters: list[bytes], done: Callable[[int], None]) -> None:
        missing = [filter for filter in filters if not self.routes.has(filter)]
        if missing:
            self.routes.put(missing, done)
        else:
            done(Reason.SUCCESS)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.feeds.owe(subscriptions, saw_all)

    # Messages.

    def log(self, inbound: Inbound) -> None:
        self._spawn(self._log_then(inbound))

    async def _log_then(self, inbound: Inbound) -> None:
        inbound.logged(await self._retain(inbound.message))

    def publish(self, message: Publish, session: Session) -> None:
        self._spawn(self._publish(message))

    async def _publish(self, message: Publish) -> None:
        if message.retain:
            await self._retain(message)
        fan = self.router.route(message.topic).fanout
        self.router.forward(fan, message, _nobody_waits)
        self.router.deliver(fan, message, None)
        self.engine.soon()

    async def _retain(self, message: Publish) -> int:
        """Write, then see every route that was written before: the reason code for the publisher."""
        payload = message.payload()
        if payload:
            expires_ms = 0 if message.expiry_s == NO_EXPIRY else time.time_ns() // 1_000_000 + message.expiry_s * 1000
            row = RetainedMessage(payload, message.qos, message.properties, message.version, expires_ms)
            op = MESSAGES.put(message.topic, row)
        else:
            op = MESSAGES.delete(message.topic)  # [MQTT-3.3.1-6]
        written = self.rlog.submit(RETAINED, [op])
        await asyncio.wait([written])
        reason = _reason(written)
        if reason == Reason.SUCCESS and not await self._caught_up(ROUTE):
            return Reason.UNSPECIFIED_ERROR
        return reason

    async def _caught_up(self, shard: str) -> bool:
        try:
            await self.rlog.catch_up(shard)
        except Exception as error:
            log.warning("shard %s: %s", shard, error)
            return False
        return True

    def _forwarded(self, incarnation: str, version: int, chunk: bytes) -> None:
        try:
            forwarded.take(self.router, version, chunk)
        except PacketError as error:
            log.error("%s forwarded what can't be delivered: %s", incarnation, error)
        self.engine.soon()

    def _peer_drained(self, peer: Peer) -> None:
        self.router.release(peer)
        self.engine.soon()

    # Life.

    async def watch_sessions(self) -> None:
        """Publish wills that are due and end sessions whose clients stayed away, for as long as the node lives."""
        while True:
            await asyncio.sleep(SESSIONS_TICK_S)
            self.clients.expired(self.sessions.tick(time.monotonic()))
            self.engine.soon()

    async def sample_lag(self) -> None:
        """Lag events for the nightly report, for as long as the node lives; and another try at routes in doubt."""
        while True:
            await asyncio.sleep(LAG_SAMPLE_INTERVAL_S)
            self.routes.delete_again()
            at_ms = time.time_ns() // 1_000_000
            lags = ((shard, *self.rlog.lag(shard)) for shard in SHARDS)
            samples = [(at_ms, self.name, shard, entries, round(ms)) for shard, entries, ms in lags]
            self.cluster.hand_events("lag", samples)

    async def close_clients(self) -> None:
        """Send every client away; a 5.0 client hears 0x8B. Returns when their wills are on their way."""
        self.state = "draining"
        self.engine.stop_accepting()
        for connection in list(self.engine.connections):
            if connection is not None:
                connection.close(Reason.SERVER_SHUTTING_DOWN)
        self.engine.end_turn()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=WILLS_MAX_S)
            self.engine.end_turn()

    def _connection_event(self, kind: str, client_id: bytes, reason: int, version: int) -> None:
        at_ms = time.time_ns() // 1_000_000
        self.cluster.hand_events("connections", [(at_ms, self.name, kind, client_id.decode(), int(reason), version)])

    def _local_status(self) -> LocalStatus:
        return LocalStatus(
            connections=self.counters.connections,
            routes=len(self.rlog.tables.routes),
            ready=self.state == "ready",
            draining=self.draining(),
        )

    def _holders(self, filter: bytes) -> Collection[str]:
        return self.rlog.tables.routes.nodes(filter)

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # NodeView.

    def ready(self) -> tuple[bool, str]:
        return self.state in ("ready", "draining"), self.state

    def draining(self) -> bool:
        return self.state == "draining"

    def nodes(self) -> Sequence[NodeRow]:
        return [
            NodeRow(
                name=view.name,
                incarnation=view.incarnation,
                role=view.role,
                host=view.host,
                mqtt_port=view.mqtt_port or None,
                connections=view.connections,
                routes=view.routes,
                lag_entries=view.lag_entries,
                ready=view.ready,
                draining=view.draining,
                version=view.version,
            )
            for view in self.cluster.nodes()
        ]

    def status(self) -> NodeStatus:
        lags = {shard: self.rlog.lag(shard) for shard in SHARDS}
        return NodeStatus(
            name=self.name,
            incarnation=self.incarnation,
            role=self.role,
            version=__version__,
            build=build.kind(),
            uptime_s=time.monotonic() - self._started_s,
            leader=next((view.incarnation for view in self.cluster.nodes() if view.leader), None),
            shards=[
                ShardStatus(shard=shard, applied=str(self.rlog.applied(shard)), lag_entries=entries, lag_ms=ms)
                for shard, (entries, ms) in lags.items()
            ],
        )

    def samples(self) -> Sequence[Sample]:
        return [
            *counter_samples(self.counters),
            Sample("flockmq_sessions", self.counters.connections + self.counters.sessions_away),
            Sample("flockmq_routes", len(self.rlog.tables.routes)),
            Sample("flockmq_retained_messages", len(self.retained.index)),
            Sample("flockmq_queue_length", self.homes.attaching, ("attaches",)),
            Sample("flockmq_queue_length", self.cluster.resend_messages, ("resend_messages",)),
            Sample("flockmq_queue_length", self.rlog.pending_bytes, ("log_pending_bytes",)),
            Sample("flockmq_forward_dropped_bytes", self.cluster.dropped_bytes),
            *(
                Sample(name, value, (peer,))
                for peer, traffic in self.cluster.traffic().items()
                for name, value in (
                    ("flockmq_link_sent_bytes", traffic.sent_bytes),
                    ("flockmq_link_received_bytes", traffic.received_bytes),
                    ("flockmq_link_queue_bytes", traffic.queue_bytes),
                )
            ),
        ]


def _reason(done: asyncio.Future[StreamId]) -> int:
    """What a write came to, as a reason code."""
    error = None if done.cancelled() else done.exception()
    if error is None:
        return Reason.UNSPECIFIED_ERROR if done.cancelled() else Reason.SUCCESS
    log.warning("%s", error)
    return Reason.QUOTA_EXCEEDED if isinstance(error, LogFull) else Reason.UNSPECIFIED_ERROR


def _nobody_waits() -> None:
    """A will's publisher is gone."""
