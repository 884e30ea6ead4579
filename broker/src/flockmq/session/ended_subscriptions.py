"""Removes the subscriptions of ended sessions from the router: a few at once, many in time slices.

A session that has ended gets nothing more, however many of its filters wait. Until they are removed they count for its
user's quota, and their routes stay. Invariant: subscriptions to shared filters are removed at once, because a member
that has ended must not be chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from flockmq.bounds import ENDED_FILTERS_A_STEP, ENDED_FILTERS_AT_ONCE, ENDED_FILTERS_WAITING_MAX
from flockmq.mqtt.topics import is_shared
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.session.remove_subscriptions import remove_subscriptions
from flockmq.time_slices import TimeSlices


class EndedSubscriptions:
    """One per router. `waiting`: how many filters aren't removed yet, at most `waiting_max`."""

    def __init__(self, router: Router, slices: TimeSlices, waiting_max: int = ENDED_FILTERS_WAITING_MAX) -> None:
        self.waiting: int = 0
        self._waiting_max = waiting_max
        self._router = router
        self._slices = slices

    def take(self, session: Subscriber, unrouted: Callable[[list[bytes]], None]) -> list[bytes]:
        """Take all subscriptions of a session that ends. Returns the filters that have no subscribers any more;
        `unrouted` gets further ones later.
        """
        subscriptions = session.subscriptions.all()
        session.subscriptions.clear()
        count = len(subscriptions)
        if count <= ENDED_FILTERS_AT_ONCE or self.waiting + count > self._waiting_max:
            return remove_subscriptions(self._router, subscriptions)
        self._router.detach(session)
        shared: list[Subscription] = []
        others: list[Subscription] = []
        for subscription in subscriptions:
            (shared if is_shared(subscription.filter) else others).append(subscription)
        self.waiting += len(others)
        pieces = [others[at : at + ENDED_FILTERS_A_STEP] for at in range(0, len(others), ENDED_FILTERS_A_STEP)]
        self._slices.add(iter([partial(self._remove, piece, unrouted) for piece in pieces]))
        return remove_subscriptions(self._router, shared)

    def _remove(self, subscriptions: list[Subscription], unrouted: Callable[[list[bytes]], None]) -> None:
        self.waiting -= len(subscriptions)
        gone = remove_subscriptions(self._router, subscriptions)
        if gone:
            unrouted(gone)
