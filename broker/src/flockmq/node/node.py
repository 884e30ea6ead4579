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

from flockmq.auth.service import Auth
from flockmq.bounds import (
    AUTHORIZATION_SLICE_CLIENTS,
    HELD_LINES_PER_TURN,
    LAG_SAMPLE_INTERVAL_S,
    RETAINED_EXPIRED_MAX,
    RETAINED_SEEN_MAX_S,
    SESSIONS_TICK_S,
    WILLS_MAX_S,
)
from flockmq.cluster.service import Cluster
from flockmq.cluster.views import LocalStatus
from flockmq.home.service import Homes
from flockmq.listeners.engine import Engine
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.packets import Auth as AuthPacket
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.packets import Subscription as Request
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.node.access import Access
from flockmq.node.clients import Clients
from flockmq.node.delayed import Delayed, is_delayed, publish_everywhere
from flockmq.node.exclusive import Exclusive
from flockmq.node.handover import Handovers
from flockmq.node.hooking import Hooking
from flockmq.node.overview import Overview
from flockmq.node.remote import RemoteRoutes
from flockmq.node.retained import Feeds, Retained
from flockmq.node.routes import OwnRoutes
from flockmq.node.shared import OwnShares, RemoteShares
from flockmq.node.system import About, System
from flockmq.node.view import View
from flockmq.plugins.settings import SysTopics
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.errors import LogFull
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
    RetainedMessage,
)
from flockmq.session import forwarded
from flockmq.session.channel import CONNECTED, Channel
from flockmq.session.counters import Counters
from flockmq.session.inbound import Inbound
from flockmq.session.limits import Limits
from flockmq.session.opening import Will
from flockmq.session.port import NodePort
from flockmq.session.publish import NO_EXPIRY, Publish, publication
from flockmq.session.publisher import Publisher
from flockmq.session.router import Router
from flockmq.session.session import Session
from flockmq.session.sessions import Sessions
from flockmq.session.shared import SHARED
from flockmq.session.sink import Peer
from flockmq.session.subscribing import Subscribing
from flockmq.session.subscription import Subscription
from flockmq.telemetry.loop import LoopWatch
from flockmq.telemetry.metrics import Reasons

log: Final = logging.getLogger(__name__)


