"""One SUBSCRIBE on its way: authorized, put into the router, routed by the cluster, answered, given what is retained.

What always holds: nothing behind a SUBSCRIBE is read while somebody else is asked whether it is allowed; SUBACK is sent
when this node's own table routes by the filters [MQTT-3.8.4-1], and has all that was retained before: so what is
published behind the SUBACK comes once, live, and not as a retained message too; a filter that the cluster did not take
is out of the router again, and its reason code says so: unless a later SUBSCRIBE of the same filter took its place,
which gets an answer of its own. An exclusive filter is claimed in the log before it is put into the router.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Subscribe
from flockmq.mqtt.packets import Subscription as Request
from flockmq.mqtt.properties import subscription_identifier
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive, is_shared, matching
from flockmq.routing.matcher import ShapeLimitError, has_wildcard, shape_of
from flockmq.session.port import ALLOWED, ASKED, SUBSCRIBE
from flockmq.session.session import Session
from flockmq.session.subscription import Subscription

if TYPE_CHECKING:
    from flockmq.session.channel import Channel

_UNDECIDED: Final = -1


class _Asked:
    """One filter that somebody is asked about."""

    __slots__ = ("position", "subscribing")

    def __init__(self, subscribing: Subscribing, position: int) -> None:
        self.subscribing = subscribing
        self.position = position

    def decided(self, allowed: bool) -> None:
        self.subscribing.decided(self.position, allowed)


class Subscribing:
    """`filters` are those that need a route, `made` their subscriptions; `retained` the subscriptions that are owed
    retained messages; `saw_retained`: the node has all that was retained when the routes were written.

    A `packet` with packet id 0 is the node's own: nobody is asked about it, and nothing is answered.
    """

    __slots__ = (
        "_asked",
        "_filters",
        "_waits",
        "channel",
        "filters",
        "made",
        "packet",
        "reasons",
        "retained",
        "saw_retained",
        "session",
    )

    def __init__(self, channel: Channel, session: Session, packet: Subscribe) -> None:
        self.channel = channel
        self.session = session
        self.packet = packet
        self.reasons: list[int] = []
        self.filters: list[bytes] = []
        self.made: list[Subscription] = []
        self.retained: list[Subscription] = []
        self.saw_retained: bool = False
        self._filters: list[bytes] = []
        self._asked: int = 0
        self._waits: bool = False

    def start(self) -> None:
        for request in self.packet.subscriptions:
            self._judge(request)
        if self._asked:
            self.channel.pause()
        else:
            self._go()

    def _judge(self, request: Request) -> None:
        """Whether the client may have the filter that it says."""
        channel = self.channel
        position = len(self.reasons)
        self.reasons.append(_UNDECIDED)
        self._filters.append(request.filter)
        if channel.must_authorize and self.packet.packet_id:
            asked = _Asked(self, position)
            verdict = channel.port.authorize(channel, SUBSCRIBE, request.filter, request.qos, False, asked.decided)
            if verdict == ASKED:
                self._asked += 1
            elif verdict != ALLOWED:
                self._deny(position)

    def _deny(self, position: int) -> None:
        channel = self.channel
        self.reasons[position] = Reason.NOT_AUTHORIZED
        if channel.port.denied(channel, SUBSCRIBE, self._filters[position]):
            channel.close(Reason.NOT_AUTHORIZED)

    def decided(self, position: int, allowed: bool) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        if not allowed:
            self._deny(position)
        self._asked -= 1
        if self._asked == 0 and not channel.has_ended():
            channel.unpause()
            self._go()
        channel.port.flush_soon()

    def _go(self) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        if channel.router.intercepts_subscriptions and self.packet.packet_id:
            self._rewrite()
        claimed: dict[bytes, None] = {}
        if self.session.limits.exclusive_subscription:
            for position, filter in enumerate(self._filters):
                if is_exclusive(filter) and self.reasons[position] == _UNDECIDED:
                    claimed[filter] = None
        if claimed:
            channel.pause()
            channel.port.claim(self, list(claimed))
        else:
            self._subscribe_all()

    def _rewrite(self) -> None:
        """What the filters that the client may have really are."""
        for position, request in enumerate(self.packet.subscriptions):
            if self.reasons[position] == _UNDECIDED:
                filter = self.channel.port.subscribing(self.channel, request)
                if filter:
                    self._filters[position] = filter
                else:
                    self.reasons[position] = Reason.NOT_AUTHORIZED

    def claimed(self, refused: dict[bytes, int]) -> None:
        """The exclusive filters are this client's, but those refused, each for its reason."""
        channel = self.channel
        granted: list[bytes] = []
        for position, filter in enumerate(self._filters):
            if self.reasons[position] == _UNDECIDED and is_exclusive(filter):
                if filter in refused:
                    self.reasons[position] = refused[filter]
                else:
                    granted.append(filter)
        if not channel.has_ended():
            channel.unpause()
            self._subscribe_all()
            channel.port.flush_soon()
        unused = [filter for filter in granted if self.session.subscription(filter) is None]
        if unused:
            channel.port.unrouted(unused)

    def _subscribe_all(self) -> None:
        channel = self.channel
        identifier = None if self.packet.properties is None else self.packet.properties.subscription_identifier
        identifiers = b"" if identifier is None else subscription_identifier(identifier)
        for position, request in enumerate(self.packet.subscriptions):
            if self.reasons[position] == _UNDECIDED:
                self.reasons[position] = self._subscribe(request, self._filters[position], identifiers)
        if self.filters or self.retained:
            self._waits = True
            channel.subscribe_waits()
            channel.port.routed(self)
        else:
            self.finish(Reason.SUCCESS)

    def _subscribe(self, request: Request, filter: bytes, identifiers: bytes) -> int:
        """Put one subscription into the router, in the place of an older one with its filter [MQTT-3.8.4-3]."""
        session = self.session
        limits = session.limits
        shared = is_shared(filter)
        if shared and not limits.shared_subscription:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if is_exclusive(filter) and not limits.exclusive_subscription:
            return Reason.TOPIC_FILTER_INVALID
        if matching(filter).count(b"/") >= limits.max_topic_levels:
            return Reason.TOPIC_FILTER_INVALID
        wild = has_wildcard(filter)
        if wild and not limits.wildcard_subscription:
            return Reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
        router = self.channel.router
        qos = min(request.qos, limits.max_qos_allowed)
        subscription = Subscription(session, filter, qos, request.no_local, request.retain_as_published, identifiers)
        older = session.subscription(filter)
        if older is None and session.subscription_count() >= limits.max_subscriptions:
            return Reason.QUOTA_EXCEEDED
        if wild and not session.may_have_shape(shape_of(filter)):
            return Reason.QUOTA_EXCEEDED
        try:
            router.add(subscription)
        except ShapeLimitError:
            return Reason.QUOTA_EXCEEDED
        if older is not None:
            router.remove(older)
        session.add_subscription(subscription)
        if older is None:
            router.counters.subscriptions += 1
        if not self.channel.port.is_routed(filter):
            self.filters.append(filter)
            self.made.append(subscription)
        if shared:
            return qos  # which gets no retained messages [section 4.8.2]
        if request.retain_handling == 0 or (request.retain_handling == 1 and older is None):
            self.retained.append(subscription)
        return qos

    def finish(self, reason: int) -> None:
        """The cluster routes by the filters, or refused them with a reason ≥ 0x80."""
        channel = self.channel
        if reason >= 0x80:
            gone = [made.filter for made in self.made if self.session.subscription(made.filter) is made]
            channel.port.unsubscribe(channel, self.session, gone)
        if channel.has_ended():
            return
        if self._waits:
            channel.subscribe_answered()
        if reason >= 0x80:
            refused = set(self.filters)
            for position, filter in enumerate(self._filters):
                if filter in refused:
                    self.reasons[position] = reason
            self.retained = [subscription for subscription in self.retained if subscription.filter not in refused]
        if channel.router.intercepts_subscriptions:
            for position, filter in enumerate(self._filters):
                if self.reasons[position] < 0x80:
                    channel.port.subscribed(channel, filter, self.reasons[position])
        if self.packet.packet_id:
            channel.answer(encode.suback(channel.protocol_version, self.packet.packet_id, self.reasons))
        if self.retained:
            channel.port.send_retained(self.retained, self.saw_retained)
