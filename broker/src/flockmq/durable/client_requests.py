"""Requests of a client to its durable session: SUBSCRIBE, UNSUBSCRIBE, ids for QoS 2 messages, and reauthorization.

Invariants: the requests of a connection are processed in order. A request that arrives out of order is answered with
b"", and the session proxy sends it again. Requests after a SUBSCRIBE wait while that waits for its exclusive claim.
Nothing is answered before it is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice

from flockmq import bounds
from flockmq.durable.ports import ClusterPort, HostPort
from flockmq.durable.proxy_sink import ProxySink
from flockmq.durable.session import DurableSession
from flockmq.durable.session_store import SessionStore
from flockmq.durable.slot_manager import SlotManager
from flockmq.mqtt.packets import RETAIN_HANDLING_SHIFT
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive
from flockmq.routing.sink import Sink
from flockmq.routing.subscriber import Subscription
from flockmq.session.subscribe_flow import SubscribeFlow, SubscribePort
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered


class ClientRequests:
    """One per core. `session_of` returns the session of a connection's token while it runs here."""

    def __init__(
        self,
        host: HostPort,
        manager: SlotManager,
        store: SessionStore,
        session_of: Callable[[int], DurableSession | None],
    ) -> None:
        self.host = host
        self.manager = manager
        self.store = store
        self.session_of = session_of

    def ask(
        self, client_id: bytes, token: int, place: tuple[int, int], question: messages.Question, answer: Answered
    ) -> None:
        """As in `ports.SessionServicePort`."""
        number, behind = place
        session = self.session_of(token)
        sink = None if session is None else session.sink
        if session is None or not isinstance(sink, ProxySink) or behind not in (0, sink.last_request):
            answer(b"")  # The request before this one was neither processed on this sink nor answered before (0).
            return
        sink.last_request = number
        if isinstance(question, messages.ReceiveQuestion):
            self.manager.now()
            origin = session.origin_for(question.packet_id, question.deals)
            self.manager.request_barriers()
            self.manager.settle(session.writer.slot, partial(answer, messages.encode(origin)))
        elif sink.waiting is None:
            self._change(session, sink, question, answer)
        elif len(sink.waiting) < bounds.SUBSCRIBES_WAITING_MAX:
            sink.waiting.append(partial(self._change, session, sink, question, answer))
        else:
            sink.last_request = 0
            answer(b"")

    def _change(
        self,
        session: DurableSession,
        sink: ProxySink,
        question: messages.SubscribeQuestion
        | messages.UnsubscribeQuestion
        | messages.SubscriptionsQuestion
        | messages.ReauthorizedQuestion,
        answer: Answered,
    ) -> None:
        """Read or change the session's subscriptions."""
        self.manager.now()
        match question:
            case messages.SubscriptionsQuestion(after):
                answer(messages.encode(_page(session, after)))
            case messages.ReauthorizedQuestion(denied, rules):
                reasons = self.manager.endings.revoke(self.manager.sessions, session, denied)
                was_held = session.must_reauthorize
                session.authorized_under(rules)
                if was_held:
                    session.send_again()
                self.manager.request_barriers()
                self.manager.settle(session.writer.slot, partial(answer, messages.encode(reasons)))
                self.host.flush_soon()
            case messages.UnsubscribeQuestion(filters, nonce):
                reasons = self.manager.sessions.unsubscribe(session, filters)
                told_before = session.record.unsubscribed(nonce)
                if told_before is None:
                    session.note_unsubscribed(nonce, reasons)
                else:
                    reasons = told_before
                self.manager.request_barriers()
                self.manager.settle(session.writer.slot, partial(answer, messages.encode(reasons)))
            case messages.SubscribeQuestion():
                sink.waiting = waiting = list[Callable[[], None]]()
                DurableSubscribePort(self, session, sink.token, waiting, answer).subscribe(question)
                self.manager.request_barriers()


def _page(session: DurableSession, after: int) -> messages.Page:
    page: list[tuple[bytes, bytes, int]] = []
    size_bytes = 0
    for subscription in islice(session.subscriptions.all(), after, None):
        filter = subscription.filter
        asked = session.subscriptions.asked_for(filter)
        page.append((filter, asked, subscription.qos))
        size_bytes += len(filter) + len(asked) + bounds.STANDING_ROW_BYTES
        if size_bytes >= bounds.STANDING_PAGE_BYTES:
            break
    goes_on = after + len(page) < len(session.subscriptions)
    return page, after + len(page) if goes_on else 0


def hand_over(former: Sink, sink: Sink) -> None:
    """The new sink takes over the queue of the old one. Queued requests are dropped, because the proxy sends them
    again.
    """
    assert isinstance(former, ProxySink)
    assert isinstance(sink, ProxySink)
    if former.waiting is not None:
        former.waiting.clear()
    sink.waiting = former.waiting


