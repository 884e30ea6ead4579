"""One SUBSCRIBE, or UNSUBSCRIBE, on its way. A SUBSCRIBE is authorized, and goes to its session: one that runs here is
put into the router, routed by the cluster, answered, and given what is retained.

What always holds: nothing behind a SUBSCRIBE is read before it is judged, by this node, perhaps in several turns, or by
somebody else who is asked; SUBACK is sent when this node's own table routes by the filters [MQTT-3.8.4-1], and has all
that was retained before: so what is published behind the SUBACK comes once, live, and not as a retained message too; a
filter that the cluster did not take is out of the router again, and its reason code says so: unless a later SUBSCRIBE
of the same filter took its place, which gets an answer of its own. An exclusive filter is claimed in the log before it
is put into the router. While other nodes are to hear of what the user has here, nothing behind the SUBSCRIBE is read
either.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Subscribe
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.properties import subscription_identifier
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive
from flockmq.protocol.channel import Channel
from flockmq.protocol.ports import NodePort, PendingSubscribe
from flockmq.protocol.verdicts import ALLOWED, ASKED, SUBSCRIBE, UNTOLD
from flockmq.quotas import FilterRoom
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession, UnsubscribeChange
from flockmq.session.local_session import LocalSession
from flockmq.session.placement import is_owed, place

_UNDECIDED: Final = -1


class _Asked:
    """One filter that somebody is asked about."""

    __slots__ = ("position", "subscribing")

    def __init__(self, subscribing: SubscribeRequest, position: int) -> None:
        self.subscribing = subscribing
        self.position = position

    def decided(self, verdict: int) -> None:
        self.subscribing.decided(self.position, verdict)


class SubscribeRequest(PendingSubscribe):
    """It goes from judging to the session, and from there to its answer."""

    def __init__(self, channel: Channel, port: NodePort, session: ClientSession, packet: Subscribe) -> None:
        super().__init__(channel, session, packet)
        self._port = port
        self._reasons: list[int] = []
        self._made: list[Subscription] = []
        self._filters: list[bytes] = []
        self._asked: int = 0
        self._granted: list[bytes] = []
        self._pauses: bool = False

    def judge(self) -> None:
        channel = self.channel
        while not self._all_judged() and not channel.has_ended():
            if channel.must_authorize and self._port.judge.rests(self):
                break
            self._judge_one(self.packet.subscriptions[len(self._reasons)])
        self._go_or_pause()

    def leave_off(self) -> None:
        for request in self.packet.subscriptions[len(self._reasons) :]:
            self._reasons.append(Reason.IMPLEMENTATION_SPECIFIC_ERROR)
            self._filters.append(request.filter)
        self._go_or_pause()

    def _all_judged(self) -> bool:
        return len(self._reasons) == len(self.packet.subscriptions)

    def _go_or_pause(self) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        pauses = self._asked > 0 or not self._all_judged()
        if pauses and not self._pauses:
            channel.pause()
        elif self._pauses and not pauses:
            channel.unpause()
        self._pauses = pauses
        if not pauses:
            self._go()

    def _judge_one(self, request: Request) -> None:
        """Whether the client may have the filter that it says."""
        channel = self.channel
        position = len(self._reasons)
        self._reasons.append(_UNDECIDED)
        self._filters.append(request.filter)
        if channel.must_authorize or request.filter[:1] == b"$":  # `$SYS` tells of other clients
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
        if verdict == UNTOLD:
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
        else:
            self._answer()

    def subscribe_here(self) -> None:
        channel = self.channel
        claimed: dict[bytes, None] = {}
        if self.session.limits.exclusive_subscription:
            for position, filter in enumerate(self._filters):
                if is_exclusive(filter) and self._reasons[position] == _UNDECIDED:
                    claimed[filter] = None
        if claimed:
            channel.pause()
            self._port.filters.claim(self.session.client_id, list(claimed), self._claimed)
        else:
            self._make_room()

    def _local(self) -> LocalSession:
        session = self.session
        assert isinstance(session, LocalSession), "the owners of others subscribe them"
        return session

    def _rewrite(self) -> None:
        """What the filters that the client may have really are."""
        for position, request in enumerate(self.packet.subscriptions):
            if self._reasons[position] == _UNDECIDED:
                filter = self._port.hooks.subscribing(self.channel, request)
                if filter:
                    self._filters[position] = filter
                else:
                    self._reasons[position] = Reason.NOT_AUTHORIZED

    def _claimed(self, refused: dict[bytes, int]) -> None:
        """The exclusive filters are this client's, but those refused, each for its reason."""
        channel = self.channel
        for position, filter in enumerate(self._filters):
            if self._reasons[position] == _UNDECIDED and is_exclusive(filter):
                if filter in refused:
                    self._reasons[position] = refused[filter]
                else:
                    self._granted.append(filter)
        if channel.has_ended():
            self._release_unused()
        else:
            channel.unpause()
            self._make_room()

    def _make_room(self) -> None:
        """What the user has here may have to be told to others first."""
        session = self._local()
        if session.usage is None:
            self._has_room()
            return
        wanted = [filter for filter, _ in self.wanted() if session.subscriptions.find(filter) is None]
        self.channel.pause()
        FilterRoom(session.usage, wanted, self._may_go_on).make()

    def _may_go_on(self) -> None:
        if not self.channel.has_ended():
            self.channel.unpause()
        self._has_room()

    def _has_room(self) -> None:
        channel = self.channel
        if not channel.has_ended():
            self._subscribe_all()
            channel.flush_soon()
        self._release_unused()

    def _release_unused(self) -> None:
        session = self._local()
        unused = [filter for filter in self._granted if session.subscriptions.find(filter) is None]
        if unused:
            self._port.filters.unrouted(unused)

    def wanted(self) -> list[tuple[bytes, Request]]:
        return [
            (self._filters[position], request)
            for position, request in enumerate(self.packet.subscriptions)
            if self._reasons[position] == _UNDECIDED
        ]

    def identifiers(self) -> bytes:
        identifier = None if self.packet.properties is None else self.packet.properties.subscription_identifier
        return b"" if identifier is None else subscription_identifier(identifier)

    def told(self, reasons: list[int]) -> None:
        channel = self.channel
        if channel.has_ended():
            return
        decided = iter(reasons)
        self._reasons = [
            next(decided, Reason.UNSPECIFIED_ERROR) if reason == _UNDECIDED else reason for reason in self._reasons
        ]
        self._answer()

    def _subscribe_all(self) -> None:
        identifiers = self.identifiers()
        for position, request in enumerate(self.packet.subscriptions):
            if self._reasons[position] == _UNDECIDED:
                self._reasons[position] = self._subscribe(request, self._filters[position], identifiers)
        if self.filters or self.retained:
            self._port.routed(self)
        else:
            self.finish(Reason.SUCCESS)

    def _subscribe(self, request: Request, filter: bytes, identifiers: bytes) -> int:
        session = self._local()
        older = session.subscriptions.find(filter)
        placed = place(self.channel.router, session, session.limits, filter, request.qos, request.options, identifiers)
        if isinstance(placed, int):
            return placed
        session.subscriptions.note_asked(filter, request.filter)
        if not self._port.filters.is_routed(filter):
            self.filters.append(filter)
            self._made.append(placed)
        if is_owed(filter, request.retain_handling, older is None):
            self.retained.append(placed)
        return placed.qos

    def finish(self, reason: int) -> None:
        channel = self.channel
        if reason >= 0x80:
            session = self._local()
            gone = [made.filter for made in self._made if session.subscriptions.find(made.filter) is made]
            self._port.unsubscribe(channel, session, gone)
        if channel.has_ended():
            return
        if reason >= 0x80:
            refused = set(self.filters)
            for position, filter in enumerate(self._filters):
                if filter in refused:
                    self._reasons[position] = reason
            self.retained = [subscription for subscription in self.retained if subscription.filter not in refused]
        self._answer()
        if self.retained:
            self._port.send_retained(self.retained, self.saw_retained)

    def _answer(self) -> None:
        channel = self.channel
        channel.subscribe_answered()
        if channel.router.intercepts_subscriptions:
            for position, filter in enumerate(self._filters):
                if self._reasons[position] < 0x80:
                    self._port.hooks.subscribed(channel, filter, self._reasons[position])
        if self.packet.packet_id:
            channel.answer(encode.suback(channel.protocol_version, self.packet.packet_id, self._reasons))


class UnsubscribeRequest(UnsubscribeChange):
    """One UNSUBSCRIBE: `filters` as they were subscribed to."""

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
        self.told(self._port.unsubscribe(self._channel, session, self.filters))

    def told(self, reasons: list[int]) -> None:
        channel = self._channel
        if reasons and not channel.has_ended():
            channel.subscribe_answered()
            channel.answer(encode.unsuback(channel.protocol_version, self._packet_id, reasons))
