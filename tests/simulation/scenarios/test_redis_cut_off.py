"""A core that reaches all nodes, but not Redis, while the other cores do.

Its slots go to cores that can serve them, and it says how it is. While Redis is away for everybody nothing changes."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from conformance import wire
from flockmq.management.view import REDIS_AWAY, ClusterState
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, is_answered, scenario
from simulation.topology import CLUSTER

CORE: Final = "core-2"
REPLICANT: Final = "replicant-2"
ADMITTED_S: Final = 5.0
AWAY_S: Final = 20.0
EARLIER_S: Final = 3.0
LOOK_S: Final = 0.05
WILL_DELAY_S: Final = 20
GIVEN_UP_S: Final = 10.0
"""By then a core that can't serve its slots has given them up, and another one serves them."""


def cut_off(cluster: SimulatedCluster, *nodes: str) -> None:
    for node in nodes:
        cluster.cut(node, "redis")
        cluster.cut("redis", node)


def mend(cluster: SimulatedCluster, *nodes: str) -> None:
    for node in nodes:
        cluster.mend(node, "redis")
        cluster.mend("redis", node)


def leader_of(cluster: SimulatedCluster) -> str:
    return next(core.name for core in cluster.cores if core.assembly is not None and core.assembly.cluster.is_leader)


def shares(cluster: SimulatedCluster) -> list[int]:
    """How many slots each core owns."""
    return [cluster.slots_of(core.name) for core in cluster.cores]


async def check_nothing_changes(cluster: SimulatedCluster, for_s: float) -> None:
    owned, until = shares(cluster), cluster.loop.time() + for_s
    while cluster.loop.time() < until:
        assert shares(cluster) == owned
        assert all(cluster.says_ready(node) for node in cluster.nodes)
        assert {name for name, _ in await cluster.alarms()} <= {REDIS_AWAY}
        await asyncio.sleep(LOOK_S)


async def subscriber(cluster: SimulatedCluster, name: str) -> Client:
    """Of a durable session."""
    client = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await client.subscribe("t") == 1
    return client


async def check_given(cluster: SimulatedCluster, client: Client) -> None:
    """What is published is acknowledged, and comes."""
    pub = await Client.connect(cluster, "pub", at="replicant-2")
    assert await pub.publish("t", b"1") == 0
    assert await client.receives(b"1")


@scenario()
async def test_a_core_that_reaches_redis_serves_its_slots(cluster: SimulatedCluster) -> None:
    known, new = cluster.clients_of(CORE, 2)
    client = await subscriber(cluster, known)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(CORE) > 0
    assert cluster.says_ready(CORE)
    assert cluster.is_said_ready(CORE, by="replicant-1")
    assert not await cluster.alarms()
    await check_given(cluster, client)
    await subscriber(cluster, new)


