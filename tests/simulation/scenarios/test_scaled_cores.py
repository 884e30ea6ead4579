"""Cores are scaled down at once, as the operator does it: nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import Final

from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, scenario

CORES: Final = 5
FEWER: Final = 3
ANSWERED_MAX_S: Final = 1.0
BETWEEN_S: Final = 0.05


@scenario(Shape(cores=CORES))
async def test_what_is_published_while_cores_leave_is_acknowledged_soon(cluster: SimulatedCluster) -> None:
    subscribers = []
    for core in cluster.cores:
        (name,) = cluster.clients_of(core.name, 1)
        subscribers.append(await Client.connect(cluster, name, at="replicant-1", expiry_s=600))
        assert await subscribers[-1].subscribe("t") == 1
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    scaling = asyncio.create_task(cluster.scale_cores(FEWER))
    published = 0
    while not scaling.done():
        begun = cluster.loop.time()
        assert await publisher.publish("t", b"%d" % published) == 0
        assert cluster.loop.time() - begun < ANSWERED_MAX_S
        published += 1
        await asyncio.sleep(BETWEEN_S)
    await scaling
    assert [cluster.slots_of(core.name) > 0 for core in cluster.cores] == [True] * FEWER
    for subscriber in subscribers:
        assert await subscriber.receives(b"%d" % (published - 1))
