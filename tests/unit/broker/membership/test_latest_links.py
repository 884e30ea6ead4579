"""What comes by a link that its node has left."""

from __future__ import annotations

from typing import cast

from flockmq.membership.frames import COURIER, FORWARD
from flockmq.membership.handshake import Identity
from flockmq.membership.latest_links import LatestLinks
from flockmq.membership.link import Link

NODE = "b@00000000000000010000"


class _Wire:
    def __init__(self, incarnation: str = NODE) -> None:
        self.peer = Identity(incarnation, "core")


def link(incarnation: str = NODE) -> Link:
    return cast(Link, _Wire(incarnation))


def test_what_comes_by_the_former_link_is_late_once_something_came_by_the_next() -> None:
    latest, first, second = LatestLinks(), link(), link()
    assert not latest.is_late(FORWARD, first, 1)
    assert not latest.is_late(FORWARD, first, 1)
    assert not latest.is_late(FORWARD, second, 1)
    assert latest.is_late(FORWARD, first, 30)
    assert not latest.is_late(FORWARD, second, 1)
    assert latest.late_bytes == 30


def test_kinds_of_data_and_nodes_change_their_links_apart() -> None:
    latest, first, second, others = LatestLinks(), link(), link(), link("c@00000000000000020000")
    assert not latest.is_late(FORWARD, first, 1)
    assert not latest.is_late(FORWARD, second, 1)
    assert not latest.is_late(COURIER, first, 1)
    assert not latest.is_late(FORWARD, others, 1)
    assert latest.is_late(FORWARD, first, 1)


def test_a_former_link_stays_one_when_its_successor_ended() -> None:
    latest, first, second, third = LatestLinks(), link(), link(), link()
    for each in (first, second):
        assert not latest.is_late(FORWARD, each, 1)
    latest.link_down(second)
    assert latest.is_late(FORWARD, first, 1)
    assert not latest.is_late(FORWARD, third, 1)
    latest.link_down(first)
    assert vars(latest) == vars(LatestLinks()) | {"_latest": {(FORWARD, NODE): third}, "late_bytes": 1}
