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
