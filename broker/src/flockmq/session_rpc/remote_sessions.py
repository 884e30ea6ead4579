"""The session proxies of this node: its connections to durable sessions, which run at their owners.

Packets from an owner pass through the session proxy, which drops repeats. What the client acknowledges is reported to
the owner; SUBSCRIBE, UNSUBSCRIBE and QoS 2 PUBLISH are sent there as requests. Invariants: reports of one connection
reach the owner in order, once in each event-loop iteration. A session proxy exists exactly while its connection has its
token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from flockmq.bounds import SINK_LIMIT_BYTES, STANDING_READS_MAX
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_delayed
from flockmq.protocol.channel import Channel
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.routing.sink import LAGGING, Sink, TurnEnd
from flockmq.routing.slots import slot_of
from flockmq.session.client_session import SubscribeChange, UnsubscribeChange
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import RemoteSession, RemoteSessionPort, without_qos0
from flockmq.session_rpc import messages
from flockmq.session_rpc.client import SessionRpcClient
from flockmq.session_rpc.messages import NONCE_BYTES, Answered
from flockmq.session_rpc.ports import FilterAuthorizer


class _Proxied:
    __slots__ = ("changes", "channel", "proxy", "request")

    def __init__(self, channel: Channel, proxy: RemoteSession, request: messages.SessionRequest) -> None:
        self.channel = channel
        self.proxy = proxy
        self.request = request
        self.changes = 0
        """How many times the session's subscriptions, or their order at the owner, may have changed."""

    def authorized(self) -> None:
        """The subscriptions are authorized: the next owner need not wait for that."""
        if self.request.rules is not None:
            self.request = msgspec.structs.replace(self.request, rules=None)


