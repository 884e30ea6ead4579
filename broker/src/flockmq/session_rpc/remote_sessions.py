"""The fronts of this node: its connections whose sessions run at their homes.

What comes from a home goes to the client by its front, which knows what the client has already; what the client
answers, subscribes to or publishes at QoS 2 is reported and asked there. What always holds: reports of one connection
reach its home in their order, once a turn; a front is here exactly as long as its connection holds its token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from flockmq.bounds import SINK_LIMIT_BYTES, STANDING_READS_MAX
from flockmq.mqtt.packets import SubscribeEntry as Request
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.protocol.channel import Channel
from flockmq.protocol.publish_queue import Inbound
from flockmq.protocol.subscribe import SubscribeRequest
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.routing.sink import LAGGING, Sink
from flockmq.routing.slots import slot_of
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import RemoteSession, without_qos0
from flockmq.session_rpc import messages
from flockmq.session_rpc.client import Answered
from flockmq.session_rpc.ports import Judge


class SessionHomes(Protocol):
    def owner(self, slot: int) -> str: ...
    def report(self, client_id: bytes, token: int, pairs: bytes) -> None: ...
    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None: ...


class _Place:
    __slots__ = ("changes", "channel", "front", "opening")

    def __init__(self, channel: Channel, front: RemoteSession, opening: messages.Opening) -> None:
        self.channel = channel
        self.front = front
        self.opening = opening
        self.changes = 0
        """How often its client asked for other subscriptions."""

    def is_judged(self) -> None:
        """The next home needs to wait for nothing."""
        if self.opening.rules is not None:
            self.opening = msgspec.structs.replace(self.opening, rules=None)


class _Reporter(Sink):
    """Has its part of each turn in which something is to be reported."""

    def __init__(self, turn: list[Sink], report: Callable[[], None]) -> None:
        super().__init__(turn, 0)
        self._report = report

    def flush(self) -> None:
        self.out.clear()
        self._report()


class RemoteSessions:
    """`turn` is the node's list of dirty sinks; `flush` has what was put written; `unsubscribed` is told of each filter
    that a client gave up. `homes` is set before use.
    """

    def __init__(
        self,
        turn: list[Sink],
        flush: Callable[[], None],
        unsubscribed: Callable[[Channel, bytes], None],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.homes: SessionHomes
        self._reporter = _Reporter(turn, self._report)
        self._flush = flush
        self._unsubscribed_from = unsubscribed
        self._token_bytes = token_bytes
        self._places: dict[int, _Place] = {}
        self._reporting: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(
        self, channel: Channel, session: LocalSession, token: int, opening: messages.Opening, unjudged: bool = False
    ) -> RemoteSession:
        """The front of a connection that was admitted, with what its CONNECT made. `unjudged`: its home waits until its
        subscriptions are."""
        front = RemoteSession(session, partial(self._answers, token))
        place = self._places[token] = _Place(channel, front, opening)
        if not unjudged:
            place.is_judged()
        return front

    def remove(self, token: int) -> None:
        if token in self._reporting:
            self._report()
        self._places.pop(token, None)

    def opening(self, token: int) -> messages.Opening | None:
        place = self._places.get(token)
        return None if place is None else place.opening

    # From the home.

    def delivered(self, home: str, token: int, packets: bytes) -> None:
        place = self._heard(home, token)
        if place is None or place.channel.has_ended():
            return
        channel = place.channel
        if channel.flow >= LAGGING or channel.out_bytes > SINK_LIMIT_BYTES:
            packets, dropped = without_qos0(packets)
            channel.router.counters.dropped_slow_reader += dropped
        fresh = place.front.arrived(packets)
        if fresh:
            channel.put(fresh)
            self._flush()

    def unsettled(self, token: int) -> bytes:
        place = self._places.get(token)
        if place is None:
            return b""
        self._reporting.pop(token, None)
        place.front.moved()
        return place.front.take_reports()

    def _heard(self, home: str, token: int) -> _Place | None:
        """A home that its slot left isn't heard any more: the next one knows better."""
        place = self._places.get(token)
        if place is None or self.homes.owner(slot_of(place.front.client_id)) != home:
            return None
        return place

    # To the home.

    def _answers(self, token: int) -> None:
        """A front has something to report."""
        self._reporting[token] = None
        self._reporter.put(b"")
        self._flush()

    def _report(self) -> None:
        reporting, self._reporting = self._reporting, {}
        for token in reporting:
            place = self._places.get(token)
            if place is not None and (pairs := place.front.take_reports()):
                self.homes.report(place.front.client_id, token, pairs)

    def subscribe(self, subscribing: SubscribeRequest, token: int) -> None:
        """Have its home subscribe the client: `subscribing.told`."""
        self._subscriptions_change(token)
        wanted = [_wanted(filter, request) for filter, request in subscribing.wanted()]
        question = messages.SubscribeQuestion(wanted, subscribing.identifiers())
        self.homes.ask(subscribing.session.client_id, token, question, partial(self._subscribed, subscribing))

    def _subscribed(self, subscribing: SubscribeRequest, answer: bytes) -> None:
        subscribing.told(messages.decode_reasons(answer) if answer else [])
        self._flush()

    def unsubscribe(self, channel: Channel, packet_id: int, filters: list[bytes], token: int) -> None:
        """Have its home unsubscribe the client: `channel.unsubscribed`."""
        self._subscriptions_change(token)
        answered = partial(self._unsubscribed, channel, packet_id, filters)
        self.homes.ask(
            channel.client_id(), token, messages.UnsubscribeQuestion(filters, self._token_bytes(8)), answered
        )

    def _unsubscribed(self, channel: Channel, packet_id: int, filters: list[bytes], answer: bytes) -> None:
        if answer and not channel.has_ended():
            channel.subscribe_answered()
            reasons = messages.decode_reasons(answer)
            for filter, reason in zip(filters, reasons, strict=True):
                if reason == Reason.SUCCESS:
                    self._unsubscribed_from(channel, filter)
            channel.unsubscribed(packet_id, reasons)
            self._flush()

    # Rules changed.

    async def judge(self, channel: Channel, token: int, judge: Judge, rules: Callable[[], bytes]) -> list[bytes]:
        """Have all subscriptions of the session judged by the `rules` that hold now, and those that are denied end."""
        place = self._places.get(token)
        if place is None:
            return []
        for _ in range(STANDING_READS_MAX):
            changes, by = place.changes, rules()
            denied = await self._denied(channel, token, judge)
            if place.changes == changes:
                break
        answer = b"" if denied is None else await self._ask(channel, token, messages.JudgedQuestion(denied, by))
        if not answer or denied is None:
            return []  # its connection is gone
        place.is_judged()
        ended = [
            f for f, reason in zip(denied, messages.decode_reasons(answer), strict=True) if reason == Reason.SUCCESS
        ]
        for filter in ended if not channel.has_ended() else ():
            self._unsubscribed_from(channel, filter)
        return ended

    async def _denied(self, channel: Channel, token: int, judge: Judge) -> list[bytes] | None:
        denied: list[bytes] = []
        after = 0
        while True:
            page = await self._ask(channel, token, messages.StandingQuestion(after))
            if not page:
                return None
            held, after = messages.decode_page(page)
            denied += await judge.denied(channel, {filter: (asked, qos) for filter, asked, qos in held})
            if not after:
                return denied

    def _ask(self, channel: Channel, token: int, question: messages.Question) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.homes.ask(channel.client_id(), token, question, partial(_answered, answer))
        self._flush()
        return answer

    def _subscriptions_change(self, token: int) -> None:
        if (place := self._places.get(token)) is not None:
            place.changes += 1

    def remember(self, inbound: Inbound, token: int) -> None:
        """Have its home remember a QoS 2 message before it is published, and say under which origin it is, and to whom
        of shared subscriptions."""
        assert inbound.session is not None
        client_id, message, router = inbound.session.client_id, inbound.message, inbound.channel.router
        deals = b""
        if router.shared.is_used() and not is_delayed(message.topic):
            deals = router.shared.propose(router.route(message.topic).fanout.groups, message, client_id)
        question = messages.ReceiveQuestion(message.packet_id, deals)
        self.homes.ask(client_id, token, question, partial(self._remembered, inbound))

    def _remembered(self, inbound: Inbound, answer: bytes) -> None:
        if not answer:  # the connection is gone: whoever comes back to the session sends it again
            inbound.logged(Reason.UNSPECIFIED_ERROR)
            return
        origin = messages.decode_origin(answer)
        if origin:
            inbound.message.origin, inbound.message.deals = origin[:ORIGIN_BYTES], origin[ORIGIN_BYTES:]
            inbound.remembered()
        else:
            inbound.logged(Reason.QUOTA_EXCEEDED)


def _wanted(filter: bytes, request: Request) -> messages.WantedSubscription:
    return messages.WantedSubscription(filter, request.options, b"" if request.filter == filter else request.filter)


def _answered(waiting: asyncio.Future[bytes], answer: bytes) -> None:
    if not waiting.done():
        waiting.set_result(answer)
