"""What comes by a link that its node has left."""

from __future__ import annotations

from typing import cast

from flockmq.delivery.latest_links import LatestLinks
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link

NODE = "b@00000000000000010000"


class _Wire:
    def __init__(self, incarnation: str = NODE) -> None:
        self.peer = Identity(incarnation, "core")


def link(incarnation: str = NODE) -> Link:
    return cast(Link, _Wire(incarnation))


def test_what_comes_by_the_former_link_is_late_once_something_came_by_the_next() -> None:
    latest, first, second = LatestLinks(), link(), link()
    assert not latest.is_late(first, 1)
    assert not latest.is_late(first, 1)
    assert not latest.is_late(second, 1)
    assert latest.is_late(first, 30)
    assert not latest.is_late(second, 1)
    assert latest.late_bytes == 30


def test_nodes_change_their_links_apart() -> None:
    latest, first, second, others = LatestLinks(), link(), link(), link("c@00000000000000020000")
    assert not latest.is_late(first, 1)
    assert not latest.is_late(second, 1)
    assert not latest.is_late(others, 1)
    assert latest.is_late(first, 1)


def test_a_former_link_stays_one_when_its_successor_ended() -> None:
    latest, first, second, third = LatestLinks(), link(), link(), link()
    for each in (first, second):
        assert not latest.is_late(each, 1)
    latest.link_down(second)
    assert latest.is_late(first, 1)
    assert not latest.is_late(third, 1)
    latest.link_down(first)
    assert vars(latest) == vars(LatestLinks()) | {"_latest": {NODE: third}, "late_bytes": 1}
