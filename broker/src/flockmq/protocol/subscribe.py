"""SUBSCRIBE and UNSUBSCRIBE: a SUBSCRIBE is authorized, rewritten, and passed to its session. A clean session continues
with `session.subscribe_flow`.

Invariants: nothing is read after a SUBSCRIBE until it is authorized, by this node, perhaps in several turns, or by a
service that is asked. The same while the log decides on exclusive filters, or other nodes must learn the user's usage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Subscribe
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.properties import subscription_identifier
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, ASKED, SUBSCRIBE, UNDECIDED
from flockmq.protocol.ports import NodePort
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession, SubscribeChange, UnsubscribeChange
from flockmq.session.local_session import LocalSession
from flockmq.session.subscribe_flow import SubscribeFlow, SubscribePort

_UNDECIDED: Final = -1


class _Asked:
    """One filter whose authorization is pending."""

    __slots__ = ("position", "subscribing")

    def __init__(self, subscribing: SubscribeRequest, position: int) -> None:
        self.subscribing = subscribing
        self.position = position

    def decided(self, verdict: int) -> None:
        self.subscribing.decided(self.position, verdict)


class SubscribeRequest(SubscribeChange):
    """One SUBSCRIBE: authorizes it, passes it to the session, and sends the answer. A `packet` with packet id 0 is the
    node's own: it is authorized, but neither rewritten nor answered.
    """

    def __init__(self, channel: Channel, port: NodePort, session: ClientSession, packet: Subscribe) -> None:
        self.channel = channel
        self.session = session
        self.packet = packet
        self._port = port
        self._reasons: list[int] = []
        self._filters: list[bytes] = []
        self._asked: int = 0
        self._begun_under: int = port.authorization.rule_changes() if channel.must_authorize else 0
        self._pauses: bool = False

    def authorize(self) -> None:
        """Authorize the filters one by one, until all are done or the client must wait for its next turn."""
        channel = self.channel
        subscriptions = self.packet.subscriptions
        while len(self._reasons) < len(subscriptions) and not channel.has_ended():
            if channel.must_authorize and self._port.authorization.must_wait(channel, self._go_on):
                break
            self._authorize_one(subscriptions[len(self._reasons)])
        self._go_or_pause()

    def _go_on(self) -> None:
        if self.packet.packet_id and self.channel.has_left():
            self._refuse_rest()
        else:
            self.authorize()

    def _refuse_rest(self) -> None:
        for request in self.packet.subscriptions[len(self._reasons) :]:
            self._reasons.append(Reason.IMPLEMENTATION_SPECIFIC_ERROR)
            self._filters.append(request.filter)
        self._go_or_pause()

    def _go_or_pause(self) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        pauses = self._asked > 0 or len(self._reasons) < len(self.packet.subscriptions)
        if pauses and not self._pauses:
            channel.pause()
        elif self._pauses and not pauses:
            channel.unpause()
        self._pauses = pauses
        if not pauses:
            self._go()

    def _authorize_one(self, request: Request) -> None:
        """Authorize the filter that the client asked for."""
        channel = self.channel
        position = len(self._reasons)
        self._reasons.append(_UNDECIDED)
        self._filters.append(request.filter)
        if channel.must_authorize or request.filter[:1] == b"$":  # `$SYS` topics tell about other clients.
            asked = _Asked(self, position)
            verdict = channel.authorize(SUBSCRIBE, request.filter, request.qos, False, asked.decided)
            if verdict == ASKED:
                self._asked += 1
            elif verdict != ALLOWED:
                self._deny(position)

    def _deny(self, position: int) -> None:
        channel = self.channel
        self._reasons[position] = Reason.NOT_AUTHORIZED
        is_to_go = channel.denied(SUBSCRIBE, self._filters[position])
        if is_to_go and self.packet.packet_id:
            channel.close(Reason.NOT_AUTHORIZED)

    def decided(self, position: int, verdict: int) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        if verdict == UNDECIDED:
            self._reasons[position] = Reason.IMPLEMENTATION_SPECIFIC_ERROR
        elif verdict != ALLOWED:
            self._deny(position)
        self._asked -= 1
        self._go_or_pause()
        channel.flush_soon()

    def _go(self) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        if channel.router.intercepts_subscriptions and self.packet.packet_id:
            self._rewrite()
        channel.subscribe_waits()
        if _UNDECIDED in self._reasons:
            self.session.subscribe(self)
            if channel.must_authorize and self._port.authorization.rule_changes() != self._begun_under:
                self._port.authorization.authorize_again(channel)
        else:
            self._answer()

    def subscribe_here(self) -> None:
        session = self.session
        assert isinstance(session, LocalSession), "the owners of others subscribe them"
        port = _NodeSide(self, self._port, session)
        wanted = [(filter, request.options, request.filter) for filter, request in self.wanted()]
        SubscribeFlow(port, self.channel.router, session, session.limits, wanted, self.identifiers()).start()

    def _rewrite(self) -> None:
        """Apply rewrite rules and plugins to the authorized filters."""
        for position, request in enumerate(self.packet.subscriptions):
            if self._reasons[position] == _UNDECIDED:
                filter = self._port.hooks.subscribing(self.channel, request)
                if filter:
                    self._filters[position] = filter
                else:
                    self._reasons[position] = Reason.NOT_AUTHORIZED

    def wanted(self) -> list[tuple[bytes, Request]]:
        return [
            (self._filters[position], request)
            for position, request in enumerate(self.packet.subscriptions)
            if self._reasons[position] == _UNDECIDED
        ]

    def identifiers(self) -> bytes:
        identifier = None if self.packet.properties is None else self.packet.properties.subscription_identifier
        return b"" if identifier is None else subscription_identifier(identifier)

    def answered(self, reasons: list[int]) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        decided = iter(reasons)
        self._reasons = [
            next(decided, Reason.UNSPECIFIED_ERROR) if reason == _UNDECIDED else reason for reason in self._reasons
        ]
        self._answer()

    def _answer(self) -> None:
        channel = self.channel
        channel.subscribe_answered()
        if channel.router.intercepts_subscriptions:
            for position, filter in enumerate(self._filters):
                if self._reasons[position] < 0x80:
                    self._port.hooks.subscribed(channel, filter, self._reasons[position])
        if self.packet.packet_id:
            channel.answer(encode.suback(channel.protocol_version, self.packet.packet_id, self._reasons))


class _NodeSide(SubscribePort):
    """The node's side of a SUBSCRIBE for a clean session."""

    def __init__(self, request: SubscribeRequest, port: NodePort, session: LocalSession) -> None:
        self._request = request
        self._channel = request.channel
        self._port = port
        self._session = session
        self._holds: bool = False

    def is_there(self) -> bool:
        return not self._channel.has_ended()

    def takes_new_filters(self) -> bool:
        return self._port.takes_filters()

    def hold(self) -> None:
        self._holds = True
        self._channel.pause()

    def claim(self, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        self._port.filters.claim(self._session.client_id, filters, done, self._session.takes_turns_as())

    def release(self, filters: list[bytes]) -> None:
        self._port.filters.unrouted(filters)

    def added(self, subscription: Subscription, asked: bytes, gets_retained: bool) -> bool:
        self._session.subscriptions.note_asked(subscription.filter, asked)
        return gets_retained

    def decides_when_granted(self) -> bool:
        return True

    def placed(self) -> None:
        if self._holds:
            self._channel.unpause()
        self._channel.flush_soon()

    def needs_route(self, filter: bytes) -> bool:
        return not self._port.filters.is_routed(filter)

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None]) -> None:
        self._port.route(filters, with_retained, done, self._session.takes_turns_as())

    def take_back(self, subscriptions: list[Subscription]) -> None:
        self._port.unsubscribe(self._channel, self._session, [taken.filter for taken in subscriptions])

    def tell(self, reasons: list[int], owed: list[Subscription], saw_all: bool) -> None:
        if not self._channel.has_ended():
            self._request.answered(reasons)
            if owed:
                self._port.send_retained(owed, saw_all)


class UnsubscribeRequest(UnsubscribeChange):
    """One UNSUBSCRIBE; `filters` after rewriting."""

    def __init__(
        self, channel: Channel, port: NodePort, session: ClientSession, packet_id: int, filters: list[bytes]
    ) -> None:
        super().__init__(filters)
        self._channel = channel
        self._port = port
        self._session = session
        self._packet_id = packet_id

    def unsubscribe_here(self) -> None:
        session = self._session
        assert isinstance(session, LocalSession), "the owners of others unsubscribe them"
        self.answered(self._port.unsubscribe(self._channel, session, self.filters))

    def answered(self, reasons: list[int]) -> None:
        channel = self._channel
        if reasons and not channel.has_ended():
            channel.subscribe_answered()
            channel.answer(encode.unsuback(channel.protocol_version, self._packet_id, reasons))
