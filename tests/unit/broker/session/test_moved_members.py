"""Members of shared subscriptions follow their client, however many there are, and however often it comes and goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.bounds import ENDED_FILTERS_A_STEP
from flockmq.clock import SYSTEM
from flockmq.routing.router import Router
from flockmq.routing.sink import AwaySink
from flockmq.routing.subscriber import Subscriber, Subscription
from flockmq.session.moved_members import MovedMembers
from flockmq.telemetry.counters import Counters
from flockmq.time_slices import TimeSlices

FILTERS = 10 * ENDED_FILTERS_A_STEP


class Member(Subscriber):
    is_here = True

    def is_connected(self) -> bool:
        return self.is_here


class Moving:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("flockmq.bounds.SLOT_WORK_MAX_S", 0.0)  # a step in each iteration
        self.router = Router(Counters(), 1 << 20)
        self.soon: list[Callable[[], None]] = []
        self.members = MovedMembers(self.router, TimeSlices(self.soon.append, SYSTEM))
        self.session = Member(AwaySink(self.router, 5), b"c", 0)

    def subscribe(self, count: int = FILTERS) -> None:
        for number in range(count):
            member = Subscription(self.session, b"$share/g/%d" % number, 1)
            self.session.subscriptions.add(member)
            self.router.add(member)

    def move(self, is_here: bool) -> None:
        self.session.is_here = is_here
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
        moving.move(not moving.session.is_here)
    assert moving.iterate() <= 2 * (FILTERS // ENDED_FILTERS_A_STEP + 3)
    assert moving.counts() == {(1, 0)}


def test_who_has_left_a_group_does_not_come_back_to_it(moving: Moving) -> None:
    moving.subscribe()
    other = Subscription(Member(AwaySink(moving.router, 5), b"o", 0), b"$share/g/7", 1)
    moving.router.add(other)
    moving.move(False)
    for member in moving.session.subscriptions.all():
        moving.router.remove(member)
    moving.iterate()
    assert moving.router.shared.members() == 1
