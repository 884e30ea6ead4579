"""One SUBSCRIBE on its way: checked, put into the router, routed by the cluster, answered, given what is retained.

What always holds: SUBACK is sent when this node's own table routes by the filters [MQTT-3.8.4-2], and has all that
was retained before: so what is published behind the SUBACK comes once, live, and not as a retained message too;
a filter that the cluster did not take is out of the router again, and its reason code says so: unless a later
SUBSCRIBE of the same filter took its place, which gets an answer of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.bounds import SUBSCRIPTIONS_MAX
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Subscribe
from flockmq.mqtt.packets import Subscription as Request
from flockmq.mqtt.properties import subscription_identifier
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import split_share
from flockmq.routing.matcher import ShapeLimitError
from flockmq.session.session import Session
from flockmq.session.subscription import Subscription

if TYPE_CHECKING:
    from flockmq.session.channel import Channel


class Subscribing:
    """`filters` are those that need a route, `made` their subscriptions; `retained` the subscriptions that are owed
    retained messages; `saw_retained`: the node has all that was retained when the routes were written.
    """

    __slots__ = ("_waits", "channel", "filters", "made", "packet", "reasons", "retained", "saw_retained", "session")

    def __init__(self, channel: Channel, session: Session, packet: Subscribe) -> None:
        self.channel = channel
        self.session = session
        self.packet = packet
        self.reasons: list[int] = []
        self.filters: list[bytes] = []
        self.made: list[Subscription] = []
        self.retained: list[Subscription] = []
        self.saw_retained: bool = False
        self._waits: bool = False

    def start(self) -> None:
        identifier = None if self.packet.properties is None else self.packet.properties.subscription_identifier
        identifiers = b"" if identifier is None else subscription_identifier(identifier)
        for request in self.packet.subscriptions:
            self.reasons.append(self._subscribe(request, identifiers))
        if self.filters or self.retained:
            self._waits = True
            self.channel.subscribe_waits()
            self.channel.port.routed(self)
        else:
            self.finish(Reason.SUCCESS)

    def _subscribe(self, request: Request, identifiers: bytes) -> int:
        """Put one subscription into the router, in the place of an older one with its filter [MQTT-3.8.4-3]."""
        if split_share(request.filter)[0]:
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        router = self.channel.router
        session = self.session
        subscription = Subscription(
            session, request.filter, request.qos, request.no_local, request.retain_as_published, identifiers
        )
        older = session.subscription(request.filter)
        if older is None and session.subscription_count() >= SUBSCRIPTIONS_MAX:
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
        if not self.channel.port.is_routed(request.filter):
            self.filters.append(request.filter)
            self.made.append(subscription)
        if request.retain_handling == 0 or (request.retain_handling == 1 and older is None):
            self.retained.append(subscription)
        return request.qos

    def finish(self, reason: int) -> None:
        """The cluster routes by the filters, or refused them with a reason ≥ 0x80."""
        channel = self.channel
        if channel.has_ended():
            return
        if self._waits:
            channel.subscribe_answered()
        if reason >= 0x80:
            channel.unsubscribe([filter for filter in self.filters if self.session.subscription(filter) in self.made])
            refused = set(self.filters)
            for position, request in enumerate(self.packet.subscriptions):
                if request.filter in refused:
                    self.reasons[position] = reason
            self.retained = [subscription for subscription in self.retained if subscription.filter not in refused]
        channel.put(encode.suback(channel.protocol_version, self.packet.packet_id, self.reasons))
        if self.retained:
            channel.port.send_retained(self.retained, self.saw_retained)
