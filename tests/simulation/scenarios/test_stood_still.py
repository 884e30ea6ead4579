"""A node that stood still matches nothing by the tables that it had before."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

STILL_S: Final = 2.0
"""Not so long that it is purged."""
MOMENT_S: Final = 0.5


@pytest.mark.parametrize("expiry_s", [0, 600])
@scenario()
async def test_what_is_acknowledged_behind_a_suback_comes(cluster: SimulatedCluster, expiry_s: int) -> None:
    """The message came before the node looked at its tables again, and is acknowledged long after the SUBACK."""
    publisher = await Client.connect(cluster, "pub", at="replicant-1", clean=True)
    sub = await Client.connect(cluster, "sub", at="replicant-2", clean=True, expiry_s=expiry_s)
    await asyncio.sleep(MOMENT_S)
    cluster.nodes["replicant-1"].pause()
    published = asyncio.create_task(publisher.publish("t", b"1"))
    await asyncio.sleep(MOMENT_S)
    assert await sub.subscribe("t") == 1
    await asyncio.sleep(STILL_S)
    assert not published.done()
    cluster.nodes["replicant-1"].resume()
    assert await published == 0
    assert await sub.receives(b"1")
