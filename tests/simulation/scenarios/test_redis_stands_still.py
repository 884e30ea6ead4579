"""What waited for Redis comes at once when it goes on: a client that reads loses nothing, and who was refused meanwhile
leaves nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import ANSWER_MAX_S, Client, is_answered, scenario

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


def sessions(cluster: SimulatedCluster) -> set[bytes]:
    """The durable ones, at all owners."""
    nodes = [core.running.node for core in cluster.cores]
    return {
        client_id
        for node in nodes
        if node.durable_host
        for client_id in node.durable_host.session_service.sessions.by_id
    }


async def until_there_are(cluster: SimulatedCluster, *names: bytes) -> None:
    async with asyncio.timeout(ANSWER_MAX_S):
        while sessions(cluster) != set(names):  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("patience_s", [3.0, 8.0])
@scenario()
async def test_a_session_that_began_for_a_client_that_heard_0x88_or_went_ends_and_one_that_was_there_stays(
    cluster: SimulatedCluster, patience_s: float
) -> None:
    known = await Client.connect(cluster, "known", at="replicant-1", expiry_s=600)
    assert await known.subscribe("t", 1) == 1
    known.drop()
    cluster.redis[0].pause()
    for name in ("known", "new"):
        connecting = Client.connect(cluster, name, at="replicant-2", expiry_s=600, patience_s=patience_s)
        assert not await is_answered(connecting, within_s=8.0)
    assert sessions(cluster) == {b"known", b"new"}
    cluster.redis[0].resume()
    await until_there_are(cluster, b"known")
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    assert await publisher.publish("t", b"1") == 0
    known = await Client.connect(cluster, "known", at="replicant-1", expiry_s=600)
    await known.until_got(1)
    new = await Client.connect(cluster, "new", at="replicant-1", expiry_s=600)
    assert (known.present, new.present) == (True, False)
