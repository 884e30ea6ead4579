"""A QoS 2 message to a shared subscription comes to one member, once, though its publisher says it again: at the same
node, at another one, or because the first one died.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

SHARED: Final = "$share/g/t"
AWAY_S: Final = 0.5
"""By then all was dealt out; what was answered the publisher never heard."""
SETTLED_S: Final = 2.0
MESSAGES: Final = 12
PAYLOADS: Final = [b"%d" % number for number in range(MESSAGES)]


async def members(cluster: SimulatedCluster, expiry_s: int, *nodes: str) -> list[Client]:
    made = [await Client.connect(cluster, f"m{n}", at=at, expiry_s=expiry_s) for n, at in enumerate(nodes)]
    for member in made:
        assert await member.subscribe(SHARED, 2) == 2
    await asyncio.sleep(AWAY_S)
    return made


async def publisher_at(cluster: SimulatedCluster, at: str) -> Client:
    return await Client.connect(cluster, "pub", at=at, expiry_s=600)


def say(publisher: Client, ids: list[int] | None = None) -> list[int]:
    """All messages, or again those of these packet ids."""
    return [
        publisher.send("t", payload, 2, dup=ids is not None, packet_id=ids[number] if ids else 0)
        for number, payload in enumerate(PAYLOADS)
    ]


async def say_again(cluster: SimulatedCluster, at: str, ids: list[int]) -> None:
    publisher = await publisher_at(cluster, at)
    assert publisher.present
    say(publisher, ids)
    await asyncio.sleep(SETTLED_S)


def check_came_once(*clients: Client) -> None:
    came = Counter(payload for client in clients for payload in client.payloads())
    assert came == dict.fromkeys(PAYLOADS, 1)


@pytest.mark.parametrize("expiry_s", [0, 600])
@pytest.mark.parametrize("again_at", ["replicant-1", "replicant-2"])
@pytest.mark.parametrize("after_s", [0.002, 0.004, 0.006, AWAY_S])
@scenario()
async def test_what_has_no_PUBREC_is_said_again(
    cluster: SimulatedCluster, after_s: float, again_at: str, expiry_s: int
) -> None:
    """Its node gets it, asks its owner, deals it out, and can't say so."""
    shared = await members(cluster, expiry_s, "replicant-1", "replicant-1", "replicant-2", "core-1")
    publisher = await publisher_at(cluster, "replicant-1")
    ids = say(publisher)
    await asyncio.sleep(after_s)
    publisher.drop()
    await say_again(cluster, again_at, ids)
    check_came_once(*shared)


@pytest.mark.parametrize("expiry_s", [0, 600])
@scenario()
async def test_it_is_said_again_while_members_come_and_go(cluster: SimulatedCluster, expiry_s: int) -> None:
    shared = await members(cluster, expiry_s, "replicant-1", "replicant-2", "core-1")
    publisher = await publisher_at(cluster, "replicant-1")
    ids = say(publisher)
    await asyncio.sleep(AWAY_S)
    publisher.drop()
    await asyncio.sleep(SETTLED_S)
    assert await shared[1].unsubscribe(SHARED) == 0
    late = await Client.connect(cluster, "late", at="replicant-2", expiry_s=expiry_s)
    assert await late.subscribe(SHARED, 2) == 2
    await say_again(cluster, "replicant-2", ids)
    check_came_once(*shared, late)


@pytest.mark.parametrize("expiry_s", [0, 600])
@scenario()
async def test_it_is_said_again_where_its_node_died(cluster: SimulatedCluster, expiry_s: int) -> None:
    shared = await members(cluster, expiry_s, "replicant-2", "replicant-2", "core-1")
    publisher = await publisher_at(cluster, "replicant-1")
    ids = say(publisher)
    await asyncio.sleep(AWAY_S)
    await cluster.nodes["replicant-1"].kill()
    await say_again(cluster, "replicant-2", ids)
    check_came_once(*shared)
