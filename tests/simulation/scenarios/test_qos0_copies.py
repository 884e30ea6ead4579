"""What is sent at QoS 1 or 2 comes once to a durable session and wants it at QoS 0, whatever becomes of its owner."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MOMENT_S: Final = 0.5
MOVED_S: Final = 8.0


@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_an_owner_that_dies_before_anything_is_durable_gave_nothing(cluster: SimulatedCluster, qos: int) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600)
    publisher = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    assert await sub.subscribe("t", 0) == 0
    await asyncio.sleep(MOMENT_S)
    owner = cluster.owner_of("sub")
    cluster.cut(owner, cluster.redis[0].name)
    published = asyncio.create_task(publisher.publish("t", b"1", qos))
    await asyncio.sleep(MOMENT_S)
    await cluster.nodes[owner].kill()
    assert await published == 0
    await asyncio.sleep(MOVED_S)
    assert sub.payloads() == [b"1"]
