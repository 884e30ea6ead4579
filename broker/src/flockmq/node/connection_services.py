"""The services of a node for its connections (`NodePort`), and the end of clean sessions.

Invariants: SUBACK is sent after this node's tables have the route. A retained message is matched after it is in the log
and this node has seen every route that was written before it. So either the SUBSCRIBE finds the retained message, or
the retained PUBLISH finds the subscription.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from flockmq.auth.stored_authorization import SentMessage
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed, matching
from flockmq.node.access_control import AccessControl
from flockmq.node.authorization_queue import AuthorizationQueue
from flockmq.node.connections import Connections
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.node.plugin_hooks import PluginHooks
from flockmq.node.sys_topics import SysTopics
from flockmq.node.unattended_publishing import LeftMessages
from flockmq.protocol.channel import Channel
from flockmq.protocol.clean_session_end import CleanSessionEnd, CleanSessionEndPort
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.protocol.ports import NodePort
from flockmq.publishing.log_queue import OVER_QUOTA, LogQueue, QueuedRow
from flockmq.publishing.retained_feed import RetainedSender
from flockmq.publishing.retained_log import RetainedLog
from flockmq.rlog.retained_order import author_of
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import RETAINED, ROUTE
from flockmq.routes.filter_registration import FilterRegistration
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession
from flockmq.session_rpc.remote_sessions import RemoteSessions


class CleanSessionEndHandler(CleanSessionEndPort):
    """Ends clean sessions: publishes the will, removes routes, and dispatches unacknowledged shared messages again.
    `clients` is set before use."""

    def __init__(
        self,
        router: Router,
        plugin_hooks: PluginHooks,
        filters: FilterRegistration,
        left: LeftMessages,
    ) -> None:
        self.clients: Connections
        self._router = router
        self._plugin_hooks = plugin_hooks
        self._filters = filters
        self._left = left

    def publish(self, will: Will, session: LocalSession) -> None:
        self._left.publish_will(will, session)

    def unrouted(self, session: LocalSession, filters: list[bytes]) -> None:
        self._filters.unrouted(filters)

    def unrouted_later(self, session: LocalSession, filters: list[bytes]) -> None:
        """If the client has a new session, that may be claiming exclusive filters: only routes are removed. Claims that
        it doesn't use are found by `ExclusiveClaims.look`."""
        is_back = self.clients.clean_session_of(session.client_id) is not None
        self._filters.unrouted([matching(filter) for filter in filters] if is_back else filters)

    def session_ended(self, session: LocalSession) -> None:
        shared = self._router.shared
        shared.redispatch(session.unacknowledged_shared())
        self._plugin_hooks.session_ended(session.client_id)


MakeLogQueue = Callable[
    [Callable[[PendingPublish], QueuedRow | int], Callable[[PendingPublish, int], None]], LogQueue[PendingPublish]
]


