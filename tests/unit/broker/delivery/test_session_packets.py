"""Packets for clients of other nodes: by one link after another, never by two at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from flockmq import bounds
from flockmq.delivery import frames
from flockmq.delivery.session_packets import ClientPackets, LatestLinks
from flockmq.membership.cluster import Cluster
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link


class OneWay:
    """A link to `far` as far as packets go: what was sent is in `sent`."""

    def __init__(self) -> None:
        self.peer = SimpleNamespace(incarnation="far")
        self.data_bytes = 0
        self.sent: list[bytes] = []

    def send_data(self, parts: list[bytes], size_bytes: int) -> None:
        self.sent.append(b"".join(parts[1:]))


class Node:
    """One that has links to `far`, the last of them the one to use."""

    def __init__(self) -> None:
        self.links: list[OneWay] = []
        cluster = SimpleNamespace(
            mesh=SimpleNamespace(link_of=lambda _: self.links[-1] if self.links else None),
            handlers=SimpleNamespace(frames={}),
            on_link_down=[],
        )
        self.cluster = cluster
        self.packets = ClientPackets(cast(Cluster, cluster))

    def link(self) -> OneWay:
        self.links.append(OneWay())
        return self.links[-1]

    def link_ends(self, link: OneWay) -> None:
        self.links.remove(link)
        for callback in self.cluster.on_link_down:
            callback(cast(Link, link))

    def send(self, packet: bytes) -> bool:
        return self.packets.send("far", [packet], len(packet))


def test_packets_go_by_the_link_that_there_is() -> None:
    node = Node()
    assert not node.send(b"1")
    link = node.link()
    assert node.send(b"2")
    assert node.send(b"3")
    assert link.sent == [b"2", b"3"]
    assert list(node.cluster.handlers.frames) == [frames.DELIVERY]


def test_there_is_no_room_where_too_much_waits() -> None:
    node = Node()
    node.link().data_bytes = bounds.DELIVERIES_MAX_BYTES + 1
    assert not node.send(b"1")


def test_a_better_link_has_all_said_again_before_it_is_used() -> None:
    """A link without a core in between comes while what went through the core may be under way."""
    node = Node()
    through_a_core = node.link()
    assert node.send(b"1")
    direct = node.link()
    assert not node.send(b"2")
    node.link_ends(through_a_core)
    assert node.send(b"1 again")
    assert node.send(b"2")
    assert direct.sent == [b"1 again", b"2"]


def test_a_link_that_ended_is_forgotten() -> None:
    node = Node()
    first = node.link()
    assert node.send(b"1")
    node.link_ends(first)
    second = node.link()
    assert node.send(b"2")
    assert second.sent == [b"2"]


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
