"""A primary that was cut off, and replaced meanwhile, takes writes until the Sentinels see it: for 8 s."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, scenario
from simulation.topology import DOWN_AFTER_S, SENTINEL

CLIENTS: Final = 6
BACK_MAX_S: Final = 4.0


@pytest.mark.parametrize("replaced_for_s", [0.0, 0.5, 1.0, 2.0])
@scenario(Shape(redis=SENTINEL))
async def test_what_is_written_goes_on_at_the_next_one(cluster: SimulatedCluster, replaced_for_s: float) -> None:
    """Who waited to be connected to it was sent there by what the Sentinels said before."""
    clients = [await Client.connect(cluster, f"c{i}", at="replicant-1", expiry_s=600) for i in range(CLIENTS)]
    former = cluster.topology.primary()
    paths = [
        path for other in cluster.hosts if other != former.name for path in ((former.name, other), (other, former.name))
    ]
    for path in paths:
        cluster.cut(*path)
    await asyncio.sleep(DOWN_AFTER_S + 1.0 + replaced_for_s)
    for path in paths:
        cluster.mend(*path)
    mended_at = cluster.loop.time()
    assert await asyncio.gather(*(client.subscribe("t") for client in clients)) == CLIENTS * [1]
    assert cluster.topology.primary() is not former
    assert cluster.loop.time() - mended_at < BACK_MAX_S
