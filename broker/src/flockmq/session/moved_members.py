"""Moves members of shared subscriptions among the connected or the offline ones when their client comes or goes: a few
at once, many in time slices.

Until it is moved a member may be chosen as what it was. Invariants: when a client comes and goes again and again, its
session has one piece of work here, and its members end where they belong. No member comes back to a group that it has
left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from flockmq.bounds import ENDED_FILTERS_A_STEP, ENDED_FILTERS_AT_ONCE
from flockmq.mqtt.topics import is_shared
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.time_slices import TimeSlices


class MovedMembers:
    """One per router."""

    def __init__(self, router: Router, slices: TimeSlices) -> None:
        self._router = router
        self._slices = slices
        self._moving: dict[Subscriber, bool] = {}
        """Sessions whose members are being moved → whether their client came or went again meanwhile."""

    def connected_or_left(self, session: Subscriber) -> None:
        """The session's client connected or disconnected."""
        if session in self._moving:
            self._moving[session] = True
        elif session.subscriptions.shared > ENDED_FILTERS_AT_ONCE:
            self._moving[session] = False
            self._slices.add(self._steps(session))
        elif session.subscriptions.shared:
            self._move(_shared_of(session))

    def _steps(self, session: Subscriber) -> Iterator[Callable[[], None]]:
        members = _shared_of(session)
        for at in range(0, len(members), ENDED_FILTERS_A_STEP):
            yield partial(self._move, members[at : at + ENDED_FILTERS_A_STEP])
        yield partial(self._moved, session)

    def _move(self, members: list[Subscription]) -> None:
        for member in members:
            self._router.member_moved(member)

    def _moved(self, session: Subscriber) -> None:
        if self._moving.pop(session):
            self.connected_or_left(session)


def _shared_of(session: Subscriber) -> list[Subscription]:
    return [member for member in session.subscriptions.all() if is_shared(member.filter)]
