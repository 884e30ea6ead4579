"""Messages between replicants that go through a core: what `cluster.forwarding = "via-core"` promises."""

from __future__ import annotations

import asyncio
import random

import pytest

from flockmq import bounds
from flockmq.delivery.node_sender import NodeSender
from flockmq.membership.link import Link
from flockmq.membership.mesh import DialTarget, Mesh, _NoLink, _Target
from flockmq.routing.sink import CONGESTED, FLOWING

from .conftest import Node, Nodes, until

MESSAGES = 5_000


@pytest.fixture
def dialled(monkeypatch: pytest.MonkeyPatch) -> list[DialTarget]:
    """Whatever any node dials."""
    dial = Mesh._dial
    ways: list[DialTarget] = []

    async def noting(mesh: Mesh, way: DialTarget, target: _Target) -> Link | _NoLink:
        ways.append(way)
        return await dial(mesh, way, target)

    monkeypatch.setattr(Mesh, "_dial", noting)
    return ways


@pytest.fixture
async def cores(nodes: Nodes) -> list[Node]:
    return [await nodes.start(f"core-{n}", "core") for n in range(3)]


@pytest.fixture
async def replicants(nodes: Nodes, dialled: list[DialTarget], cores: list[Node]) -> tuple[Node, Node]:
    replicants = (
        await nodes.start("replicant-0", "replicant", via_core=True),
        await nodes.start("replicant-1", "replicant", True),
    )
    await nodes.settled()
    return replicants


def tunnel_of(one: Node, other: Node) -> Link:
    (link,) = one.cluster.mesh.links_of(other.incarnation)
    return link


async def stalled(sender: Node, receiver: Node) -> tuple[NodeSender, list[asyncio.Transport]]:
    """One's messages for the other, who got the first of them, and reads nothing more on what it is reached by."""
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    peer.put_run(5, b"first")
    sender.flush()
    await until(lambda: bool(receiver.received))
    readers = [link._transport for link in receiver.cluster.mesh.links() if link._transport and not link.through]
    for transport in readers:
        transport.pause_reading()
    return peer, readers


async def test_replicants_exchange_messages_and_never_dial_one_another(
    replicants: tuple[Node, Node], dialled: list[DialTarget]
) -> None:
    accepted: list[int] = []
    for sender, receiver in (replicants, replicants[::-1]):
        peer = sender.delivery.nodes.peer(receiver.incarnation)
        assert peer is not None
        for n in range(100):
            peer.put_run(5, b"<%02d>" % n)
            assert peer.put_acknowledged(4, b"[%02d]" % n, lambda n=n: accepted.append(n))  # type: ignore[misc]
            sender.flush()
    for sender, receiver in (replicants, replicants[::-1]):
        await until(lambda receiver=receiver: sum(len(run[2]) for run in receiver.received) == 800)  # type: ignore[misc]
        for version, form in ((5, b"<%02d>"), (4, b"[%02d]")):
            arrived = b"".join(
                chunk for who, v, chunk in receiver.received if (who, v) == (sender.incarnation, version)
            )
            assert arrived == b"".join(form % n for n in range(100))
    await until(lambda: sorted(accepted) == sorted([*range(100), *range(100)]))
    for one, other in (replicants, replicants[::-1]):
        assert all(link.through for link in one.cluster.mesh.links_of(other.incarnation))
        assert other.address not in dialled


async def test_a_relaying_core_that_is_killed_loses_doubles_and_reorders_no_acknowledged_message(
    nodes: Nodes, replicants: tuple[Node, Node]
) -> None:
    sender, receiver = replicants
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    accepted: list[int] = []
    relays: set[str] = set()
    chance = random.Random(1)
    for n in range(MESSAGES):
        assert peer.put_acknowledged(5, b"%06d" % n + bytes(1000), lambda n=n: accepted.append(n))  # type: ignore[misc]
        if chance.random() < 0.2:
            sender.flush()
            await asyncio.sleep(0)
        if n == MESSAGES // 2:
            await until(lambda: bool(receiver.received) and bool(sender.cluster.mesh.links_of(receiver.incarnation)))
            relays.add(tunnel_of(sender, receiver).through)
            (relay,) = (node for node in nodes.running if node.incarnation in relays)
            await nodes.crash(relay)
    sender.flush()
    await until(lambda: len(accepted) == MESSAGES and peer.resend_messages == 0)
    assert tunnel_of(sender, receiver).through not in relays
    arrived = b"".join(chunk for _, _, chunk in receiver.received)
    assert arrived == b"".join(b"%06d" % n + bytes(1000) for n in range(MESSAGES))
    assert sorted(accepted) == list(range(MESSAGES))


async def test_what_the_far_node_does_not_read_waits_at_the_publishers_node(
    cores: list[Node], replicants: tuple[Node, Node]
) -> None:
    sender, receiver = replicants
    peer, readers = await stalled(sender, receiver)
    drained = asyncio.Event()
    peer.on_drained = lambda _: drained.set()
    chunk = bytes(256 * 1024)
    for n in range(100):
        assert peer.put_acknowledged(5, b"%06d" % n + chunk, lambda: None)
        sender.flush()
        await asyncio.sleep(0)
    assert peer.flow == CONGESTED
    assert tunnel_of(sender, receiver).data_bytes > 90 * len(chunk)
    for core in cores:
        waiting = sum(link.tunnelled_bytes for link in core.cluster.mesh.links())
        assert waiting <= bounds.TUNNEL_WINDOW_BYTES
    for transport in readers:
        transport.resume_reading()
    await drained.wait()
    await until(lambda: peer.resend_messages == 0)
    assert peer.flow == FLOWING
    assert b"".join(run[2] for run in receiver.received) == b"first" + b"".join(b"%06d" % n + chunk for n in range(100))


async def test_what_a_node_sent_through_a_core_arrives_when_it_leaves(
    nodes: Nodes, replicants: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINK_LEAVE_MAX_S", 60.0)
    sender, receiver = replicants
    peer, readers = await stalled(sender, receiver)
    tunnel = tunnel_of(sender, receiver)
    chunk = bytes(256 * 1024)
    for n in range(20):
        assert peer.put_acknowledged(5, b"%06d" % n + chunk, lambda: None)
        sender.flush()
    leaving = asyncio.ensure_future(nodes.stop(sender))
    await until(lambda: bool(tunnel.reason))
    for transport in readers:
        transport.resume_reading()
    await leaving
    arrived = b"".join(run[2] for run in receiver.received).replace(chunk, b";")
    assert arrived == b"first" + b"".join(b"%06d;" % n for n in range(20))


async def test_tunnels_that_carry_nothing_any_more_are_closed(
    cores: list[Node], replicants: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    sender, receiver = replicants
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    monkeypatch.setattr(bounds, "PEER_IDLE_S", 0.5)
    peer.put_run(5, b"one")
    sender.flush()
    await until(lambda: bool(receiver.received))
    assert sum(core.cluster.mesh.tunnels.relayed for core in cores) == 1
    await until(lambda: not sender.cluster.mesh.links_of(receiver.incarnation))
    await until(lambda: sum(core.cluster.mesh.tunnels.relayed for core in cores) == 0)
    ends = [node.cluster.mesh.tunnels._ends for node in (*cores, *replicants)]
    await until(lambda: not any(tunnels for ends_here in ends for tunnels in ends_here.values()))
