"""A node that stops by itself takes nothing with it that it acknowledged."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

CUT_S: Final = 1.7
"""Shorter than it takes the other node to end the link, and long enough for one end of it to wait before it repeats."""
SOON_S: Final = 1.0
DRAINED_MAX_S: Final = 9.0


@pytest.mark.parametrize("is_mended", [True, False])
@scenario()
async def test_a_node_that_stops_waits_for_one_that_it_was_cut_off_from(
    cluster: SimulatedCluster, is_mended: bool
) -> None:
    """Or reaches it through a core."""
    sub = await Client.connect(cluster, "sub", at="replicant-1", clean=True)
    assert await sub.subscribe("t") == 1
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"before") == 0
    cluster.cut("replicant-2", "replicant-1")
    for number in range(3):
        assert await publisher.publish("t", b"%d" % number) == 0
    await asyncio.sleep(CUT_S)
    if is_mended:
        cluster.mend("replicant-2", "replicant-1")
    await cluster.nodes["replicant-2"].drain()
    assert await sub.receives(b"2")
    assert sub.payloads() == [b"before", b"0", b"1", b"2"]


@scenario()
async def test_a_node_that_stops_waits_for_none_that_left_or_is_dead(cluster: SimulatedCluster) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-1", clean=True)
    assert await sub.subscribe("t") == 1
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"before") == 0
    await cluster.nodes["replicant-1"].kill()
    assert await publisher.publish("t", b"late") == 0
    began_s = cluster.loop.time()
    await cluster.nodes["replicant-2"].drain()
    assert cluster.loop.time() - began_s < DRAINED_MAX_S


@scenario()
async def test_what_a_member_of_a_node_that_stops_left_goes_to_one_whose_owner_it_was_cut_off_from(
    cluster: SimulatedCluster,
) -> None:
    leaves = await Client.connect(cluster, "leaves", at="replicant-2", clean=True)
    leaves.answers = False
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await leaves.subscribe("$share/g/t") == 1
    assert await publisher.publish("t", b"1") == 0
    assert await leaves.receives(b"1")
    stays = await Client.connect(cluster, "stays", at="replicant-1", expiry_s=600)
    assert await stays.subscribe("$share/g/t") == 1
    await asyncio.sleep(SOON_S)
    owner = cluster.owner_of("stays")
    cluster.cut("replicant-2", owner)
    await cluster.nodes["replicant-2"].drain()
    assert await stays.receives(b"1")