class RemoteSessions(RemoteSessionPort):
    """`turn`: the node's list of sinks to flush. `flush` writes what was put. `unsubscribed` is called for each filter
    that a client unsubscribed from. `owners` is set before use.
    """

    def __init__(
        self,
        turn: list[Sink],
        flush: Callable[[], None],
        unsubscribed: Callable[[Channel, bytes], None],
        token_bytes: Callable[[int], bytes],
    ) -> None:
        self.owners: SessionRpcClient
        self._turn_end = TurnEnd(turn, self._report)
        self._flush = flush
        self._unsubscribed_from = unsubscribed
        self._token_bytes = token_bytes
        self._proxied: dict[int, _Proxied] = {}
        self._reporting: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._proxied)

    def add(
        self,
        channel: Channel,
        session: LocalSession,
        token: int,
        request: messages.SessionRequest,
        must_reauthorize: bool = False,
    ) -> RemoteSession:
        """Create the session proxy for an admitted connection, from the local session that its CONNECT made.
        `must_reauthorize`: the owner waits until the subscriptions are authorized again.
        """
        proxy = RemoteSession(session, self, token)
        proxied = self._proxied[token] = _Proxied(channel, proxy, request)
        if not must_reauthorize:
            proxied.authorized()
        return proxy

    def remove(self, token: int) -> None:
        if token in self._reporting:
            self._report()
        self._proxied.pop(token, None)

    def request(self, token: int) -> messages.SessionRequest | None:
        proxied = self._proxied.get(token)
        return None if proxied is None else proxied.request

    # From the owner.

    def delivered(self, owner: str, token: int, packets: bytes) -> None:
        proxied = self._proxied.get(token)
        if proxied is None or proxied.channel.has_ended():
            return
        if self.owners.owner(slot_of(proxied.proxy.client_id)) != owner:
            return  # The new owner will send what is needed.
        channel = proxied.channel
        if channel.flow >= LAGGING or channel.out_bytes > SINK_LIMIT_BYTES:
            packets, dropped = without_qos0(packets)
            channel.router.counters.dropped_slow_reader += dropped
        fresh = proxied.proxy.arrived(packets)
        if fresh:
            channel.put(fresh)
            self._flush()

    def unsettled(self, token: int) -> bytes:
        proxied = self._proxied.get(token)
        if proxied is None:
            return b""
        self._reporting.pop(token, None)
        proxied.changes += 1  # Another owner has the subscriptions in another order.
        proxied.proxy.moved()
        return proxied.proxy.take_reports()

    # To the owner.

    def report(self, token: int) -> None:
        self._reporting[token] = None
        self._turn_end.flush_at_turn_end()
        self._flush()

    def _report(self) -> None:
        reporting, self._reporting = self._reporting, {}
        for token in reporting:
            proxied = self._proxied.get(token)
            if proxied is not None and (pairs := proxied.proxy.take_reports()):
                self.owners.report(proxied.proxy.client_id, token, pairs)

    def subscribe(self, token: int, change: SubscribeChange) -> None:
        wanted = [
            messages.WantedSubscription(filter, request.options, b"" if request.filter == filter else request.filter)
            for filter, request in change.wanted()
        ]
        question = messages.SubscribeQuestion(wanted, change.identifiers(), self._token_bytes(NONCE_BYTES))
        self._change(token, question, partial(self._subscribed, change))

    def _subscribed(self, change: SubscribeChange, answer: bytes) -> None:
        change.answered(messages.decode_reasons(answer) if answer else [])
        self._flush()

    def unsubscribe(self, token: int, change: UnsubscribeChange) -> None:
        question = messages.UnsubscribeQuestion(change.filters, self._token_bytes(NONCE_BYTES))
        self._change(token, question, partial(self._unsubscribed, token, change))

    def _unsubscribed(self, token: int, change: UnsubscribeChange, answer: bytes) -> None:
        proxied = self._proxied.get(token)
        if not answer or proxied is None or proxied.channel.has_ended():
            return
        reasons = messages.decode_reasons(answer)
        for filter, reason in zip(change.filters, reasons, strict=True):
            if reason == Reason.SUCCESS:
                self._unsubscribed_from(proxied.channel, filter)
        change.answered(reasons)
        self._flush()

    def _change(self, token: int, question: messages.Question, answered: Answered) -> None:
        """Ask the owner to change the subscriptions."""
        proxied = self._proxied.get(token)
        if proxied is not None:
            proxied.changes += 1
            self.owners.ask(proxied.proxy.client_id, token, question, answered)

    # After a change of rules.

    async def authorize_subscriptions(
        self, channel: Channel, token: int, authorizer: FilterAuthorizer, rules: Callable[[], bytes]
    ) -> list[bytes]:
        """Check all subscriptions of the session against the current `rules`, and end those that are denied. Returns
        the filters that were ended.

        They are read in pages, and again from the first one if something changed meanwhile: a page is a place in the
        owner's order. If that happens each time some may be missing, and the next CONNECT checks them again.
        """
        proxied = self._proxied.get(token)
        if proxied is None:
            return []
        for _ in range(STANDING_READS_MAX):
            changes, by = proxied.changes, rules()
            denied = await self._denied(channel, token, authorizer)
            if proxied.changes == changes:
                break
        else:
            by = b""
        if denied:
            proxied.changes += 1  # Another check may be reading them.
        answer = b"" if denied is None else await self._ask(channel, token, messages.ReauthorizedQuestion(denied, by))
        if not answer or denied is None:
            return []  # The connection has ended.
        proxied.authorized()
        ended = [
            f for f, reason in zip(denied, messages.decode_reasons(answer), strict=True) if reason == Reason.SUCCESS
        ]
        for filter in ended if not channel.has_ended() else ():
            self._unsubscribed_from(channel, filter)
        return ended

    async def _denied(self, channel: Channel, token: int, authorizer: FilterAuthorizer) -> list[bytes] | None:
        denied: list[bytes] = []
        after = 0
        while True:
            page = await self._ask(channel, token, messages.SubscriptionsQuestion(after))
            if not page:
                return None
            held, after = messages.decode_page(page)
            denied += await authorizer.denied(channel, {filter: (asked, qos) for filter, asked, qos in held})
            if not after:
                return denied

    def _ask(self, channel: Channel, token: int, question: messages.Question) -> asyncio.Future[bytes]:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.owners.ask(channel.client_id(), token, question, partial(_answered, answer))
        self._flush()
        return answer

    def remember(self, pending: PendingPublish, token: int) -> None:
        """Have the owner store the id of a QoS 2 message before it is published. The answer has the message id and the
        chosen members of shared subscriptions.
        """
        assert pending.session is not None
        client_id, message, router = pending.session.client_id, pending.message, pending.channel.router
        deals = b""
        if router.shared.is_used() and not is_delayed(message.topic):
            deals = router.shared.propose(router.route(message.topic).fanout.groups, message, client_id)
        question = messages.ReceiveQuestion(message.packet_id, deals)
        self.owners.ask(client_id, token, question, partial(self._remembered, pending))

    def _remembered(self, pending: PendingPublish, answer: bytes) -> None:
        if not answer:  # The connection has ended. The client sends the message again when it resumes the session.
            pending.logged(Reason.UNSPECIFIED_ERROR)
            return
        origin = messages.decode_origin(answer)
        if origin:
            pending.message.origin, pending.message.deals = origin[:ORIGIN_BYTES], origin[ORIGIN_BYTES:]
            pending.remembered()
        else:
            pending.logged(Reason.QUOTA_EXCEEDED)


def _answered(waiting: asyncio.Future[bytes], answer: bytes) -> None:
    if not waiting.done():
        waiting.set_result(answer)
