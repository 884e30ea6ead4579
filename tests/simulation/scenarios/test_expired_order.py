"""What expired while a client was away comes from no owner behind what was published after it."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MESSAGES: Final = ((b"0 fades", 1), (b"1 stays", 0), (b"2 fades", 1), (b"3 stays", 0))


@pytest.mark.parametrize("after_s", [0.1, 1.0])
@scenario()
async def test_what_expired_does_not_come_behind_what_came_after_it_though_owner_and_redis_die(
    cluster: SimulatedCluster, after_s: float
) -> None:
    """What expired isn't gone from Redis yet, or is, when they do."""
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600)
    assert await sub.subscribe("t", 2) == 2
    sub.drop()
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    for payload, expiry_s in MESSAGES:
        assert await publisher.publish("t", payload, 2, expiry_s=expiry_s) == 0
    await asyncio.sleep(2.0)
    owner, redis = cluster.owner_of("sub"), cluster.redis[0]
    cluster.slow(owner, redis.name, 0.3)
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600)
    await asyncio.sleep(after_s)
    await cluster.hosts[owner].kill()
    await redis.kill()
    await redis.start()
    assert await sub.receives(b"3 stays")
    await asyncio.sleep(5.0)
    assert sub.payloads() == sorted(sub.payloads())
