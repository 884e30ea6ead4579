"""Redis servers beside a cluster of nodes: one primary with replicas and Sentinels, or several masters."""

from __future__ import annotations

import asyncio
from typing import Final

from simulation.cluster import Shape, SimulatedCluster
from simulation.redis.replication import MISSED_AFTER_S
from simulation.redis_host import RedisHost
from simulation.scenario import Client, scenario
from simulation.topology import CLUSTER, DOWN_AFTER_S, SENTINEL

REPLICATED: Final = Shape(redis=SENTINEL)
MASTERS: Final = Shape(redis=CLUSTER)
REPLACED_WITHIN_S: Final = DOWN_AFTER_S + 5.0
IN_STEP_S: Final = 1.0
MESSAGES: Final = 20


def followed(host: RedisHost) -> object:
    return host.server.replication.primary


def keys(host: RedisHost) -> set[bytes]:
    return set(host.server.keys.values)


async def publisher_and_subscriber(cluster: SimulatedCluster) -> tuple[Client, Client]:
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600)
    assert await sub.subscribe("t") == 1
    return await Client.connect(cluster, "pub", at="replicant-2", expiry_s=600), sub


# --- replicas, Sentinels ----------------------------------------------------------------------------------------------


@scenario(REPLICATED)
async def test_two_replicas_follow_the_primary_and_have_what_it_has(cluster: SimulatedCluster) -> None:
    first, *replicas = cluster.topology.hosts
    assert cluster.topology.primary() is first
    assert [followed(host) for host in replicas] == [first.server, first.server]
    await publisher_and_subscriber(cluster)
    await asyncio.sleep(IN_STEP_S)
    assert keys(first) == keys(replicas[0]) == keys(replicas[1])


@scenario(REPLICATED)
async def test_a_replica_takes_the_place_of_a_dead_primary_under_nodes_that_write(cluster: SimulatedCluster) -> None:
    pub, sub = await publisher_and_subscriber(cluster)
    first = cluster.topology.primary()
    answers = []
    for number in range(MESSAGES):
        if number == MESSAGES // 2:
            await first.kill()
            assert not cluster.topology.is_well()
            assert not cluster.topology.serves(cluster.nodes["core-1"].address)
        answers.append(await pub.publish("t", b"%d" % number))
    assert answers == MESSAGES * [0]
    assert await sub.receives(b"%d" % (MESSAGES - 1))
    assert sub.payloads() == [b"%d" % number for number in range(MESSAGES)]
    assert cluster.topology.primary() is not first
    assert cluster.topology.serves(cluster.nodes["core-1"].address)
    assert cluster.topology.primary() is await cluster.primary()


@scenario(REPLICATED)
async def test_a_former_primary_that_is_started_again_follows_the_new_one(cluster: SimulatedCluster) -> None:
    first = cluster.topology.primary()
    await first.kill()
    await asyncio.sleep(REPLACED_WITHIN_S)
    second = cluster.topology.primary()
    assert second is not first
    await publisher_and_subscriber(cluster)
    await first.start()
    await cluster.until_ready()
    assert cluster.topology.primary() is second
    assert [followed(host) for host in cluster.topology.hosts if host is not second] == 2 * [second.server]
    await asyncio.sleep(IN_STEP_S)
    assert keys(first) == keys(second)


@scenario(REPLICATED)
async def test_a_primary_that_is_back_in_time_stays(cluster: SimulatedCluster) -> None:
    first = cluster.topology.primary()
    await first.kill()
    await asyncio.sleep(DOWN_AFTER_S / 2)
    await first.start()
    await asyncio.sleep(REPLACED_WITHIN_S)
    assert cluster.topology.primary() is first


@scenario(REPLICATED)
async def test_a_primary_that_most_sentinels_cannot_reach_is_replaced(cluster: SimulatedCluster) -> None:
    first, second, third = cluster.topology.hosts
    for other in (second, third):
        cluster.cut(first.name, other.name)
    await asyncio.sleep(REPLACED_WITHIN_S)
    assert cluster.topology.primary() in (second, third)
    for other in (second, third):
        cluster.mend(first.name, other.name)
    await cluster.until_ready()
    assert followed(first) is cluster.topology.primary().server


@scenario(REPLICATED)
async def test_a_replica_on_a_cut_path_has_nothing_new_before_it_is_whole(cluster: SimulatedCluster) -> None:
    first, second, third = cluster.topology.hosts
    cluster.cut(first.name, third.name)
    await asyncio.sleep(IN_STEP_S)
    await publisher_and_subscriber(cluster)
    await asyncio.sleep(MISSED_AFTER_S)
    assert keys(first) == keys(second) > keys(third)
    assert not cluster.topology.is_well()
    cluster.mend(first.name, third.name)
    await cluster.until_ready()
    await asyncio.sleep(IN_STEP_S)
    assert keys(first) == keys(third)


# --- masters ----------------------------------------------------------------------------------------------------------


@scenario(MASTERS)
async def test_each_master_has_its_own_keys_and_nodes_write_to_all(cluster: SimulatedCluster) -> None:
    for number in range(MESSAGES):
        await Client.connect(cluster, f"c{number}", at="replicant-1", expiry_s=600)
    hosts = cluster.topology.hosts
    for host in hosts:
        assert {cluster.topology.host_of(key).name for key in host.server.keys.values} == {host.name}
    assert {cluster.redis_of(f"c{number}").name for number in range(MESSAGES)} == {host.name for host in hosts}
    assert all(cluster.session_of(f"c{number}") for number in range(MESSAGES))


@scenario(MASTERS)
async def test_a_node_writes_to_all_masters_or_is_not_served(cluster: SimulatedCluster) -> None:
    address, last = cluster.nodes["core-1"].address, cluster.topology.hosts[-1]
    assert cluster.topology.serves(address)
    cluster.cut(last.name, "core-1")
    assert not cluster.topology.serves(address)
    assert cluster.topology.serves(cluster.nodes["core-2"].address)
    cluster.mend(last.name, "core-1")
    last.fill()
    assert not cluster.topology.serves(address)
    last.clear()
    await last.kill()
    assert not cluster.topology.serves(address)
    assert not cluster.topology.is_well()
    await last.start()
    await cluster.until_ready()
    assert cluster.topology.serves(address)


# --- one server -------------------------------------------------------------------------------------------------------


@scenario()
async def test_the_one_server_is_the_primary_and_has_all_keys(cluster: SimulatedCluster) -> None:
    (only,) = cluster.topology.hosts
    assert cluster.topology.primary() is cluster.topology.host_of(b"any") is only
    await only.kill()
    await only.start()
    await cluster.until_ready()
    pub, sub = await publisher_and_subscriber(cluster)
    assert await pub.publish("t", b"1") == 0
    assert await sub.receives(b"1")
