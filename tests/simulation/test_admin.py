"""What an operator asks of simulated nodes is done, whatever else is asked of others meanwhile."""

from __future__ import annotations

import asyncio

from flockmq.mqtt.reason import Reason
from simulation.cluster import Shape, SimulatedCluster
from simulation.profiles import BY_RULES
from simulation.scenario import Client, scenario


@scenario(Shape(settings=BY_RULES))
async def test_what_two_nodes_are_asked_to_deny_at_once_is_denied(cluster: SimulatedCluster) -> None:
    """While Redis stands still, so that neither knows of the other's change."""
    (redis,) = cluster.redis
    redis.pause()
    asking = [cluster.admin.deny("replicant-1", "a"), cluster.admin.deny("replicant-2", "b")]
    denied = asyncio.gather(*asking)
    await asyncio.sleep(0.5)
    redis.resume()
    await denied
    await asyncio.sleep(0.5)
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    for topic in ("a/1", "b/1"):
        assert await publisher.publish(topic, b"1") == Reason.NOT_AUTHORIZED


@scenario(Shape(settings=BY_RULES))
async def test_a_ban_is_lifted_by_a_node_that_has_not_read_of_it_yet(cluster: SimulatedCluster) -> None:
    await asyncio.sleep(0.5)
    cluster.cut("redis", "replicant-2")
    await cluster.admin.ban("replicant-1", "banned")
    lifted = asyncio.create_task(cluster.admin.lift("replicant-2", "banned"))
    await asyncio.sleep(0.5)
    cluster.mend("redis", "replicant-2")
    await lifted
    await asyncio.sleep(0.5)
    client = await Client.connect(cluster, "banned", at="replicant-1", clean=True)
    assert client.is_open