class Node(NodePort):
    """One per process; `view` is how others see it."""

    def __init__(
        self,
        role: str,
        name: str,
        limits: Limits,
        router: Router,
        cluster: Cluster,
        rlog: Rlog,
        hooking: Hooking,
        auth: Auth,
        sys_topics: SysTopics,
    ) -> None:
        self.role = role
        self.name = name
        self.incarnation = cluster.incarnation
        self.router = router
        self.counters: Counters = router.counters
        self.cluster = cluster
        self.rlog = rlog
        self.hooking = hooking
        self.view = View(self)
        self.overview = Overview(cluster, self.view.rlog)
        about = About(name, self.view.names, self.view.samples)
        self.system = System(sys_topics, about, router, self.flush_soon)
        self.refusals = Reasons("connects_refused", "before_connect")
        self.ends = Reasons("disconnects", "before_connack")
        self.loop_watch = LoopWatch()
        self.engine = Engine(router, self, limits)
        self.sessions = Sessions(router, self)
        self.clients = Clients(
            self.incarnation, self.sessions, router.counters, self.engine.soon, self._connection_event
        )
        self.homes = Homes(cluster, self.clients)
        self.clients.homes = self.homes
        self.handovers = Handovers(self.homes, self.sessions, router, limits, self._route_all, self.engine.soon)
        self.clients.handovers = self.handovers
        self.clients.watcher = self
        self.access = Access(
            auth,
            hooking,
            self.clients.authenticated,
            self.clients.by_id.get,
            self._connections,
            self.engine.soon,
        )
        self.clients.must_authorize = self.access.must_authorize
        auth.authorizer.on_change = self.authorization_changed
        hooking.on_change = self.authorization_changed
        self.homes.on_relay = self.handovers.heard
        self._limits = limits
        self.remote = RemoteRoutes(router, self.incarnation, cluster.peer)
        self.routes = OwnRoutes(self.incarnation, partial(rlog.submit, ROUTE), self._holders, router.has_local, _reason)
        self.remote_shares = RemoteShares(router, self.incarnation)
        self.shares = OwnShares(self.incarnation, partial(rlog.submit, ROUTE), router.shared.count, _reason)
        router.shared.me = self.incarnation
        router.shared.find_peer = cluster.peer
        router.shared.on_count = self.shares.changed
        self.exclusive = Exclusive(self.incarnation, partial(rlog.submit, ROUTE), _reason)
        self.delayed = Delayed(DelayedHost(self), _reason, time.time)
        self.retained = Retained()
        self.feeds = Feeds(self.retained, router, partial(self._caught_up, RETAINED), self.engine.soon)
        self.state = "starting"
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking_anew: asyncio.Task[None] | None = None
        self._rules_changed = False
        cluster.watch(rlog)  # first, because the cluster must know a member before its routes are placed
        rlog.on_change(NODES.name, self.remote.members)
        rlog.on_change(ROUTES.name, self.remote)
        rlog.on_change(MESSAGES.name, self.retained)
        rlog.on_change(SHARES.name, self.remote_shares)
        rlog.on_change(CLAIMS.name, self.exclusive.claims)
        rlog.on_change(DELAYED.name, self.delayed.schedule)
        self.remote.go_live()
        self.remote_shares.go_live()
        cluster.on_node_gone.append(self._node_gone)
        cluster.on_returned = self._returned
        cluster.on_forward = self._forwarded
        cluster.on_drained = self._peer_drained
        cluster.local_status = self._local_status
        cluster.freshness.on_change = self._stale

    def flush_soon(self) -> None:
        self.engine.soon()

    # Connections.

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.access.admit(channel, connect)

    def refused(self, channel: Channel, reason: int) -> None:
        self.refusals.note(reason)
        self.hooking.refused(channel, reason)

    def continued(self, channel: Channel, packet: AuthPacket) -> None:
        self.access.continued(channel, packet)

    def gone(self, channel: Channel, session: Session, will: Will | None) -> None:
        self.access.gone(channel, session.client_id)
        self.clients.gone(channel, session, self.hooking.leaving(channel, will))

    def connected(self, channel: Channel, connect: Connect, session: Session, is_present: bool) -> None:
        self.system.connected(channel, connect, session)
        self.hooking.connected(channel, session, is_present)
        self.access.connected(channel)

    def disconnected(self, channel: Channel, session: Session) -> None:
        self.ends.note(channel.close_reason)
        self.system.disconnected(channel)
        self.hooking.disconnected(channel)

    def taken_over(self, client_id: bytes) -> None:
        self.hooking.taken_over(client_id)

    def session_ended(self, session: Session) -> None:
        self.router.shared.redispatch(session)
        self.hooking.session_ended(session.client_id)

    # What clients may do.

    def authorize(
        self, channel: Publisher, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[bool], None]
    ) -> int:
        return self.access.authorize(channel, action, topic, qos, retain, done)

    def denied(self, channel: Publisher, action: int, topic: bytes) -> bool:
        return self.access.denied(channel, action, topic)

    def _connections(self) -> Sequence[Channel | None]:
        return self.engine.connections

    def authorization_changed(self) -> None:
        """Whatever clients were allowed before, they are to be asked about again: all of them within a few turns."""
        self._rules_changed = True
        if self._asking_anew is None:
            self._asking_anew = asyncio.ensure_future(self._ask_anew())

    async def _ask_anew(self) -> None:
        """All to the last, and again if the rules changed meanwhile: however fast they do, everybody has its turn."""
        try:
            while self._rules_changed:
                self._rules_changed = False
                connections = self.engine.connections
                for first in range(0, len(connections), AUTHORIZATION_SLICE_CLIENTS):
                    for connection in connections[first : first + AUTHORIZATION_SLICE_CLIENTS]:
                        if connection is not None and connection.state == CONNECTED:
                            connection.must_be_asked_about(self.clients.must_authorize(connection.principal))
                    await asyncio.sleep(0)
        finally:
            self._asking_anew = None

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
        return self.shares.has(filter) if is_shared(filter) else self.routes.has(matching(filter))

    def claim(self, subscribing: Subscribing, filters: list[bytes]) -> None:
        answers: dict[bytes, int] = {}
        for filter in filters:
            done = partial(self._claimed, subscribing, set(filters), answers, filter)
            self.exclusive.claim(matching(filter), subscribing.session.client_id, done)

    def _claimed(
        self, subscribing: Subscribing, filters: set[bytes], answers: dict[bytes, int], filter: bytes, reason: int
    ) -> None:
        answers[filter] = reason
        if answers.keys() == filters:
            subscribing.claimed({filter: reason for filter, reason in answers.items() if reason >= 0x80})

    def routed(self, subscribing: Subscribing) -> None:
        self._route(subscribing.filters, partial(self._routed, subscribing))

    def _route(self, filters: list[bytes], done: Callable[[int], None]) -> None:
        """Have the log route filters of any kind to this node; `done` gets the worst reason code."""
        shared = [filter for filter in filters if is_shared(filter)]
        others = [matching(filter) for filter in filters if not is_shared(filter)]
        if shared and others:
            both = _Both(done)
            self.shares.put(shared, both.done)
            self.routes.put(others, both.done)
        elif shared:
            self.shares.put(shared, done)
        elif others:
            self.routes.put(others, done)
        else:
            done(Reason.SUCCESS)

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
        reasons = self.sessions.unsubscribe(session, filters)
        for filter, reason in zip(filters, reasons, strict=True):
            if reason == Reason.SUCCESS and not channel.has_ended():
                self.hooking.unsubscribed(channel, filter)
        return reasons

    def unrouted(self, filters: list[bytes]) -> None:
        gone: list[bytes] = []
        for filter in filters:
            if is_exclusive(filter):
                self.exclusive.release(matching(filter))
            if not is_shared(filter) and not self.router.has_local(matching(filter)):
                gone.append(matching(filter))
        if gone:
            self.routes.delete(gone)

    def _route_all(self, client_id: bytes, filters: list[bytes], done: Callable[[int], None]) -> None:
        """The filters of a client whose session came here; what it had alone it has here too."""
        for filter in filters:
            if is_exclusive(filter):
                self.exclusive.claim(matching(filter), client_id, _nobody_asks)
        self._route([filter for filter in filters if not self.is_routed(filter)], done)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.system.give(subscriptions)
        self.feeds.owe(subscriptions, saw_all)

    # Messages.

    def log(self, inbound: Inbound) -> None:
        self._spawn(self._log_then(inbound))

    async def _log_then(self, inbound: Inbound) -> None:
        if is_delayed(inbound.message.topic):
            inbound.logged(await self.delayed.take(inbound.message), deliver=False)
        else:
            inbound.logged(await self._retain(inbound.message))

    def publish(self, message: Publish, session: Session) -> None:
        self.send(message)

    def send(self, message: Publish) -> None:
        """Publish what no connection waits for."""
        self._spawn(self._publish(message))

    def send_as_plugin(self, topic: bytes, payload: bytes, qos: int, retain: bool) -> None:
        self.send(publication(4, qos, retain, topic, payload, b""))

    async def _publish(self, message: Publish) -> None:
        if is_delayed(message.topic):
            await self.delayed.take(message)
            return
        if message.retain:
            await self._retain(message)
        fan = self.router.route(message.topic).fanout
        self.router.forward(fan, message, _nobody_waits)
        self.router.deliver(fan, message, None)
        self.engine.soon()

    def _stale(self, stale: bool) -> None:
        self.router.stale = stale
        if stale:
            log.warning("the tables may be old: QoS 1 and 2 wait")
        else:
            self._spawn(self._go_on())

    async def _go_on(self) -> None:
        """Match what waited while the tables were stale, some clients a turn."""
        more = True
        while more:
            more = self.router.go_on(HELD_LINES_PER_TURN)
            self.engine.soon()
            await asyncio.sleep(0)

    async def publish_due(self, message: Publish) -> bool:
        """As `_publish`, but False if it can't be matched now, or the log or a link has no room; it returns when the
        other nodes have it."""
        if self.router.stale:
            return False
        if message.retain and await self._retain(message) >= 0x80:
            return False
        return await publish_everywhere(self.router, message, self.engine.soon)

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

    def _node_gone(self, incarnation: str) -> None:
        self.router.shared.others_changed()

    def _returned(self, batches: list[tuple[int, bytes]]) -> None:
        self._spawn(self._share_again(batches))

    async def _share_again(self, batches: list[tuple[int, bytes]]) -> None:
        """Shared deliveries that a purged node never accepted, a batch a turn."""
        self.router.shared.others_changed()
        for version, chunk in batches:
            self.router.shared.returned(version & ~SHARED, chunk)
            self.engine.soon()
            await asyncio.sleep(0)

    def _peer_drained(self, peer: Peer) -> None:
        self.router.release(peer)
        self.engine.soon()

    def _delete_expired(self) -> None:
        """The leader takes retained messages that expired out of the log; nobody is given them meanwhile."""
        if not self.cluster.is_leader:
            return
        table = self.rlog.tables.messages
        topics = self.retained.expired(time.time_ns() // 1_000_000, RETAINED_EXPIRED_MAX)
        ops = [op for op in map(table.drop, topics) if op is not None]
        if ops:
            self.rlog.submit(RETAINED, ops).add_done_callback(_reason)

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
            self._delete_expired()
            self.exclusive.release_again()
            at_ms = time.time_ns() // 1_000_000
            lags = ((shard, *self.rlog.lag(shard)) for shard in SHARDS)
            samples = [(at_ms, self.name, shard, entries, round(ms)) for shard, entries, ms in lags]
            self.cluster.hand_events("lag", samples)

    async def close_clients(self) -> None:
        """Send every client away; a 5.0 client hears 0x8B or 0x9C. Returns when their wills are on their way."""
        self.state = "draining"
        self.engine.stop_accepting()
        for connection in list(self.engine.connections):
            if connection is not None:
                connection.send_away()
        self.sessions.publish_wills()
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
            draining=self.state == "draining",
        )

    def _holders(self, filter: bytes) -> Collection[str]:
        return self.rlog.tables.routes.nodes(filter)

    def _spawn(self, work: Awaitable[None]) -> None:
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

    async def caught_up(self) -> bool:
        return await self._node._caught_up(RETAINED)

    async def publish(self, message: Publish) -> bool:
        return await self._node.publish_due(message)


class _Both:
    """Two writes that have one answer: the worst of theirs."""

    def __init__(self, done: Callable[[int], None]) -> None:
        self._done = done
        self._first: int | None = None

    def done(self, reason: int) -> None:
        if self._first is None:
            self._first = reason
        else:
            self._done(max(self._first, reason))


def _nobody_asks(reason: int) -> None:
    """The session goes on as it was."""


def _reason(done: asyncio.Future[StreamId]) -> int:
    """What a write came to, as a reason code."""
    error = None if done.cancelled() else done.exception()
    if error is None:
        return Reason.UNSPECIFIED_ERROR if done.cancelled() else Reason.SUCCESS
    log.warning("%s", error)
    return Reason.QUOTA_EXCEEDED if isinstance(error, LogFull) else Reason.UNSPECIFIED_ERROR


def _nobody_waits() -> None:
    """A will's publisher is gone."""
