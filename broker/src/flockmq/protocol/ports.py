"""The interfaces that a connection uses of its node: `NodePort` and its parts.

No method may block. Answers come as calls on the channel, at once or in a later event-loop iteration.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Auth, Connect
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession
from flockmq.session.local_session import LocalSession


@mypyc_attr(allow_interpreted_subclasses=True)
class AccessPort:
    """Authentication."""

    def admit(self, channel: Channel, connect: Connect) -> None:
        """Authenticate the client, and make this the only connection of its client id. Calls `channel.admitted` or
        `channel.refuse`.
        """
        raise NotImplementedError

    def continued(self, channel: Channel, packet: Auth) -> None:
        """Continue an enhanced authentication with an AUTH packet, during CONNECT or a re-authentication. Calls
        `channel.challenged`, and finally `channel.admitted`, `channel.reauthenticated`, `channel.refuse` or
        `channel.close`.
        """
        raise NotImplementedError

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        """The client was denied something. Returns True if it must be disconnected for that."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class AuthorizationPort:
    """Authorization."""

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        """Returns DENIED, ALLOWED or ASKED. For ASKED, `done` is called once, in a later turn, with DENIED, ALLOWED or
        UNDECIDED. Called only for clients that `must_authorize`.
        """
        raise NotImplementedError

    def must_wait(self, channel: Channel, go_on: Callable[[], None]) -> bool:
        """True if the client's share of this turn is used up. Then `go_on` is called in a later turn, unless the
        connection has ended by then.
        """
        raise NotImplementedError

    def rule_changes(self) -> int:
        """How often rules have changed."""
        raise NotImplementedError

    def authorize_again(self, channel: Channel) -> None:
        """Authorize the client's subscriptions again: rules changed while it subscribed."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class HookPort:
    """Rewrite rules and plugins."""

    def intercept(self, channel: Channel, message: Publish) -> Publish | int:
        """Process a message that matches one of the router's `intercepts`. Returns the message to publish instead, or
        the reason code with which it is dropped.
        """
        raise NotImplementedError

    def subscribing(self, channel: Channel, request: Request) -> bytes:
        """Returns the filter to subscribe to instead of the authorized one; b"": refused. This and the next two are
        called only while `router.intercepts_subscriptions`.
        """
        raise NotImplementedError

    def subscribed(self, channel: Channel, filter: bytes, qos: int) -> None:
        """The client has this subscription; SUBACK follows."""
        raise NotImplementedError

    def unsubscribing(self, channel: Channel, filter: bytes) -> bytes:
        """Returns the filter to unsubscribe from instead of the one in UNSUBSCRIBE."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class FiltersPort:
    """The cluster's routes to this node."""

    def is_routed(self, filter: bytes) -> bool:
        """True if this node's own table has the route of the filter to this node."""
        raise NotImplementedError

    def claim(
        self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None], user: bytes
    ) -> None:
        """Claim exclusive filters in the cluster for this client, in the user's turn. `done` gets the refused filters
        with reason codes.
        """
        raise NotImplementedError

    def unrouted(self, filters: list[bytes]) -> None:
        """No client of this node subscribes to these filters any more."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class NodePort:
    """The node of a connection."""

    def __init__(
        self,
        access: AccessPort,
        authorization: AuthorizationPort,
        hooks: HookPort,
        filters: FiltersPort,
        flush_soon: Callable[[], None],
    ) -> None:
        """`flush_soon`: something was put outside a turn."""
        self.access = access
        self.authorization = authorization
        self.hooks = hooks
        self.filters = filters
        self.flush_soon = flush_soon

    def refused(self, channel: Channel, reason: int) -> None:
        """CONNACK refused the client. Nothing to do by default."""

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        """A connection ended: its session ends or goes offline, and its will is published now or later."""
        raise NotImplementedError

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        """Remove the subscriptions with these filters. Returns the reason codes for UNSUBACK."""
        raise NotImplementedError

    def takes_filters(self) -> bool:
        """False: no node has memory for new subscriptions."""
        return True

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None], user: bytes) -> None:
        """Add routes of these filters to this node, in the user's turn. If `with_retained`, then wait until this node
        has all retained messages. `done` gets the worst reason code, and whether all retained messages are here.
        """
        raise NotImplementedError

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Send retained messages to new subscriptions of one session, as fast as the client reads. `saw_all`: this node
        has all of them; later changes are delivered live.
        """
        raise NotImplementedError

    def remember(self, pending: PendingPublish) -> None:
        """Have the owner of the session store the id of a QoS 2 message. Calls `pending.remembered`, or
        `pending.logged` with the reason of a refusal. The owner gets the messages of one connection in order.
        """
        raise NotImplementedError

    def log(self, pending: PendingPublish) -> None:
        """Write a message to the log before it is delivered: a retained one (this node must then have all earlier
        routes), or a delayed one. Calls `pending.logged`.
        """
        raise NotImplementedError

    def violated(self, channel: Channel, error: PacketError) -> None:
        """The client violated the protocol and is being disconnected: log it."""
        raise NotImplementedError
