"""What a connection asks of its node: `NodePort`, and the parts that it leads to.

Nothing here may block. Answers come back as calls on the channel, at once or in a later turn.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import mypyc_attr

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, Will
from flockmq.mqtt.packets import Auth, Connect, Subscribe
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import Inbound
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession, SubscribeChange
from flockmq.session.local_session import LocalSession


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingSubscribe(SubscribeChange):
    """One SUBSCRIBE on its way.

    A `packet` with packet id 0 is the node's own: it is authorized, but neither changed nor answered.
    """

    def __init__(self, channel: Channel, session: ClientSession, packet: Subscribe) -> None:
        self.channel = channel
        self.session = session
        self.packet = packet

    def judge(self) -> None:
        """Judge filter by filter: all of them, or until enough was judged in this turn."""
        raise NotImplementedError(type(self).__name__)

    def leave_off(self) -> None:
        """The client has left: what isn't judged yet isn't granted."""
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class AccessPort:
    """Who the client is."""

    def admit(self, channel: Channel, connect: Connect) -> None:
        """Authenticate, and make this the one connection of its client id: `channel.admitted` or `channel.refuse`."""
        raise NotImplementedError

    def continued(self, channel: Channel, packet: Auth) -> None:
        """An AUTH packet, of the exchange that CONNECT began or of a re-authentication: `channel.challenged`, and in
        the end `channel.admitted`, `channel.reauthenticated`, `channel.refuse` or `channel.close`.
        """
        raise NotImplementedError

    def denied(self, channel: Channel, action: int, topic: bytes) -> bool:
        """The client tried what it may not; True: it is to be disconnected for it."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class JudgePort:
    """What a client may do."""

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        """DENIED, ALLOWED, or ASKED: then `done` is called once, in a later turn, with DENIED, ALLOWED or UNTOLD.
        Asked for clients that `must_authorize`.
        """
        raise NotImplementedError

    def rests(self, subscribing: PendingSubscribe) -> bool:
        """Enough was judged in this turn: `subscribing.judge` is called in a later one."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class HookPort:
    """What rules and plugins make of what a client says."""

    def intercept(self, channel: Channel, message: Publish) -> Publish | int:
        """A message on one of the router's `intercepts`: what is to be published instead, or the reason code with
        which it goes nowhere.
        """
        raise NotImplementedError

    def subscribing(self, channel: Channel, request: Request) -> bytes:
        """The filter that is subscribed to in the place of the one asked for, which is allowed; b"": refused. Called,
        as are the next two, while `router.intercepts_subscriptions`.
        """
        raise NotImplementedError

    def subscribed(self, channel: Channel, filter: bytes, qos: int) -> None:
        """The client has this subscription, and is about to hear of it."""
        raise NotImplementedError

    def unsubscribing(self, channel: Channel, filter: bytes) -> bytes:
        """The filter that is dropped in the place of the one that UNSUBSCRIBE says."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class FiltersPort:
    """What the log says of this node's filters."""

    def is_routed(self, filter: bytes) -> bool:
        """This node's own table routes by the filter to this node."""
        raise NotImplementedError

    def claim(self, client_id: bytes, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        """Have the cluster say whether the client may have these exclusive filters, alone: `done` gets those that are
        refused, with their reasons.
        """
        raise NotImplementedError

    def unrouted(self, filters: list[bytes]) -> None:
        """No client of this node subscribes to these filters any more."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class NodePort:
    """The node of a connection."""

    def __init__(self, access: AccessPort, judge: JudgePort, hooks: HookPort, filters: FiltersPort) -> None:
        self.access = access
        self.judge = judge
        self.hooks = hooks
        self.filters = filters

    def refused(self, channel: Channel, reason: int) -> None:
        """CONNACK says no: nothing is to be done."""

    def gone(self, channel: Channel, session: ClientSession, will: Will | None) -> None:
        """A connection ended: its session ends or waits, and its will is published, now or later."""
        raise NotImplementedError

    def unsubscribe(self, channel: Channel, session: LocalSession, filters: list[bytes]) -> list[int]:
        """Drop the subscriptions with these filters; for each the reason code of UNSUBACK."""
        raise NotImplementedError

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None]) -> None:
        """Have the cluster route these filters to this node, and, where something is owed, see all that is retained by
        then: `done` gets the worst reason code, and whether all was seen.
        """
        raise NotImplementedError

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        """Give new subscriptions of one session what is retained, as fast as their client reads. `saw_all`: this node
        has it; what it hears of from now on is delivered live.
        """
        raise NotImplementedError

    def remember(self, inbound: Inbound) -> None:
        """Have the owner of its session remember the packet id of a QoS 2 message: then `inbound.remembered`, or
        `inbound.logged` with a reason why not. It is told of those of one connection in their order.
        """
        raise NotImplementedError

    def log(self, inbound: Inbound) -> None:
        """Write a message that must be in the log before it is delivered, then `inbound.logged`: a retained one (having
        seen all earlier routes), or one for `$delayed/…`.
        """
        raise NotImplementedError

    def flush_soon(self) -> None:
        """Something was put outside a turn: have it written."""
        raise NotImplementedError

    def violated(self, channel: Channel, error: PacketError) -> None:
        """The client broke the protocol and is being closed: say so in the log."""
        raise NotImplementedError
