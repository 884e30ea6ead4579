"""Messages of QoS 0 come in their order, also where a node has left a link on which some of them are under way."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from flockmq.membership.cluster import Cluster
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MOMENT_S: Final = 0.05
HEARD_S: Final = 2.0
"""Less than a node waits for a word from the other one."""
LATE_S: Final = 2.5
MENDED_S: Final = 3.0


@pytest.mark.parametrize("expiry_s", [0, 600])
@scenario()
async def test_what_is_late_on_a_link_that_its_node_left_does_not_come_behind_what_was_published_since(
    cluster: SimulatedCluster, expiry_s: int
) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-2", expiry_s=expiry_s, clean=not expiry_s)
    publisher = await Client.connect(cluster, "pub", at="replicant-1", clean=True)
    assert await sub.subscribe("t", 0) == 0
    publisher.send("t", b"1", 0)
    await asyncio.sleep(HEARD_S)
    here, there = "replicant-1", cluster.owner_of("sub") if expiry_s else "replicant-2"
    left = _link(cluster, here, there)
    cluster.cut(there, here)
    await asyncio.sleep(HEARD_S)
    cluster.slow(here, there, LATE_S)
    publisher.send("t", b"2", 0)
    await asyncio.sleep(MOMENT_S)
    cluster.slow(here, there, 0.0)
    while _link(cluster, here, there) is left:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(MOMENT_S)
    cluster.mend(there, here)
    while _link(cluster, here, there) is None:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(MOMENT_S)
    publisher.send("t", b"3", 0)
    await asyncio.sleep(MENDED_S)
    assert sub.payloads() == [b"1", b"3"]


def _link(cluster: SimulatedCluster, here: str, there: str) -> object:
    return _node(cluster, here).mesh.link_of(_node(cluster, there).incarnation)


def _node(cluster: SimulatedCluster, name: str) -> Cluster:
    assembly = cluster.nodes[name].assembly
    assert assembly is not None
    return assembly.cluster