class DurableSubscribePort(SubscribePort):
    """One SUBSCRIBE at the owner of the session. The node of the connection has authorized it already.

    Invariants: it is answered after the subscription is committed. If the cluster refuses the route of a filter that
    the session had before, the old subscription stays. If it is a repeat, only filters that the session doesn't have
    are entitled to retained messages; for the others the sending goes on where it was, unless it is over.

    Redis may be short of memory: what the session has, because a former owner committed it and then couldn't answer, is
    granted all the same. `waiting`: requests of the connection that wait until the filters were added, or won't be.
    """

    def __init__(
        self,
        requests: ClientRequests,
        session: DurableSession,
        token: int,
        waiting: list[Callable[[], None]],
        answer: Answered,
    ) -> None:
        self._requests = requests
        self._cluster: ClusterPort = requests.host
        self._router = requests.manager.router
        self._session = session
        self._token = token
        self._waiting = waiting
        self._answer = answer
        self._nonce = b""
        self._is_repeat = False

    def subscribe(self, question: messages.SubscribeQuestion) -> None:
        session = self._session
        self._nonce = question.nonce
        self._is_repeat = session.record.has_subscribed(question.nonce)
        wanted = [
            (row.filter, _of_repeat(row.options) if self._is_repeat else row.options, row.asked or row.filter)
            for row in question.wanted
        ]
        SubscribeFlow(self, self._router, session, session.limits, wanted, question.identifiers).start()

    def is_there(self) -> bool:
        return self._requests.session_of(self._token) is self._session

    def takes_new_filters(self) -> bool:
        return not self._requests.store.is_short(self._session.writer.slot)

    def _settle(self, then: Callable[[], None]) -> None:
        """Call `then` when all writes for the session are committed."""
        self._requests.manager.settle(self._session.writer.slot, then)

    def claim(self, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        """First waits until an earlier UNSUBSCRIBE is committed. That one releases its claims at its commit, which
        would release this claim too.
        """
        session = self._session
        self._settle(partial(self._cluster.claim, session.client_id, filters, done, session.takes_turns_as()))

    def release(self, filters: list[bytes]) -> None:
        release = partial(self._cluster.release, self._session.client_id, filters)
        if self._session.has_ended():
            release()
        else:
            self._settle(release)

    def added(self, subscription: Subscription, asked: bytes, gets_retained: bool) -> bool:
        session, filter = self._session, subscription.filter
        if gets_retained:
            session.await_retained(subscription)
        else:
            session.record.write_subscription(subscription)
        session.note_asked(filter, asked)
        return session.record.awaits_retained(filter)

    def placed(self) -> None:
        session, sink = self._session, self._session.sink
        if not isinstance(sink, ProxySink) or sink.waiting is not self._waiting:
            return  # Another connection has the session now.
        sink.waiting = None
        for change in self._waiting:
            if self._requests.session_of(sink.token) is not session or session.sink is not sink:
                return  # The session proxy asks again over the new sink.
            if sink.waiting is None:
                change()
            else:
                sink.waiting.append(change)

    def needs_route(self, filter: bytes) -> bool:
        return True

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None]) -> None:
        if with_retained and self._cluster.knows_subscribes():
            # Behind the subscriptions: if only these reach Redis, a repeat entitles them again.
            self._session.note_subscribed(self._nonce)
        slot, user = self._session.writer.slot, self._session.takes_turns_as()
        self._cluster.route_slot(slot, filters, partial(self._routed, with_retained, done), user)

    def _routed(self, with_retained: bool, done: Callable[[int, bool], None], reason: int) -> None:
        if reason >= 0x80:
            done(reason, False)
        elif with_retained:
            self._cluster.see_retained(partial(self._saw, done))
        else:
            self._saw(done, False)

    def _saw(self, done: Callable[[int, bool], None], saw_all: bool) -> None:
        self._settle(partial(done, Reason.SUCCESS, saw_all))

    def take_back(self, subscriptions: list[Subscription]) -> None:
        session = self._session
        unused: list[bytes] = []
        for made in subscriptions:
            if not made.is_granted:
                self._router.remove(made)
                self._router.ended(made)
                session.remove_subscription(made.filter)
                if is_exclusive(made.filter):
                    unused.append(made.filter)
        if unused:
            self._settle(partial(self._cluster.release, session.client_id, unused))

    def tell(self, reasons: list[int], pending_retained: list[Subscription], saw_all: bool) -> None:
        if self._session.has_ended():
            return
        self._answer(messages.encode(reasons))
        if self._is_repeat:  # Meanwhile all may have been sent for the SUBSCRIBE that it repeats.
            awaits = self._session.record.awaits_retained
            pending_retained = [subscription for subscription in pending_retained if awaits(subscription.filter)]
        if pending_retained:
            self._cluster.send_retained(pending_retained, saw_all)


def _of_repeat(options: int) -> int:
    """With Retain Handling 1 for 0: retained messages for new filters only."""
    return options if options >> RETAIN_HANDLING_SHIFT & 3 else options | 1 << RETAIN_HANDLING_SHIFT
