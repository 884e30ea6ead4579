"""Of a Redis Cluster one master dies, and nobody takes its place: sessions at the other masters go on.

The logs are at the other masters, too.
"""

from __future__ import annotations

import asyncio
from typing import Final

from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, is_answered, scenario
from simulation.topology import CLUSTER

SHAPE: Final = Shape(redis=CLUSTER)
OWNER: Final = "core-1"
MASTER: Final = "redis-1"
"""That has no log."""
TRIED_S: Final = 1.0
MUCH_BYTES: Final = 500_000
MOVED_S: Final = 5.0
"""By then the slots of a node that died have another owner, which has their sessions."""


async def subscribers(cluster: SimulatedCluster) -> tuple[Client, Client]:
    """Of two sessions at one owner, the first of which is at the master that is to die; each to its own name."""
    names = cluster.clients_of(OWNER, 20)
    at_master = [name for name in names if cluster.redis_of(name).name == MASTER]
    at_others = [name for name in names if cluster.redis_of(name).name != MASTER]
    return await subscriber(cluster, at_master[0]), await subscriber(cluster, at_others[0])


async def subscriber(cluster: SimulatedCluster, name: str) -> Client:
    client = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await client.subscribe(name) == 1
    return client


async def check_given(cluster: SimulatedCluster, client: Client) -> None:
    """What is published for it now is acknowledged, and comes."""
    pub = await Client.connect(cluster, f"for-{client.name}", at="replicant-2", clean=True)
    assert await pub.publish(client.name, b"1") == 0
    assert await client.receives(b"1")


async def check_subscribes(client: Client) -> None:
    assert await client.subscribe("another") == 1


async def check_comes_back(cluster: SimulatedCluster, name: str) -> None:
    assert (await Client.connect(cluster, name, at="replicant-2", expiry_s=600)).present


@scenario(SHAPE)
async def test_sessions_at_all_masters_go_on_at_another_owner(cluster: SimulatedCluster) -> None:
    clients = await subscribers(cluster)
    await cluster.hosts[OWNER].kill()
    await asyncio.sleep(MOVED_S)
    for client in clients:
        await check_given(cluster, client)


@scenario(SHAPE)
async def test_a_session_at_a_living_master_goes_on_beside_one_at_a_dead_one(cluster: SimulatedCluster) -> None:
    at_dead, at_living = await subscribers(cluster)
    await cluster.hosts[MASTER].kill()
    waits = asyncio.create_task(check_subscribes(at_dead))
    await asyncio.sleep(TRIED_S)
    assert await is_answered(check_subscribes(at_living))
    assert await is_answered(check_given(cluster, at_living))
    await cluster.hosts[MASTER].start()
    await waits


@scenario(SHAPE)
async def test_what_is_published_for_a_living_master_does_not_wait_for_a_dead_one(cluster: SimulatedCluster) -> None:
    at_dead, at_living = await subscribers(cluster)
    await cluster.hosts[MASTER].kill()
    waits = asyncio.create_task(check_given(cluster, at_dead))
    await asyncio.sleep(TRIED_S)
    assert await is_answered(check_given(cluster, at_living))
    await cluster.hosts[MASTER].start()
    await waits


@scenario(SHAPE)
async def test_it_does_not_wait_for_a_dead_one_however_much_is_published_for_that(cluster: SimulatedCluster) -> None:
    at_dead, at_living = await subscribers(cluster)
    await cluster.hosts[MASTER].kill()
    for number in range(2):
        publisher = await Client.connect(cluster, f"much-{number}", at="replicant-2", clean=True)
        for _ in range(10):
            publisher.send(at_dead.name, bytes(MUCH_BYTES))
    await asyncio.sleep(TRIED_S)
    assert await is_answered(check_given(cluster, at_living))
    await cluster.hosts[MASTER].start()
    await at_dead.until_got(20)


@scenario(SHAPE)
async def test_a_client_is_back_at_a_successor_that_does_not_reach_all_masters(cluster: SimulatedCluster) -> None:
    _, at_living = await subscribers(cluster)
    await cluster.hosts[MASTER].kill()
    await cluster.hosts[OWNER].kill()
    await asyncio.sleep(MOVED_S)
    assert await is_answered(check_comes_back(cluster, at_living.name))


@scenario(SHAPE)
async def test_what_is_published_comes_by_a_successor_that_does_not_reach_all_masters(
    cluster: SimulatedCluster,
) -> None:
    _, at_living = await subscribers(cluster)
    await cluster.hosts[MASTER].kill()
    await cluster.hosts[OWNER].kill()
    await asyncio.sleep(MOVED_S)
    assert await is_answered(check_given(cluster, at_living))
