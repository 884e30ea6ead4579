"""Tunnels of three nodes on links in memory: two ends and the core between them."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from typing import cast

import pytest

from flockmq import bounds
from flockmq.membership import frames
from flockmq.membership.frames import FrameError, FrameReader
from flockmq.membership.handshake import Identity
from flockmq.membership.link import Link
from flockmq.membership.tunnel import Tunnel
from flockmq.membership.tunnels import Tunnels

INCARNATIONS = {name: f"{name}@0123456789abcdef" for name in ("a", "b", "core")}


class Half:
    """One side of a link: what is sent waits in `wire` until the network carries it."""

    def __init__(self, peer: Identity, dialled: bool) -> None:
        self.peer = peer
        self.dialled = dialled
        self.through = ""
        self.wire: deque[tuple[bytes, int]] = deque()
        self.up = True

    def control(self, message: frames.Control) -> None:
        self.wire.append((frames.control(message), 0))

    def send_tunnelled(self, frame: list[bytes], frame_bytes: int) -> None:
        if self.up:
            self.wire.append((b"".join(frame), frame_bytes))

    @property
    def waiting_bytes(self) -> int:
        return sum(size for _, size in self.wire)


class Talker(asyncio.Protocol):
    """What a link would be: it stops writing where it is told to."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[Exception | None] = []
        self.paused = False
        self.transport: Tunnel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Tunnel, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


class Node:
    def __init__(self, name: str) -> None:
        self.me = Identity(INCARNATIONS[name], "core" if name == "core" else "replicant")
        self.links: dict[str, Half] = {}
        self.welcomed: list[Talker] = []
        self.tunnels = Tunnels(
            lambda: self.me, lambda: cast(list[Link], list(self.links.values())), self.accept_tunnel, random.Random(0)
        )

    def accept_tunnel(self, tunnel: Tunnel) -> None:
        self.welcomed.append(Talker())
        tunnel.start(self.welcomed[-1])

    def dial(self, incarnation: str) -> Talker:
        talker = Talker()
        self.tunnels.dial(cast(Link, talker), incarnation)
        return talker


class Network:
    """a — core — b; both replicants dialled the core."""

    def __init__(self) -> None:
        self.a, self.b, self.core = self.nodes = Node("a"), Node("b"), Node("core")
        for name, node in (("a", self.a), ("b", self.b)):
            node.links["core"] = Half(self.core.me, dialled=True)
            self.core.links[name] = Half(node.me, dialled=False)
        self.ways = [
            (self.a.links["core"], self.core, self.core.links["a"]),
            (self.core.links["a"], self.a, self.a.links["core"]),
            (self.b.links["core"], self.core, self.core.links["b"]),
            (self.core.links["b"], self.b, self.b.links["core"]),
        ]

    def carry_one(self, way: int) -> None:
        half, node, arrives_on = self.ways[way]
        if not half.wire:
            return
        for kind, body in FrameReader(bounds.LINK_FRAME_MAX_BYTES).feed(half.wire.popleft()[0]):
            link = cast(Link, arrives_on)
            if kind == frames.TUNNEL:
                node.tunnels.received(link, *frames.parse_id(body))
            else:
                message = frames.parse_control(body)
                assert isinstance(message, frames.TunnelOpen | frames.TunnelCredit | frames.TunnelClose)
                node.tunnels.take(link, message)

    def carry(self) -> None:
        while any(half.wire for half, _, _ in self.ways):
            for way in range(4):
                self.carry_one(way)

    def cut(self, name: str) -> None:
        for node, half in (
            (self.core, self.core.links[name]),
            (getattr(self, name), getattr(self, name).links["core"]),
        ):
            half.up = False
            half.wire.clear()
            node.tunnels.link_down(cast(Link, half))


@pytest.fixture
async def network() -> Network:
    return Network()


async def test_nothing_is_left_when_a_tunnel_was_closed_and_what_was_written_before_arrives(network: Network) -> None:
    talker = network.a.dial(network.b.me.incarnation)
    talker.transport.write(b"hello")
    network.carry()
    (welcomed,) = network.b.welcomed
    assert network.core.tunnels.relayed == 1
    welcomed.transport.writelines([b"well", b"come"])
    welcomed.transport.write(bytes(3 * bounds.TUNNEL_WINDOW_BYTES))
    welcomed.transport.close()
    network.carry()
    assert (welcomed.received, talker.received) == (b"hello", b"wellcome" + bytes(3 * bounds.TUNNEL_WINDOW_BYTES))
    await asyncio.sleep(0)
    assert (talker.lost, welcomed.lost) == ([None], [None])
    assert network.core.tunnels.relayed == 0
    assert not any(any(node.tunnels._ends.values()) for node in network.nodes)


@pytest.mark.parametrize("seed", range(20))
async def test_bytes_arrive_in_order_and_the_core_holds_no_more_than_the_windows(network: Network, seed: int) -> None:
    chance = random.Random(seed)
    talkers = [network.a.dial(network.b.me.incarnation)]
    network.carry()
    talkers.append(network.b.welcomed[0])
    sent = [b"", b""]
    for _ in range(400):
        side = chance.randrange(2)
        if not talkers[side].paused:
            chunk = chance.randbytes(chance.choice((1, 1000, 70_000, 300_000)))
            sent[side] += chunk
            talkers[side].transport.write(chunk)
        for _ in range(chance.randrange(6)):
            network.carry_one(chance.randrange(4))
        for half in network.core.links.values():
            assert half.waiting_bytes <= bounds.TUNNEL_WINDOW_BYTES
    network.carry()
    assert [talker.received for talker in talkers] == sent[::-1]
    assert not any(talker.paused for talker in talkers)


