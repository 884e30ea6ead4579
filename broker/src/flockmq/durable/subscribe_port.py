"""One SUBSCRIBE at the owner of the session. The node of the connection has authorized it already.

Invariant: it is answered after the subscription is committed. If the cluster refuses the route of a filter that the
session had before, the old subscription stays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flockmq.durable.ports import ClusterPort
from flockmq.durable.session import DurableSession
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import is_exclusive
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.subscribe_flow import SubscribeFlow, SubscribePort
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered


class DurableSubscribePort(SubscribePort):
    """`is_there`: True while the requesting connection has the session. `settle(then)` calls `then` when all writes for
    the session are committed. `placed` is called when the filters were added, or won't be.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        router: Router,
        session: DurableSession,
        is_there: Callable[[], bool],
        settle: Callable[[Callable[[], None]], None],
        answer: Answered,
        placed: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._router = router
        self._session = session
        self._is_there = is_there
        self._settle = settle
        self._answer = answer
        self._placed = placed

    def subscribe(self, question: messages.SubscribeQuestion) -> None:
        session = self._session
        wanted = [(row.filter, row.options, row.asked or row.filter) for row in question.wanted]
        SubscribeFlow(self, self._router, session, session.limits, wanted, question.identifiers).start()

    def is_there(self) -> bool:
        return self._is_there()

    def claim(self, filters: list[bytes], done: Callable[[dict[bytes, int]], None]) -> None:
        """First waits until an earlier UNSUBSCRIBE is committed. That one releases its claims at its commit, which
        would release this claim too.
        """
        self._settle(partial(self._cluster.claim, self._session.client_id, filters, done))

    def release(self, filters: list[bytes]) -> None:
        release = partial(self._cluster.release, self._session.client_id, filters)
        if self._session.has_ended():
            release()
        else:
            self._settle(release)

    def added(self, subscription: Subscription, asked: bytes, gets_retained: bool) -> bool:
        session, filter = self._session, subscription.filter
        session.record.write_subscription(subscription)
        session.note_asked(filter, asked)
        if not gets_retained and not session.record.awaits_retained(filter):
            return False
        session.await_retained(subscription)
        return True

    def placed(self) -> None:
        self._placed()

    def needs_route(self, filter: bytes) -> bool:
        return True

    def route(self, filters: list[bytes], with_retained: bool, done: Callable[[int, bool], None]) -> None:
        self._cluster.route_slot(self._session.writer.slot, filters, partial(self._routed, with_retained, done))

    def _routed(self, with_retained: bool, done: Callable[[int, bool], None], reason: int) -> None:
        if reason >= 0x80:
            done(reason, False)
        elif with_retained:
            self._cluster.see_retained(partial(self._saw, done))
        else:
            self._saw(done, False)

    def _saw(self, done: Callable[[int, bool], None], saw_all: bool) -> None:
        self._settle(partial(done, Reason.SUCCESS, saw_all))

    def take_back(self, subscriptions: list[Subscription], new: set[bytes]) -> None:
        session = self._session
        unused: list[bytes] = []
        for made in subscriptions:
            if made.filter in new:
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
        if pending_retained:
            self._cluster.send_retained(pending_retained, saw_all)
