"""One SUBSCRIBE at the owner of its session, as the connection's node allowed it.

    exclusive filters claimed ─▶ others told of what its user has ─▶ put into the router ─▶ routed to the slot, and
    durable ─▶ answered ─▶ what is retained

What always holds: the answer comes when this node's own tables route by the filters, the subscription is durable and
all that was retained before is here; a filter that the cluster did not take is out of the session again, unless the
session had it before. Whose connection is gone before its claim is there comes to nothing: what a later one asked, an
UNSUBSCRIBE too, was done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from flockmq.durable.ports import Desk
from flockmq.durable.session import DurableSession
from flockmq.mqtt.packets import RETAIN_HANDLING_SHIFT
from flockmq.mqtt.topics import is_exclusive
from flockmq.quotas import FilterRoom
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.placement import is_owed, place
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Answered

_UNDECIDED: Final = -1


class SubscribeFlow:
    """`is_there`: the connection that asks has the session; `settle(then)` calls when all that was put for the session
    is durable; `placed` is called when the session has the filters, or won't.
    """

    def __init__(
        self,
        desk: Desk,
        router: Router,
        session: DurableSession,
        is_there: Callable[[], bool],
        question: messages.SubscribeQuestion,
        settle: Callable[[Callable[[], None]], None],
        answer: Answered,
        placed: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._router = router
        self._session = session
        self._is_there = is_there
        self._question = question
        self._settle = settle
        self._answer = answer
        self._placed = placed
        self._reasons = [_UNDECIDED] * len(question.wanted)
        self._made: list[Subscription] = []
        self._new: set[bytes] = set()
        self._owed: list[Subscription] = []
        self._saw_all = False

    def start(self) -> None:
        exclusive = list({wanted.filter: None for wanted in self._question.wanted if is_exclusive(wanted.filter)})
        if exclusive and self._session.limits.exclusive_subscription:
            # what an UNSUBSCRIBE before it gave up is released when that is durable: later it would be this claim
            self._settle(partial(self._desk.claim, self._session.client_id, exclusive, self._claimed))
        else:
            self._make_room(None)

    def _claimed(self, refused: dict[bytes, int]) -> None:
        self._make_room(refused)

    def _make_room(self, refused: dict[bytes, int] | None) -> None:
        """What its user has here may have to be told to others first. None: nothing was claimed."""
        session = self._session
        wanted = [row.filter for row in self._question.wanted if session.subscriptions.find(row.filter) is None]
        if session.usage is None:
            self._has_room(refused)
        else:
            FilterRoom(session.usage, wanted, partial(self._has_room, refused)).make()

    def _has_room(self, refused: dict[bytes, int] | None) -> None:
        if self._is_there():
            self._place(refused or {})
        if refused is not None:
            self._release_unused(refused)
        self._placed()

    def _release_unused(self, refused: dict[bytes, int]) -> None:
        session = self._session
        claimed = dict.fromkeys(wanted.filter for wanted in self._question.wanted if is_exclusive(wanted.filter))
        granted = [filter for filter in claimed if filter not in refused]
        unused = [filter for filter in granted if session.subscriptions.find(filter) is None]
        if unused:
            release = partial(self._desk.release, session.client_id, unused)
            if session.has_ended():
                release()
            else:
                self._settle(release)

    def _place_one(self, wanted: messages.WantedSubscription) -> Subscription | int:
        session, filter, options = self._session, wanted.filter, wanted.options
        return place(self._router, session, session.limits, filter, options & 3, options, self._question.identifiers)

    def _place(self, refused: dict[bytes, int]) -> None:
        session = self._session
        for position, wanted in enumerate(self._question.wanted):
            older = session.subscriptions.find(wanted.filter)
            placed = refused.get(wanted.filter) or self._place_one(wanted)
            if isinstance(placed, int):
                self._reasons[position] = placed
                continue
            session.record.write_subscription(placed)
            session.note_asked(wanted.filter, wanted.asked or wanted.filter)
            self._reasons[position] = placed.qos
            self._made.append(placed)
            is_new = older is None
            if is_new:
                self._new.add(wanted.filter)
            if is_owed(wanted.filter, wanted.options >> RETAIN_HANDLING_SHIFT & 3, is_new) or session.record.is_owed(
                wanted.filter
            ):
                self._owed.append(placed)
                session.owe(placed)
        if self._made:
            self._desk.route_slot(session.journal.slot, [made.filter for made in self._made], self._routed)
        else:
            self._tell()

    def _routed(self, reason: int) -> None:
        if reason >= 0x80:
            self._take_back(reason)
            self._tell()
        elif self._owed:
            self._desk.see_retained(self._saw)
        else:
            self._settle(self._tell)

    def _take_back(self, reason: int) -> None:
        session = self._session
        unused: list[bytes] = []
        for made in self._made:
            if made.filter in self._new and session.subscriptions.find(made.filter) is made:
                self._router.remove(made)
                self._router.ended(made)
                session.remove_subscription(made.filter)
                if is_exclusive(made.filter):
                    unused.append(made.filter)
        if unused:
            self._settle(partial(self._desk.release, session.client_id, unused))
        self._reasons = [reason if granted < 0x80 else granted for granted in self._reasons]
        self._owed = []

    def _saw(self, saw_all: bool) -> None:
        self._saw_all = saw_all
        self._settle(self._tell)

    def _tell(self) -> None:
        if self._session.has_ended():
            return
        self._answer(messages.encode(self._reasons))
        if self._owed:
            self._desk.owe(self._owed, self._saw_all)
