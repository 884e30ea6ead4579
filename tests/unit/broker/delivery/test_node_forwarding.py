"""Which peer an incarnation has, whatever becomes of its row."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.delivery.node_forwarding import NodeForwarding, ReceivedSequences
from flockmq.membership.cluster import Cluster
from flockmq.membership.fencing import Fencing
from flockmq.membership.frames import Accepted, Resume
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.reachability import new_incarnation
from flockmq.rlog.schema import NodeInfo
from flockmq.routing.shared_frames import SHARED

NODE = "b@00000000000000010000"
NODE_AGAIN = "b@00000000000000010001"
"""As it goes on after it was purged."""


@pytest.fixture
async def forwarding(cluster: Cluster) -> NodeForwarding:
    return NodeForwarding([], cluster)


class Wire:
    """A link, and what is said on it to be accepted."""

    def __init__(self, incarnation: str = NODE) -> None:
        self.peer = Identity(incarnation, "core")
        self.through = ""
        self.used_at = self.heard_at = 0.0
        self.is_open, self.resumed = True, False
        self.data_bytes = 0
        self.accepted: list[int] = []

    def send_data(self, frame: list[bytes], frame_bytes: int) -> None: ...

    def control(self, message: Accepted) -> None:
        self.accepted.append(message.number)


class Doubting:
    """A node that may be purged, until it is sure."""

    def __init__(self, cluster: Cluster) -> None:
        self.fencing = SimpleNamespace(may_be_purged=True, is_fenced=False)
        cluster.fencing = cast(Fencing, self.fencing)
        self.delivered: list[bytes] = []
        self.wanted: list[str] = []
        cluster.want_link = self.wanted.append  # type: ignore[method-assign]
        self.forwarding = NodeForwarding([], cluster)
        self.forwarding.on_received = lambda incarnation, version, chunk: self.delivered.append(chunk)
        self.resumed = cluster.handlers.controls[Resume]
        self._mesh = cluster.mesh
        self.wire = self._linked(NODE)

    def relink(self, incarnation: str = NODE) -> None:
        """The link ends, and there is another one."""
        former = cast(Link, self.wire)
        self.wire.is_open = False
        self._mesh.remove(former)
        self.forwarding.link_down(former)
        self.wire = self._linked(incarnation)

    def _linked(self, incarnation: str) -> Wire:
        wire = Wire(incarnation)
        self._mesh.add(cast(Link, wire))
        return wire

    async def take(self, number: int, chunk: bytes, version: int = 4 | SHARED) -> None:
        self.forwarding.take_batch(cast(Link, self.wire), number, version, chunk)
        await asyncio.sleep(0)


@pytest.fixture
async def doubting(cluster: Cluster) -> Doubting:
    return Doubting(cluster)


async def test_a_node_that_may_be_purged_gives_out_shared_deliveries_when_it_is_sure(doubting: Doubting) -> None:
    await doubting.take(1, b"ordinary", 4)
    await doubting.take(2, b"shared")
    await doubting.take(3, b"ordinary too", 4)
    assert doubting.delivered == [b"ordinary", b"ordinary too"]
    doubting.forwarding.look()
    assert doubting.forwarding.last_accepted(NODE) == 1
    doubting.fencing.may_be_purged = False
    await doubting.take(4, b"behind it")
    assert doubting.wire.accepted[-1] == 1, "its sender may send_to the others to another node"
    doubting.forwarding.look()
    await asyncio.sleep(0)
    assert doubting.delivered[2:] == [b"shared", b"behind it"]
    assert doubting.wire.accepted[-1] == 4


async def test_a_node_that_was_purged_gives_out_nothing_of_what_it_doubted(doubting: Doubting) -> None:
    await doubting.take(1, b"shared")
    doubting.forwarding.reset("a@later")
    doubting.fencing.may_be_purged = False
    doubting.forwarding.look()
    assert doubting.delivered == []
    assert doubting.forwarding.last_accepted(NODE) == 0


async def test_what_is_sent_again_while_it_waits_comes_once(doubting: Doubting) -> None:
    await doubting.take(1, b"shared")
    await doubting.take(1, b"shared")
    doubting.wire.is_open = doubting.fencing.may_be_purged = False
    doubting.forwarding.look()
    assert doubting.delivered == [b"shared"]
    assert doubting.forwarding.last_accepted(NODE) == 1


@pytest.mark.parametrize("incarnation", [NODE, NODE_AGAIN])
async def test_what_waited_is_accepted_on_the_link_by_which_it_came_again(doubting: Doubting, incarnation: str) -> None:
    await doubting.take(1, b"shared")
    doubting.relink(incarnation)
    await doubting.take(1, b"shared")
    assert doubting.wire.accepted == [0]
    doubting.fencing.may_be_purged = False
    doubting.forwarding.look()
    await asyncio.sleep(0)
    assert doubting.delivered == [b"shared"]
    assert doubting.wire.accepted[-1] == 1


async def test_whoever_has_messages_for_a_node_wants_a_link_when_the_nodes_own_ended(doubting: Doubting) -> None:
    forwarding, link = doubting.forwarding, cast(Link, Wire())
    peer = forwarding.sender(NODE)
    doubting.resumed(link, Resume(0))
    forwarding.link_down(link)
    assert doubting.wanted == []
    doubting.resumed(link, Resume(0))
    assert peer.put_acknowledged(4, b"message", ignore)
    peer.flush()
    forwarding.link_down(link)
    assert doubting.wanted == [NODE]
    forwarding.stop()


async def test_routes_that_stayed_while_a_nodes_row_was_away_lead_to_it_again(forwarding: NodeForwarding) -> None:
    peer = forwarding.sender(NODE)
    forwarding.purge(NODE)
    assert peer.purged
    forwarding.joined(NODE)
    assert forwarding.sender(NODE) is peer
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
        forwarding.sender(f"b@{number}")
        forwarding.purge(f"b@{number}")
    assert list(forwarding._former) == ["b@3", "b@4"]


async def test_a_node_that_was_purged_lets_publishers_wait_until_it_is_back(
    cluster: Cluster, forwarding: NodeForwarding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "FORWARD_WAIT_S", 0.01)
    monkeypatch.setattr(cluster.heartbeats, "in_majority", lambda now: True)
    cluster.nodes_table[NODE] = NodeInfo("b", "replicant", "", 0, 0, "1")
    peer = forwarding.peer(NODE)
    assert peer is not None
    waited, told = asyncio.Event(), asyncio.Event()
    cluster.fencing.is_joined = False  # as it is from the purge until it is a member again
    assert peer.put_acknowledged(5, b"message", told.set)
    peer.flush()
    asyncio.get_running_loop().call_later(3 * bounds.FORWARD_WAIT_S, waited.set)
    await waited.wait()
    assert not told.is_set()
    cluster.fencing.is_joined = True
    await asyncio.wait_for(told.wait(), 10)
    peer.purge()


def test_a_gap_is_an_error_and_a_new_acquaintance_may_start_anywhere() -> None:
    inbox = ReceivedSequences()
    assert inbox.accept("a@00000001", 7)
    assert not inbox.accept("a@00000001", 7)
    with pytest.raises(ValueError, match="batch 9 from a@00000001 came after 7"):
        inbox.accept("a@00000001", 9)
    assert inbox.accept("a@00000001", 8)


def test_a_node_that_was_purged_and_came_back_goes_on_with_its_numbers() -> None:
    inbox = ReceivedSequences()
    former = new_incarnation("a")
    later = new_incarnation("a", former)
    assert inbox.accept(former, 1)
    assert inbox.accept(former, 2)
    inbox.forget(former)
    assert inbox.accepted(later) == 2
    assert not inbox.accept(later, 2)
    assert inbox.accept(later, 3)
    assert inbox.accepted(new_incarnation("a")) == 0


def test_a_node_that_came_back_before_its_purge_was_seen_goes_on_with_what_it_brought() -> None:
    inbox = ReceivedSequences()
    former = new_incarnation("a")
    later = new_incarnation("a", former)
    assert inbox.accept(former, 1)
    assert inbox.accepted(later) == 1
    inbox.forget(former)
    assert not inbox.accept(later, 1)
    assert inbox.accept(later, 2)
    inbox.forget(former)
    assert inbox.accepted(later) == 2


def test_a_node_that_came_back_itself_is_numbered_from_one_by_everybody() -> None:
    inbox = ReceivedSequences()
    assert inbox.accept("b@00000001", 7)
    inbox.reset()
    assert inbox.accepted("b@00000001") == 0
    assert inbox.accept("b@00000001", 1)


def test_what_a_purged_node_sent_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PEERS_FORMER_MAX", 2)
    inbox = ReceivedSequences()
    purged = [new_incarnation("a") for _ in range(3)]
    for incarnation in purged:
        inbox.accept(incarnation, 5)
        inbox.forget(incarnation)
    assert [inbox.accepted(incarnation) for incarnation in purged] == [0, 5, 5]
