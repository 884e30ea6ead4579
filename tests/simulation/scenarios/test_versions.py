"""Nodes of two releases in one cluster: the older ones speak version 1 of its formats only."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import Shape, SimulatedCluster
from simulation.node import SimulatedNode
from simulation.scenario import Client, is_answered, scenario
from simulation.scenarios.test_redis_cut_off import cut_off, leader_of, mend

RAISED_S: Final = 10.0
"""By then a cluster whose nodes all speak a version is at it."""
OLDER: Final = ("core-3", "replicant-2")


def version_of(node: SimulatedNode) -> int:
    return node.running.cluster.version.current


def versions(cluster: SimulatedCluster) -> set[int]:
    return {version_of(node) for node in cluster.nodes.values()}


async def replace(cluster: SimulatedCluster, name: str, speaks: int) -> None:
    """By a node of another release, as a rollout does it."""
    node = cluster.nodes[name]
    await node.drain()
    node.speaks = speaks
    await node.start()


async def upgrade(cluster: SimulatedCluster, name: str, speaks: int = 2) -> None:
    await replace(cluster, name, speaks)
    await cluster.until_ready()


async def check_talks(cluster: SimulatedCluster, said: bytes) -> None:
    """What one replicant's client sends reaches the other's, for a durable session and for a clean one."""
    durable = await Client.connect(cluster, "durable", at="replicant-1", expiry_s=600)
    passing = await Client.connect(cluster, "passing", at="replicant-1", clean=True)
    pub = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    for sub in (durable, passing):
        assert await sub.subscribe("t") == 1
    assert await pub.publish("t", said) == 0
    for sub in (durable, passing):
        assert await sub.receives(said)
        sub.disconnect()


@scenario()
async def test_a_cluster_of_one_release_is_at_its_version(cluster: SimulatedCluster) -> None:
    assert versions(cluster) == {2}
    await upgrade(cluster, "core-1")
    assert versions(cluster) == {2}


ALL: Final = ("core-1", "core-2", "core-3", "replicant-1", "replicant-2")
SETTLES: Final = (("CLUSTER__VERSION_SETTLE", "1m"),)


@scenario(Shape(settings=SETTLES))
async def test_a_new_cluster_is_at_the_version_of_its_release_at_once(cluster: SimulatedCluster) -> None:
    await asyncio.sleep(1.0)
    assert versions(cluster) == {2}


@pytest.mark.parametrize("older", OLDER)
@scenario(Shape(old=OLDER))
async def test_one_node_of_an_older_release_holds_the_cluster_at_its_version(
    cluster: SimulatedCluster, older: str
) -> None:
    for name in OLDER:
        if name != older:
            await upgrade(cluster, name)
    await asyncio.sleep(RAISED_S)
    assert versions(cluster) == {1}
    await check_talks(cluster, b"1")
    await upgrade(cluster, older)
    await asyncio.sleep(RAISED_S)
    assert versions(cluster) == {2}
    await check_talks(cluster, b"2")


@scenario(Shape(old=OLDER))
async def test_a_configured_core_that_is_away_holds_the_raise(cluster: SimulatedCluster) -> None:
    await cluster.hosts["core-3"].kill()
    await upgrade_all_but(cluster, "core-3")
    await asyncio.sleep(RAISED_S)
    assert {version_of(node) for name, node in cluster.nodes.items() if name != "core-3"} == {1}
    await cluster.nodes["core-3"].start()
    await cluster.until_ready()
    assert versions(cluster) == {1}


async def upgrade_all_but(cluster: SimulatedCluster, name: str) -> None:
    for other in OLDER:
        if other != name:
            await replace(cluster, other, 2)
            while not cluster.nodes[other].is_ready:  # noqa: ASYNC110 - simulated time
                await asyncio.sleep(0.1)


@scenario(Shape(old=OLDER, settings=SETTLES))
async def test_until_the_rollout_has_settled_it_can_be_rolled_back(cluster: SimulatedCluster) -> None:
    cluster.shape = cluster.shape._replace(old=())
    for name in OLDER:
        await replace(cluster, name, 2)
    await asyncio.sleep(50.0)
    assert versions(cluster) == {1}
    await upgrade(cluster, "core-3", speaks=1)
    await asyncio.sleep(50.0)
    assert versions(cluster) == {1}
    await replace(cluster, "core-3", 2)
    await asyncio.sleep(50.0)
    assert versions(cluster) == {1}
    await asyncio.sleep(30.0)
    assert versions(cluster) == {2}


@scenario(Shape(old=OLDER, settings=SETTLES))
async def test_a_core_that_leads_again_begins_the_time_anew(cluster: SimulatedCluster) -> None:
    cluster.shape = cluster.shape._replace(old=())
    for name in OLDER:
        await replace(cluster, name, 2)
    while not all(node.is_ready for node in cluster.nodes.values()):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.1)
    first = leader_of(cluster)
    await asyncio.sleep(25.0)
    cut_off(cluster, first)
    await asyncio.sleep(5.0)
    mend(cluster, first)
    await asyncio.sleep(15.0)
    others = [core.name for core in cluster.cores if core.name != first]
    assert leader_of(cluster) in others
    cut_off(cluster, *others)
    await asyncio.sleep(5.0)
    mend(cluster, *others)
    assert leader_of(cluster) == first
    await asyncio.sleep(40.0)
    assert versions(cluster) == {1}
    await asyncio.sleep(30.0)
    assert versions(cluster) == {2}


@scenario(Shape(old=ALL, settings=SETTLES))
async def test_a_cluster_whose_nodes_are_all_upgraded_at_once_is_not_a_new_one(cluster: SimulatedCluster) -> None:
    """Redis starts anew, too: its log goes on in another generation."""
    await asyncio.gather(*(node.drain() for node in cluster.nodes.values()))
    await cluster.hosts["redis"].kill()
    await cluster.hosts["redis"].start()
    for node in cluster.nodes.values():
        node.speaks = 2
        await node.start()
    while not all(node.is_ready for node in cluster.nodes.values()):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.1)
    await asyncio.sleep(50.0)
    assert versions(cluster) == {1}
    await asyncio.sleep(20.0)
    assert versions(cluster) == {2}


@pytest.mark.parametrize("older", ["replicant-2", "core-3"])
@scenario()
async def test_a_node_of_an_older_release_that_comes_late_is_refused_and_hurts_nobody(
    cluster: SimulatedCluster, caplog: pytest.LogCaptureFixture, older: str
) -> None:
    await replace(cluster, older, 1)
    await asyncio.sleep(RAISED_S)
    assert not cluster.nodes[older].is_ready
    members = cluster.nodes["core-1"].running.cluster.nodes_table.values()
    assert older not in [info.name for info in members]
    assert "the cluster is at version 2 of its protocol" in caplog.text
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=600)
    assert await is_answered(sub.subscribe("t"))
    await upgrade(cluster, older)
    assert versions(cluster) == {2}
