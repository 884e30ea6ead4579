"""A replicant that is cut off from Redis alone: its links are up, its tables grow old, its publishers wait."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from flockmq.bounds import OFFERED_MAX_BYTES
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


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Mend 6: what publishers held waits after they left, without a bound"
)
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
    lines = cluster.nodes[CUT].running.node.router.held
    assert sum(line._bytes for line in lines) <= OFFERED_MAX_BYTES


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Mend 6: a node whose tables are old is ready all the same"
)
@scenario()
async def test_a_node_whose_tables_are_old_is_not_ready(cluster: SimulatedCluster) -> None:
    assert cluster.says_ready(CUT)
    await _cut_off(cluster)
    await asyncio.sleep(10.0)
    assert not cluster.says_ready(CUT)