class ConnectionServices(NodePort):
    """`on_refused` gets each refused CONNECT and its reason code. `flush` makes the reactor write queued output.
    `spawn` runs a coroutine as a task."""

    def __init__(
        self,
        clients: Connections,
        sessions: CleanSessionEnd,
        remote_sessions: RemoteSessions,
        access: AccessControl,
        authorization: AuthorizationQueue,
        plugin_hooks: PluginHooks,
        filters: FilterRegistration,
        left: LeftMessages,
        rlog: Rlog,
        retaining: RetainedLog,
        log_queue: MakeLogQueue,
        feeds: RetainedSender,
        shortage: MemoryShortage,
        sys_topics: SysTopics,
        on_refused: Callable[[Channel, int], None],
        spawn: Callable[[Awaitable[None]], None],
        flush: Callable[[], None],
    ) -> None:
        super().__init__(access, authorization, plugin_hooks, filters, flush)
        self._clients = clients
        self._sessions = sessions
        self._remote_sessions = remote_sessions
        self._access = access
        self._plugin_hooks = plugin_hooks
        self._filters = filters
        self._left = left
        self._rlog = rlog
        self._retaining = retaining
        self.log_queue = log_queue(self._row, self._logged)
        self._feeds = feeds
        self._shortage = shortage
        self._sys_topics = sys_topics
        self._on_refused = on_refused
        self._spawn = spawn

    # Connections.

    def refused(self, channel: Channel, reason: int) -> None:
        self._on_refused(channel, reason)
        self._plugin_hooks.refused(channel, reason)

    def violated(self, channel: Channel, error: PacketError) -> None:
        self._clients.violated(channel, error)

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        if will is not None and not self._access.may_leave(channel, will):
            self._left.drop(session.client_id, will.message.topic)
            will = None
        self._access.gone(channel, session.client_id)
        if not session.is_remote() and not self._clients.registrations.has_will(channel.token):
            will = self._plugin_hooks.leaving(channel, will)
        self._clients.gone(channel, session, will)

    # Subscriptions.

    def takes_filters(self) -> bool:
        return self._shortage.takes_filters

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None], user: bytes) -> None:
        self._filters.route(filters, partial(self._routed, len(filters) > 0, with_retained, done), user)

    def _routed(self, is_written: bool, with_retained: bool, done: Callable[[int, bool], None], reason: int) -> None:
        """If this SUBSCRIBE wrote a route, reading it may already have shown that this node has all retained messages
        of that time. Otherwise wait for them."""
        saw_all = is_written and self._rlog.has_all(RETAINED, when=ROUTE)
        if reason < 0x80 and with_retained and not saw_all:
            self._spawn(self._see_retained(done))
        else:
            done(reason, saw_all)
            self.flush_soon()

    async def _see_retained(self, done: Callable[[int, bool], None]) -> None:
        done(Reason.SUCCESS, await self._retaining.seen())
        self.flush_soon()

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self._sys_topics.give(subscriptions)
        self._feeds.start(subscriptions, saw_all)

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        return unsubscribe(self._sessions, self._plugin_hooks, channel, session, filters)

    # Messages that the owner or the log must store first.

    def remember(self, pending: PendingPublish) -> None:
        token = pending.channel.token if isinstance(pending.channel, Channel) else None
        if isinstance(token, int):
            self._remote_sessions.remember(pending, token)
        else:
            pending.remembered()

    def log(self, pending: PendingPublish) -> None:
        channel = pending.channel
        user = channel.principal.username or channel.client_id()
        self.log_queue.put(user, pending, pending.size_bytes)

    def _row(self, pending: PendingPublish) -> QueuedRow | int:
        """What the log gets for a message."""
        message, channel = pending.message, pending.channel
        if isinstance(channel, Channel) and isinstance(channel.token, int):
            message.author = author_of(channel.client_id(), channel.token, is_will=False)
        if is_delayed(message.topic):
            authorization = self._access.authorization(channel, sent_message(pending.said), message.topic)
            return self._left.delayed_row(message, authorization)
        message.user = channel.principal.username
        return self._retaining.row(message)

    def _logged(self, pending: PendingPublish, reason: int) -> None:
        message = pending.message
        deliver = not is_delayed(message.topic) and not self._retaining.is_overtaken(message)
        pending.logged(Reason.QUOTA_EXCEEDED if reason == OVER_QUOTA else reason, deliver=deliver)


def sent_message(message: Publish) -> SentMessage:
    return SentMessage(message.topic, message.qos, message.retain)


def unsubscribe(
    sessions: CleanSessionEnd, plugin_hooks: PluginHooks, channel: Channel, session: LocalSession, filters: list[bytes]
) -> list[int]:
    """As `NodePort.unsubscribe`."""
    reasons = sessions.unsubscribe(session, filters)
    for filter, reason in zip(filters, reasons, strict=True):
        if reason == Reason.SUCCESS and not channel.has_ended():
            plugin_hooks.unsubscribed(channel, filter)
    return reasons
