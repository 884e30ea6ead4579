"""Redis loses all that it had, or the last of it: owners have it, and write it anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from simulation.cluster import Shape, SimulatedCluster
from simulation.redis_host import RedisHost
from simulation.scenario import Client, scenario

CLIENTS: Final = 12
MOMENT_S: Final = 0.01
LINKED_S: Final = 2.0
NOTICED_S: Final = 1.0
SETTLED_S: Final = 15.0
SLOWLY_LEFT: Final = Shape(settings=(("CLUSTER__EVICTION_RATE", "1"),), clients_at_cores=True)


async def _until_slots(cluster: SimulatedCluster, node: str, *, has: bool) -> None:
    async with asyncio.timeout(SETTLED_S):
        while bool(cluster.slots_of(node)) != has:  # noqa: ASYNC110 - simulated time
            await asyncio.sleep(MOMENT_S)


async def _lose_what_is_acknowledged(
    cluster: SimulatedCluster, publisher: Client, lose: Callable[[RedisHost], None]
) -> None:
    """Redis comes back without the last message, or without anything."""
    (redis,) = cluster.redis
    redis.copy_data()
    assert await publisher.publish("t", b"acknowledged") == 0
    await redis.kill()
    lose(redis)
    await asyncio.sleep(LINKED_S)
    await redis.start()


@pytest.mark.parametrize("behind_s", [0.0, 7200.0])
@scenario()
async def test_no_session_is_lost_though_a_core_comes_that_is_to_have_slots(
    cluster: SimulatedCluster, behind_s: float
) -> None:
    """It would find nothing, and what their former owners write behind that isn't taken. It gets its slots then, though
    a core's clock is far behind that of who noticed it."""
    (redis,) = cluster.redis
    newcomer = cluster.nodes["core-3"]
    await newcomer.kill()
    await _until_slots(cluster, newcomer.name, has=False)
    clients = [await Client.connect(cluster, f"c{i}", at="replicant-1", expiry_s=60) for i in range(CLIENTS)]
    for client in clients:
        assert await client.subscribe("t") == 1
    await redis.kill()
    redis.empty()
    await newcomer.start()
    await asyncio.sleep(LINKED_S)
    await redis.start()
    await asyncio.sleep(NOTICED_S)
    for core in ("core-1", "core-2"):
        cluster.hosts[core].shift_clock(-behind_s)
    await _until_slots(cluster, newcomer.name, has=True)
    await asyncio.sleep(LINKED_S)
    assert all(client.is_open for client in clients)


@pytest.mark.parametrize("lose", [RedisHost.empty, RedisHost.restore_copy])
@scenario(SLOWLY_LEFT)
async def test_no_message_is_lost_though_its_owner_drains_when_redis_is_back_without_it(
    cluster: SimulatedCluster, lose: Callable[[RedisHost], None]
) -> None:
    """A Redis with a copy has all of the log, so nothing says that it lost anything. The leader's next round comes
    before its tables show the next generation."""
    leader = await cluster.leader()
    assert leader is not None
    leaving = next(node for name, node in cluster.nodes.items() if cluster.slots_of(name) and node is not leader)
    names = cluster.clients_of(leaving.name, 2 * CLIENTS)
    for name in names:
        client = await Client.connect(cluster, name, at=leaving.name, expiry_s=60)
        assert await client.subscribe("t") == 1
        if name in names[CLIENTS:]:
            client.disconnect()
    publisher = await Client.connect(cluster, "publisher", at=leader.name)
    await asyncio.sleep(SETTLED_S)
    await _lose_what_is_acknowledged(cluster, publisher, lose)
    await leaving.drain()
    await asyncio.sleep(LINKED_S)
    for name in names[CLIENTS:]:
        client = await Client.connect(cluster, name, at=leader.name, expiry_s=60)
        assert await client.receives(b"acknowledged"), name


@pytest.mark.parametrize("lose", [RedisHost.empty, RedisHost.restore_copy])
@scenario()
async def test_no_message_is_lost_though_its_owner_stops_when_redis_is_back_without_it(
    cluster: SimulatedCluster, lose: Callable[[RedisHost], None]
) -> None:
    """It has no clients, so it doesn't drain for long."""
    leader = await cluster.leader()
    leaving = next(node for name, node in cluster.nodes.items() if cluster.slots_of(name) and node is not leader)
    names = cluster.clients_of(leaving.name, CLIENTS)
    for name in names:
        client = await Client.connect(cluster, name, at="replicant-1", expiry_s=60)
        assert await client.subscribe("t") == 1
        client.disconnect()
    publisher = await Client.connect(cluster, "publisher", at="replicant-2")
    await asyncio.sleep(SETTLED_S)
    await _lose_what_is_acknowledged(cluster, publisher, lose)
    await leaving.drain()
    await asyncio.sleep(LINKED_S)
    for name in names:
        client = await Client.connect(cluster, name, at="replicant-1", expiry_s=60)
        assert await client.receives(b"acknowledged"), name