@scenario()
async def test_a_core_that_is_cut_off_gives_up_its_slots(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(CORE) == 0


@scenario()
async def test_whichever_node_is_asked_it_is_told_who_has_the_slots(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE, REPLICANT)
    await asyncio.sleep(GIVEN_UP_S)
    for node in cluster.nodes:
        state = await told(cluster, node)
        assert not state.stale
        assert {member.name: member.slots for member in state.nodes}[CORE] == 0


async def told(cluster: SimulatedCluster, name: str) -> ClusterState:
    """As /api/v5/cluster of that node has it."""
    node = cluster.nodes[name]
    assert node.process is not None
    return await asyncio.create_task(node.running.node.overview.members(), context=node.process.context)


@scenario()
async def test_a_session_of_a_core_that_is_cut_off_goes_on_elsewhere(cluster: SimulatedCluster) -> None:
    (known,) = cluster.clients_of(CORE, 1)
    client = await subscriber(cluster, known)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert await is_answered(check_given(cluster, client))


@scenario()
async def test_a_new_client_of_a_core_that_is_cut_off_is_admitted(cluster: SimulatedCluster) -> None:
    (new,) = cluster.clients_of(CORE, 1)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert await is_answered(subscriber(cluster, new), ADMITTED_S)


@scenario()
async def test_a_core_that_is_cut_off_says_so(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert not cluster.says_ready(CORE)
    assert not cluster.is_said_ready(CORE, by="replicant-1")
    assert await cluster.alarms()


@scenario()
async def test_a_core_that_is_cut_off_goes_on_when_it_reaches_redis_again(cluster: SimulatedCluster) -> None:
    owned = shares(cluster)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(CORE) == 0
    mend(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert sorted(shares(cluster)) == sorted(owned)
    assert cluster.says_ready(CORE)
    assert not await cluster.alarms()
    (known,) = cluster.clients_of(CORE, 1)
    await check_given(cluster, await subscriber(cluster, known))


@scenario()
async def test_a_core_gets_no_slots_before_it_reaches_redis_again(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    leader, until = leader_of(cluster), cluster.loop.time() + AWAY_S
    await cluster.hosts[leader].kill()  # whoever leads now doesn't know since when it is so
    await cluster.hosts[leader].start()
    while cluster.loop.time() < until:
        assert cluster.slots_of(CORE) == 0
        await asyncio.sleep(LOOK_S)
    assert await cluster.alarms()


@scenario()
async def test_a_leader_that_is_cut_off_gives_up_its_slots_too(cluster: SimulatedCluster) -> None:
    leader = leader_of(cluster)
    cut_off(cluster, leader)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(leader) == 0
    assert not cluster.says_ready(leader)


@scenario()
async def test_one_core_serves_all_slots_where_the_others_are_cut_off(cluster: SimulatedCluster) -> None:
    (known,) = cluster.clients_of("core-1", 1)
    client = await subscriber(cluster, known)
    cut_off(cluster, "core-1", "core-3")
    await asyncio.sleep(GIVEN_UP_S)
    assert shares(cluster) == [0, 1024, 0]
    await check_given(cluster, client)


@scenario()
async def test_a_client_has_one_connection_though_its_owner_is_cut_off(cluster: SimulatedCluster) -> None:
    (known,) = cluster.clients_of(CORE, 1)
    former = await Client.connect(cluster, known, at="replicant-1", clean=True)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    await Client.connect(cluster, known, at="replicant-2", clean=True)
    await former.until_closed()


@scenario()
async def test_a_core_that_is_cut_off_admits_nobody_at_slots_that_it_lost(cluster: SimulatedCluster) -> None:
    """To a replicant that is cut off as well they are that core's still."""
    (known,) = cluster.clients_of(CORE, 1)
    cut_off(cluster, CORE, REPLICANT)
    await asyncio.sleep(GIVEN_UP_S)
    await Client.connect(cluster, known, at="replicant-1", clean=True)
    assert not await is_answered(Client.connect(cluster, known, at=REPLICANT, clean=True))


@scenario()
async def test_a_replicant_that_is_cut_off_says_so(cluster: SimulatedCluster) -> None:
    cut_off(cluster, REPLICANT)
    await asyncio.sleep(GIVEN_UP_S)
    assert not cluster.says_ready(REPLICANT)
    assert not cluster.is_said_ready(REPLICANT, by="core-1")
    assert [name for name, _ in await cluster.alarms()] == [f"redis-unreachable/{REPLICANT}"]
    mend(cluster, REPLICANT)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.says_ready(REPLICANT)
    assert not await cluster.alarms()


@scenario()
async def test_nothing_changes_while_redis_is_away_for_everybody(cluster: SimulatedCluster) -> None:
    client = await Client.connect(cluster, "client", at="replicant-1", clean=True)
    assert await client.subscribe("t") == 1
    cut_off(cluster, *cluster.nodes)
    await check_nothing_changes(cluster, AWAY_S)
    assert [name for name, _ in await cluster.alarms()] == [REDIS_AWAY]
    await check_given(cluster, client)
    mend(cluster, *cluster.nodes)
    await check_nothing_changes(cluster, AWAY_S)
    assert not await cluster.alarms()


@scenario()
async def test_nothing_changes_while_redis_is_down(cluster: SimulatedCluster) -> None:
    redis = await cluster.primary()
    assert redis is not None
    await redis.kill()
    await check_nothing_changes(cluster, AWAY_S)
    await redis.start()
    await check_nothing_changes(cluster, AWAY_S)


@scenario(Shape(redis=CLUSTER))
async def test_nothing_changes_while_a_master_is_away_for_everybody(cluster: SimulatedCluster) -> None:
    """One that has some of the log: the leader reaches the one with its lease."""
    lease, route = cluster.topology.host_of(b"{cluster}"), cluster.topology.host_of(b"{route}")
    assert lease is not route
    await route.kill()
    await check_nothing_changes(cluster, AWAY_S)


@scenario()
async def test_nothing_changes_though_one_core_reaches_redis_a_little_earlier_than_the_others(
    cluster: SimulatedCluster,
) -> None:
    cut_off(cluster, *cluster.nodes)
    await asyncio.sleep(AWAY_S)
    mend(cluster, CORE)
    await check_nothing_changes(cluster, EARLIER_S)
    mend(cluster, *(node for node in cluster.nodes if node != CORE))
    await check_nothing_changes(cluster, AWAY_S)


@pytest.mark.parametrize("qos", [0, 1])
@scenario()
async def test_who_came_back_elsewhere_has_no_will_by_the_core_that_is_cut_off(
    cluster: SimulatedCluster, qos: int
) -> None:
    """It doesn't know that its slots are another's, nor when it reaches Redis again."""
    will = wire.Will("wills", b"gone", qos=qos, properties=[(wire.WILL_DELAY, WILL_DELAY_S)])
    watcher = await Client.connect(cluster, "watcher", at="replicant-2", clean=True)
    assert await watcher.subscribe("wills") == 1
    (known,) = cluster.clients_of(CORE, 1)
    client = await Client.connect(cluster, known, at="replicant-1", expiry_s=600, will=will)
    cut_off(cluster, CORE)
    client.drop()
    await asyncio.sleep(GIVEN_UP_S)
    await Client.connect(cluster, known, at="replicant-1", expiry_s=600)
    await asyncio.sleep(WILL_DELAY_S)
    mend(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert watcher.payloads() == []
