"""A client that reads loses nothing, and stays, where more than a queue takes waited for Redis and comes at once."""

from __future__ import annotations

import asyncio
from typing import Final

from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, scenario

QUEUE_MAX: Final = 10
SHAPE: Final = Shape(settings=(("MQTT__MAX_MQUEUE_LEN", str(QUEUE_MAX)),))
STALL_S: Final = 4.0
PUBLISHERS: Final = 8


@scenario(SHAPE)
async def test_all_that_waited_for_redis_comes_to_a_client_that_is_connected(cluster: SimulatedCluster) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600, receive_maximum=4)
    assert await sub.subscribe("t/+", 2) == 2
    publishers = [
        await Client.connect(cluster, f"pub{number}", at=f"replicant-{1 + number % 2}", expiry_s=600 * (number % 2))
        for number in range(PUBLISHERS)
    ]
    cluster.redis[0].pause()
    asked = [
        asyncio.create_task(client.publish(f"t/{client.name}", b"%s %d" % (client.name.encode(), number), qos))
        for number in range(QUEUE_MAX)
        for client in publishers
        for qos in (1, 2)
    ]
    await asyncio.sleep(STALL_S)
    assert sub.got == []
    cluster.redis[0].resume()
    assert set(await asyncio.gather(*asked)) == {0}
    await sub.until_got(2 * QUEUE_MAX * PUBLISHERS)
    assert sub.is_open