async def test_who_does_not_read_pauses_who_writes(network: Network) -> None:
    talker = network.a.dial(network.b.me.incarnation)
    network.carry()
    talker.transport.set_write_buffer_limits(high=1000)
    talker.transport.write(bytes(bounds.TUNNEL_WINDOW_BYTES))
    assert not talker.paused
    talker.transport.write(bytes(1001))
    assert talker.paused
    assert talker.transport.get_write_buffer_size() == 1001
    network.carry()
    assert not talker.paused


@pytest.mark.parametrize("lost", ["a", "b"])
async def test_a_tunnel_ends_on_both_sides_when_one_link_is_lost(network: Network, lost: str) -> None:
    talker = network.a.dial(network.b.me.incarnation)
    network.carry()
    network.cut(lost)
    network.carry()
    await asyncio.sleep(0)
    assert len(talker.lost) == len(network.b.welcomed[0].lost) == 1
    assert "was lost" in str(talker.lost[0])
    assert network.core.tunnels.relayed == 0


async def test_a_node_that_the_core_has_no_link_to_is_not_reached(network: Network) -> None:
    talker = network.a.dial("c@0123456789abcdef")
    network.carry()
    await asyncio.sleep(0)
    assert [str(error) for error in talker.lost] == ["the core that was asked has no link to c@0123456789abcdef"]
    assert not any(any(node.tunnels._ends.values()) for node in network.nodes)


async def test_no_way_through_a_core_is_made_of_others(network: Network) -> None:
    network.core.links["b"].through = "another core"
    talker = network.a.dial(network.b.me.incarnation)
    network.carry()
    await asyncio.sleep(0)
    assert "has no link to b@" in str(talker.lost[0])
    network.a.links["core"].through = "another core"
    with pytest.raises(ConnectionError, match="no link to a core"):
        network.a.dial(network.b.me.incarnation)


async def test_no_link_has_more_tunnels_than_it_may(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TUNNELS_MAX", 2)
    for _ in range(2):
        network.a.dial(network.b.me.incarnation)
    with pytest.raises(ConnectionError, match="2 tunnels go through core@"):
        network.a.dial(network.b.me.incarnation)
    network.carry()
    network.core.tunnels.take(cast(Link, network.core.links["a"]), frames.TunnelOpen(5, network.b.me.incarnation))
    assert network.core.links["a"].wire.pop()[0] == frames.control(
        frames.TunnelClose(5, "the core that was asked has no room for another tunnel")
    )
    assert network.core.tunnels.relayed == 2


async def test_a_replicant_passes_nothing_on(network: Network) -> None:
    network.a.tunnels.take(cast(Link, network.a.links["core"]), frames.TunnelOpen(2, network.b.me.incarnation))
    assert network.a.links["core"].wire.pop()[0] == frames.control(frames.TunnelClose(2, "what was asked is no core"))


@pytest.mark.parametrize(
    "violation",
    [frames.TunnelOpen(1, INCARNATIONS["b"]), frames.TunnelOpen(2, INCARNATIONS["b"]), frames.TunnelCredit(1, 1)],
)
async def test_who_breaks_the_rules_loses_the_link(
    network: Network, violation: frames.TunnelOpen | frames.TunnelCredit
) -> None:
    network.a.dial(network.b.me.incarnation)
    network.carry()
    with pytest.raises(FrameError):
        network.core.tunnels.take(cast(Link, network.core.links["a"]), violation)


async def test_more_bytes_than_there_was_credit_for_are_not_passed_on(network: Network) -> None:
    network.a.dial(network.b.me.incarnation)
    network.carry()
    link = cast(Link, network.core.links["a"])
    network.core.tunnels.received(link, 1, bytes(bounds.TUNNEL_WINDOW_BYTES))
    with pytest.raises(FrameError, match="than it had credit for"):
        network.core.tunnels.received(link, 1, b"1")


async def test_what_comes_behind_the_end_of_a_tunnel_is_let_go(network: Network) -> None:
    talker = network.a.dial(network.b.me.incarnation)
    network.carry()
    talker.transport.abort()
    network.b.welcomed[0].transport.write(b"too late")
    network.carry()
    await asyncio.sleep(0)
    assert (talker.received, talker.lost, network.b.welcomed[0].lost) == (b"", [None], [None])


def role_of(talker: Talker) -> object:
    return talker.transport.get_extra_info("role")


async def test_each_end_hears_from_the_core_which_role_the_other_has(network: Network) -> None:
    dialled = network.a.dial(network.b.me.incarnation)
    network.carry()
    assert (role_of(dialled), role_of(network.b.welcomed[0])) == ("replicant", "replicant")


async def test_who_dials_through_nobody_has_the_role_of_its_own_link(network: Network) -> None:
    """A replicant opens a tunnel on its own link to the core, and says itself who dials."""
    link = cast(Link, network.core.links["a"])
    network.core.tunnels.take(link, frames.TunnelOpen(1, network.core.me.incarnation, "core"))
    assert role_of(network.core.welcomed[0]) == "replicant"


async def test_a_core_of_the_first_release_says_no_role(network: Network) -> None:
    network.b.tunnels.take(cast(Link, network.b.links["core"]), frames.TunnelOpen(2, network.b.me.incarnation))
    assert role_of(network.b.welcomed[0]) is None
