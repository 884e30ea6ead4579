"""Members of shared subscriptions follow their client, however many there are, and however often it comes and goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.bounds import ENDED_FILTERS_A_STEP
from flockmq.clock import SYSTEM
from flockmq.routing.subscriber import Subscription
from flockmq.session.moved_members import MovedMembers
from flockmq.time_slices import TimeSlices
from unit.broker.durable.session_owner import SessionOwner

FILTERS = 10 * ENDED_FILTERS_A_STEP
WINDOW = 32
"""Of a client that is connected; it is 0 while it is offline."""


class Moving:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flockmq.bounds.SLOT_WORK_MAX_S", 0.0)  # a step in each iteration
        self.owner = SessionOwner()
        self.router = self.owner.router
        self.soon: list[Callable[[], None]] = []
        self.members = MovedMembers(self.router, TimeSlices(self.soon.append, SYSTEM))
        self.session = self.owner.fresh(window=WINDOW)

    def subscribe(self, count: int = FILTERS) -> None:
        for number in range(count):
            member = Subscription(self.session, b"$share/g/%d" % number, 1)
            self.session.subscriptions.add(member)
            self.router.add(member)

    def move(self, is_here: bool) -> None:
        self.session.messages.window = WINDOW if is_here else 0
        self.members.connected_or_left(self.session)

    def counts(self) -> set[tuple[int, int]]:
        return {self.router.shared.count(filter) for filter in self.router.shared.groups}

    def iterate(self) -> int:
        iterations = 0
        while self.soon:
            self.soon.pop(0)()
            iterations += 1
        return iterations


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> Moving:
    return Moving(monkeypatch)


def test_many_are_moved_a_step_in_each_iteration(moving: Moving) -> None:
    moving.subscribe()
    moving.move(False)
    assert moving.counts() == {(1, 0)}
    assert moving.iterate() >= FILTERS // ENDED_FILTERS_A_STEP
    assert moving.counts() == {(0, 1)}


def test_a_few_are_moved_at_once(moving: Moving) -> None:
    moving.subscribe(3)
    moving.move(False)
    assert moving.counts() == {(0, 1)}


def test_who_comes_and_goes_meanwhile_has_one_piece_of_work(moving: Moving) -> None:
    moving.subscribe()
    moving.move(False)
    moving.soon.pop(0)()
    for _ in range(101):
        moving.move(not moving.session.is_connected())
    assert moving.iterate() <= 2 * (FILTERS // ENDED_FILTERS_A_STEP + 3)
    assert moving.counts() == {(1, 0)}


def test_who_has_left_a_group_does_not_come_back_to_it(moving: Moving) -> None:
    moving.subscribe()
    other = Subscription(moving.owner.fresh(client_id=b"o"), b"$share/g/7", 1)
    moving.router.add(other)
    moving.move(False)
    for member in moving.session.subscriptions.all():
        moving.router.remove(member)
    moving.iterate()
    assert moving.router.shared.members() == 1
