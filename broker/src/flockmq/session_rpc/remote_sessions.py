"""The session proxies of this node: its connections whose sessions run at their owners.

What comes from an owner goes to the client by its session proxy, which knows what the client has already. What the
client answers, subscribes to or publishes at QoS 2 is reported and asked there. What always holds: reports of one
connection reach the owner in their order, once a turn; a session proxy is here exactly as long as its connection holds
its token.
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
from flockmq.protocol.pending_publish import Inbound
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.routing.sink import LAGGING, Sink
from flockmq.routing.slots import slot_of
from flockmq.session.client_session import SubscribeChange, UnsubscribeChange
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import RemoteSession, RemoteSessionPort, without_qos0
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered
from flockmq.session_rpc.ports import Judge


class SessionOwners(Protocol):
    def owner(self, slot: int) -> str: ...
    def report(self, client_id: bytes, token: int, pairs: bytes) -> None: ...
    def ask(self, client_id: bytes, token: int, question: messages.Question, answered: Answered) -> None: ...


class _Place:
    __slots__ = ("changes", "channel", "opening", "proxy")

    def __init__(self, channel: Channel, proxy: RemoteSession, opening: messages.Opening) -> None:
        self.channel = channel
        self.proxy = proxy
        self.opening = opening
        self.changes = 0
        """How often its client asked for other subscriptions."""

    def is_judged(self) -> None:
        """The next owner needs to wait for nothing."""
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


class RemoteSessions(RemoteSessionPort):
    """`turn` is the node's list of dirty sinks; `flush` has what was put written; `unsubscribed` is told of each filter
    that a client gave up. `owners` is set before use.
    """

    def __init__(
        self,
        turn: list[Sink],
        flush: Callable[[], None],
        unsubscribed: Callable[[Channel, bytes], None],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.owners: SessionOwners
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
        """The session proxy of a connection that was admitted, with what its CONNECT made. `unjudged`: its owner waits
        until its subscriptions are judged.
        """
        proxy = RemoteSession(session, self, token)
        place = self._places[token] = _Place(channel, proxy, opening)
        if not unjudged:
            place.is_judged()
        return proxy

    def remove(self, token: int) -> None:
        if token in self._reporting:
            self._report()
        self._places.pop(token, None)

    def opening(self, token: int) -> messages.Opening | None:
        place = self._places.get(token)
        return None if place is None else place.opening

    # From the owner.

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        place = self._heard(owner, token)
        if place is None or place.channel.has_ended():
            return
        channel = place.channel
        if channel.flow >= LAGGING or channel.out_bytes > SINK_LIMIT_BYTES:
            packets, dropped = without_qos0(packets)
            channel.router.counters.dropped_slow_reader += dropped
        fresh = place.proxy.arrived(packets)
        if fresh:
            channel.put(fresh)
            self._flush()

    def unsettled(self, token: int) -> bytes:
        place = self._places.get(token)
        if place is None:
            return b""
        self._reporting.pop(token, None)
        place.proxy.moved()
        return place.proxy.take_reports()

    def _heard(self, owner: str, token: int) -> _Place | None:
        """An owner that its slot left isn't heard any more: the next one knows better."""
        place = self._places.get(token)
        if place is None or self.owners.owner(slot_of(place.proxy.client_id)) != owner:
            return None
        return place

    # To the owner.

    def report(self, token: int) -> None:
        self._reporting[token] = None
        self._reporter.put(b"")
        self._flush()

    def _report(self) -> None:
        reporting, self._reporting = self._reporting, {}
        for token in reporting:
            place = self._places.get(token)
            if place is not None and (pairs := place.proxy.take_reports()):
                self.owners.report(place.proxy.client_id, token, pairs)

    def subscribe(self, token: int, change: SubscribeChange) -> None:
        wanted = [_wanted(filter, request) for filter, request in change.wanted()]
        self._change(token, messages.SubscribeQuestion(wanted, change.identifiers()), partial(self._subscribed, change))

    def _subscribed(self, change: SubscribeChange, answer: bytes) -> None:
        change.told(messages.decode_reasons(answer) if answer else [])
        self._flush()

    def unsubscribe(self, token: int, change: UnsubscribeChange) -> None:
        question = messages.UnsubscribeQuestion(change.filters, self._token_bytes(8))
        self._change(token, question, partial(self._unsubscribed, token, change))

    def _unsubscribed(self, token: int, change: UnsubscribeChange, answer: bytes) -> None:
        place = self._places.get(token)
        if not answer or place is None or place.channel.has_ended():
            return
        reasons = messages.decode_reasons(answer)
        for filter, reason in zip(change.filters, reasons, strict=True):
            if reason == Reason.SUCCESS:
                self._unsubscribed_from(place.channel, filter)
        change.told(reasons)
        self._flush()

    def _change(self, token: int, question: messages.Question, answered: Answered) -> None:
        """Its subscriptions."""
        place = self._places.get(token)
        if place is not None:
            place.changes += 1
            self.owners.ask(place.proxy.client_id, token, question, answered)

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
        self.owners.ask(channel.client_id(), token, question, partial(_answered, answer))
        self._flush()
        return answer

    def remember(self, inbound: Inbound, token: int) -> None:
        """Have its owner remember a QoS 2 message before it is published, and say under which origin it is, and to whom
        of shared subscriptions."""
        assert inbound.session is not None
        client_id, message, router = inbound.session.client_id, inbound.message, inbound.channel.router
        deals = b""
        if router.shared.is_used() and not is_delayed(message.topic):
            deals = router.shared.propose(router.route(message.topic).fanout.groups, message, client_id)
        question = messages.ReceiveQuestion(message.packet_id, deals)
        self.owners.ask(client_id, token, question, partial(self._remembered, inbound))

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
