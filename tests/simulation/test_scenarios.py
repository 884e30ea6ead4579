"""What simulated clusters do at moments that are chosen by hand."""

from __future__ import annotations

import asyncio

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario


@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_a_session_outlives_its_owner(cluster: SimulatedCluster, qos: int) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=60)
    assert await sub.subscribe("t", qos) == qos
    sub.disconnect()
    pub = await Client.connect(cluster, "pub", at="replicant-2", expiry_s=60)
    assert await pub.publish("t", b"before", qos) == 0
    await cluster.hosts[cluster.owner_of("sub")].kill()
    assert await pub.publish("t", b"after", qos) == 0
    sub = await Client.connect(cluster, "sub", at="replicant-2", expiry_s=60)
    assert sub.present
    assert await sub.receives(b"after")
    assert sub.payloads() == [b"before", b"after"]


@scenario()
async def test_a_replicant_that_stood_still_has_its_clients_taken_over(cluster: SimulatedCluster) -> None:
    older = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60)
    cluster.hosts["replicant-1"].pause()
    newer = await Client.connect(cluster, "c", at="replicant-2", expiry_s=60)
    assert newer.present
    cluster.hosts["replicant-1"].resume()
    await older.until_closed()
    await asyncio.sleep(1.0)
    assert newer.is_open
