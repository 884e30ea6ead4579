"""A replicant that is cut off from Redis alone: its links are up, its tables grow old, its publishers wait."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from flockmq.bounds import HELD_MAX_BYTES
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

CUT: Final = "replicant-1"
PUBLISHERS: Final = 20
PACKETS: Final = 4
PAYLOAD: Final = bytes(1_000_000)
STALE_WITHIN_S: Final = 2.0


async def _cut_off(cluster: SimulatedCluster) -> Client:
    """Returns when its tables are old, for a route was written; to whom that leads."""
    for source, target in ((CUT, "redis"), ("redis", CUT)):
        cluster.cut(source, target)
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    await asyncio.sleep(STALE_WITHIN_S)
    assert cluster.nodes[CUT].running.node.router.stale
    return subscriber


@scenario()
async def test_what_waits_for_newer_tables_is_published_by_them(cluster: SimulatedCluster) -> None:
    publisher = await Client.connect(cluster, "publisher", at=CUT, clean=True)
    subscriber = await _cut_off(cluster)
    publisher.send("t", b"1")
    assert not await subscriber.receives(b"1", within_s=1.0)
    for source, target in ((CUT, "redis"), ("redis", CUT)):
        cluster.mend(source, target)
    assert await subscriber.receives(b"1")


@scenario()
async def test_what_publishers_left_behind_is_bounded(cluster: SimulatedCluster) -> None:
    await _cut_off(cluster)
    for number in range(PUBLISHERS):
        publisher = await Client.connect(cluster, f"publisher-{number}", at=CUT, clean=True)
        for _ in range(PACKETS):
            publisher.send("t", PAYLOAD)
        await asyncio.sleep(0.1)
        publisher.drop()
    await asyncio.sleep(1.0)
    lines = cluster.nodes[CUT].running.node.router.held.queues
    assert 0 < sum(line.size_bytes() for line in lines) <= HELD_MAX_BYTES


@scenario()
async def test_a_node_whose_tables_are_old_is_not_ready(cluster: SimulatedCluster) -> None:
    assert cluster.says_ready(CUT)
    await _cut_off(cluster)
    await asyncio.sleep(10.0)
    assert not cluster.says_ready(CUT)


@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_what_a_client_that_comes_back_left_behind_is_published_by_its_repeat(
    cluster: SimulatedCluster, qos: int
) -> None:
    publisher = await Client.connect(cluster, "publisher", at=CUT, expiry_s=600)
    await (await _cut_off(cluster)).unsubscribe("t")
    subscriber = await Client.connect(cluster, "durable", at="replicant-2", expiry_s=600)
    assert await subscriber.subscribe("t", qos) == qos
    await asyncio.sleep(STALE_WITHIN_S)
    for number in (1, 2, 3):
        publisher.send("t", b"%d" % number, qos)
    await asyncio.sleep(0.1)
    publisher.drop()
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", expiry_s=600)
    for number in (1, 2, 3, 4):
        assert await publisher.publish("t", b"%d" % number, qos, dup=number < 4) == 0
    for source, target in ((CUT, "redis"), ("redis", CUT)):
        cluster.mend(source, target)
    await asyncio.sleep(10.0)
    assert subscriber.payloads() == [b"1", b"2", b"3", b"4"]
