"""Which peer an incarnation has, whatever becomes of its row."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from flockmq import bounds
from flockmq.delivery.node_forwarding import NodeForwarding
from flockmq.membership import frames
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.mesh import Mesh
from flockmq.routing.shared_delivery import SHARED

NODE = "b@00000000000000010000"


@pytest.fixture
async def forwarding() -> NodeForwarding:
    mesh = cast(Mesh, SimpleNamespace(links_of=lambda _: []))
    return NodeForwarding([], mesh, ignore, ignore, ignore, ignore, lambda: False, lambda: False)


class Wire:
    """A link, and what is said on it to be accepted."""

    def __init__(self) -> None:
        self.peer = Identity(NODE, "core")
        self.used_at = self.heard_at = 0.0
        self.is_open = True
        self.data_bytes = 0
        self.accepted: list[int] = []

    def send_data(self, frame: list[bytes], frame_bytes: int) -> None: ...

    def control(self, message: frames.Accepted) -> None:
        self.accepted.append(message.number)


class Doubting:
    """A node that may be purged, until it is sure."""

    def __init__(self) -> None:
        self.may_be_purged = True
        self.delivered: list[bytes] = []
        self.wanted: list[str] = []
        mesh = cast(Mesh, SimpleNamespace(links_of=lambda _: []))
        deliver = lambda incarnation, version, chunk: self.delivered.append(chunk)  # noqa: E731
        self.forwarding = NodeForwarding(
            [], mesh, self.wanted.append, deliver, ignore, ignore, lambda: False, lambda: self.may_be_purged
        )
        self.wire = Wire()

    async def take(self, number: int, chunk: bytes, version: int = 4 | SHARED) -> None:
        self.forwarding.take_batch(cast(Link, self.wire), number, version, chunk)
        await asyncio.sleep(0)


@pytest.fixture
async def doubting() -> Doubting:
    return Doubting()


async def test_a_node_that_may_be_purged_gives_out_shared_deliveries_when_it_is_sure(doubting: Doubting) -> None:
    await doubting.take(1, b"ordinary", 4)
    await doubting.take(2, b"shared")
    await doubting.take(3, b"ordinary too", 4)
    assert doubting.delivered == [b"ordinary", b"ordinary too"]
    doubting.forwarding.look()
    assert doubting.forwarding.last_accepted(NODE) == 1
    doubting.may_be_purged = False
    await doubting.take(4, b"behind it")
    assert doubting.wire.accepted[-1] == 1, "its sender may give the others to another node"
    doubting.forwarding.look()
    await asyncio.sleep(0)
    assert doubting.delivered[2:] == [b"shared", b"behind it"]
    assert doubting.wire.accepted[-1] == 4


async def test_a_node_that_was_purged_gives_out_nothing_of_what_it_doubted(doubting: Doubting) -> None:
    await doubting.take(1, b"shared")
    doubting.forwarding.begin_anew()
    doubting.may_be_purged = False
    doubting.forwarding.look()
    assert doubting.delivered == []
    assert doubting.forwarding.last_accepted(NODE) == 0


async def test_what_is_sent_again_while_it_waits_comes_once(doubting: Doubting) -> None:
    await doubting.take(1, b"shared")
    await doubting.take(1, b"shared")
    doubting.wire.is_open = doubting.may_be_purged = False
    doubting.forwarding.look()
    assert doubting.delivered == [b"shared"]
    assert doubting.forwarding.last_accepted(NODE) == 1


async def test_whoever_has_messages_for_a_node_wants_a_link_when_the_nodes_own_ended(doubting: Doubting) -> None:
    forwarding, link = doubting.forwarding, cast(Link, doubting.wire)
    peer = forwarding.peer(NODE)
    forwarding.resume(link, 0)
    forwarding.link_down(link)
    assert doubting.wanted == []
    forwarding.resume(link, 0)
    assert peer.put_acknowledged(4, b"message", ignore)
    peer.flush()
    forwarding.link_down(link)
    assert doubting.wanted == [NODE]
    forwarding.stop()


def ignore(*_: object) -> None:
    """What is told of peers."""


async def test_routes_that_stayed_while_a_nodes_row_was_away_lead_to_it_again(forwarding: NodeForwarding) -> None:
    peer = forwarding.peer(NODE)
    forwarding.purge(NODE)
    assert peer.purged
    forwarding.joined(NODE)
    assert forwarding.peer(NODE) is peer
    assert not peer.purged
    accepted: list[bool] = []
    assert peer.put_acknowledged(5, b"message", lambda: accepted.append(True))
    peer.flush()
    assert (accepted, forwarding.resend_messages) == ([], 1)
    forwarding.stop()


async def test_nothing_is_made_for_a_node_that_was_never_purged(forwarding: NodeForwarding) -> None:
    forwarding.joined(NODE)
    assert forwarding._peers == {}


async def test_purged_nodes_are_remembered_within_a_bound(
    forwarding: NodeForwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PEERS_FORMER_MAX", 2)
    for number in range(5):
        forwarding.peer(f"b@{number}")
        forwarding.purge(f"b@{number}")
    assert list(forwarding._former) == ["b@3", "b@4"]
