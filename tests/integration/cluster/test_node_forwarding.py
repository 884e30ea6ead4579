"""Messages between nodes over links that are cut."""

from __future__ import annotations

import asyncio
import random

import pytest

from .conftest import Node, Nodes, until

MESSAGES = 2_000


@pytest.fixture
async def pair(nodes: Nodes) -> tuple[Node, Node]:
    await nodes.start("core-0", "core")
    replicants = await nodes.start("replicant-0", "replicant"), await nodes.start("replicant-1", "replicant")
    await nodes.settled()
    return replicants


async def test_runs_arrive_in_order_with_their_version(pair: tuple[Node, Node]) -> None:
    sender, receiver = pair
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    for n in range(100):
        peer.put_run(5, b"<%d>" % n)
        peer.put_run(4, b"[%d]" % n)
        sender.flush()
    await until(lambda: sum(len(chunk) for _, _, chunk in receiver.received) == 780)
    for version, left, right in ((5, b"<", b">"), (4, b"[", b"]")):
        run = b"".join(chunk for _, chunk_version, chunk in receiver.received if chunk_version == version)
        assert run == b"".join(left + b"%d" % n + right for n in range(100))
    assert {incarnation for incarnation, _, _ in receiver.received} == {sender.incarnation}


@pytest.mark.parametrize("seed", range(3))
async def test_cut_links_lose_double_and_reorder_no_acknowledged_message(pair: tuple[Node, Node], seed: int) -> None:
    sender, receiver = pair
    chance = random.Random(seed)
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    accepted: list[int] = []
    for n in range(MESSAGES):
        assert peer.put_acknowledged(chance.choice((4, 5)), b"%06d" % n, lambda n=n: accepted.append(n))  # type: ignore[misc]
        if chance.random() < 0.3:
            sender.flush()
            await asyncio.sleep(0)
        if chance.random() < 0.01:
            chance.choice(pair).cut_links()
        if chance.random() < 0.02:
            await asyncio.sleep(0.01)
    sender.flush()
    await until(lambda: len(accepted) == MESSAGES and peer.resend_messages == 0)
    arrived = b"".join(chunk for _, _, chunk in receiver.received)
    assert arrived == b"".join(b"%06d" % n for n in range(MESSAGES))
    assert sorted(accepted) == list(range(MESSAGES))
    assert peer.resend_bytes == 0


async def test_nobody_waits_for_a_node_that_is_gone(nodes: Nodes, pair: tuple[Node, Node]) -> None:
    sender, receiver = pair
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    await nodes.crash(receiver)
    accepted = asyncio.Event()
    assert peer.put_acknowledged(5, b"message", accepted.set)
    sender.flush()
    await asyncio.wait_for(accepted.wait(), 10)
    await until(lambda: peer.purged)
    assert peer.resend_messages == 0
    assert sender.delivery.nodes.peer(receiver.incarnation) is None


async def test_a_message_of_many_frames_of_others_passes(pair: tuple[Node, Node]) -> None:
    sender, receiver = pair
    peer = sender.delivery.nodes.peer(receiver.incarnation)
    assert peer is not None
    large = random.Random(1).randbytes(3 * 1024 * 1024)
    accepted = asyncio.Event()
    peer.put_run(5, b"small")
    assert peer.put_acknowledged(5, large, accepted.set)
    sender.flush()
    await until(lambda: any(chunk == large for _, _, chunk in receiver.received))
    await asyncio.wait_for(accepted.wait(), 10)
