"""Wills of clients whose connection ended without DISCONNECT [MQTT-3.1.2-8], when nodes die with it."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from conformance import wire
from simulation.cluster import Shape, SimulatedCluster
from simulation.node import MQTT
from simulation.profiles import BY_RULES
from simulation.scenario import Client, scenario

WILL: Final = wire.Will("wills", b"gone", qos=1)
DELAY_S: Final = 10
LATE_WILL: Final = wire.Will("wills", b"gone", qos=1, properties=[(wire.WILL_DELAY, DELAY_S)])
REFUSED_AFTER_S: Final = 6.0
MOMENT_S: Final = 0.05
AWAY_S: Final = 20.0
TOLD_S: Final = 1.0
"""By then a node has told the next owner what it has."""


async def _watching(cluster: SimulatedCluster) -> Client:
    watcher = await Client.connect(cluster, "watcher", at="replicant-2", clean=True)
    assert await watcher.subscribe(str(WILL.topic)) == 1
    return watcher


@scenario()
async def test_the_will_of_a_durable_session_is_published_when_its_replicant_dies(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, will=WILL)
    await cluster.hosts["replicant-1"].kill()
    assert await watcher.receives(WILL.payload)


@scenario()
async def test_the_will_of_a_clean_session_is_published_when_its_replicant_dies(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    await cluster.hosts["replicant-1"].kill()
    assert await watcher.receives(WILL.payload)


@scenario()
async def test_the_will_of_a_clean_session_is_published_though_its_owner_died_before(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    owner = cluster.owner_of("c")
    await cluster.hosts[owner].kill()
    while cluster.owner_of("c") in ("", owner):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(MOMENT_S)
    await asyncio.sleep(TOLD_S)
    await cluster.hosts["replicant-1"].kill()
    assert await watcher.receives(WILL.payload)


@scenario()
async def test_who_left_in_order_before_its_replicant_died_has_no_will(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    client.disconnect()
    await asyncio.sleep(MOMENT_S)
    await cluster.hosts["replicant-1"].kill()
    assert not await watcher.receives(WILL.payload)


async def _purged_alive(cluster: SimulatedCluster, *, expiry_s: float) -> Client:
    """The client's replicant stood still until it was purged; the client, whose will was published, is told to come
    back. Returns who was to get the will."""
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", clean=not expiry_s, expiry_s=expiry_s, will=WILL)
    cluster.hosts["replicant-1"].pause()
    assert await watcher.receives(WILL.payload)
    cluster.hosts["replicant-1"].resume()
    await client.until_closed()
    await asyncio.sleep(TOLD_S)
    assert watcher.payloads() == [WILL.payload]
    return watcher


@scenario()
async def test_the_will_of_a_clean_session_comes_once_though_its_replicant_was_alive(cluster: SimulatedCluster) -> None:
    await _purged_alive(cluster, expiry_s=0)


@scenario()
async def test_who_comes_back_to_a_session_after_its_node_was_purged_alive_has_a_will_again(
    cluster: SimulatedCluster,
) -> None:
    watcher = await _purged_alive(cluster, expiry_s=60)
    client = await Client.connect(cluster, "c", at="replicant-2", expiry_s=60, will=WILL)
    assert client.present
    client.drop()
    while len(watcher.payloads()) < 2:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(MOMENT_S)


async def _forbidden(cluster: SimulatedCluster, *, clean: bool) -> Client:
    """Rules forbid the will while its client is connected; then its owner and its node die. Who would get the will."""
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=clean, expiry_s=0 if clean else 60, will=WILL)
    await cluster.admin.silence("replicant-2", "c")
    owner = cluster.owner_of("c")
    await cluster.hosts[owner].kill()
    while cluster.owner_of("c") in ("", owner):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(MOMENT_S)
    await asyncio.sleep(TOLD_S)
    await cluster.hosts["replicant-1"].kill()
    return watcher


@scenario(Shape(settings=BY_RULES))
async def test_the_will_of_a_clean_session_that_rules_forbid_meanwhile_isnt_published(
    cluster: SimulatedCluster,
) -> None:
    watcher = await _forbidden(cluster, clean=True)
    assert not await watcher.receives(WILL.payload)


@scenario(Shape(settings=BY_RULES))
async def test_the_will_of_a_durable_session_that_rules_forbid_meanwhile_isnt_published(
    cluster: SimulatedCluster,
) -> None:
    watcher = await _forbidden(cluster, clean=False)
    assert not await watcher.receives(WILL.payload)


async def _gone_with_its_owner(cluster: SimulatedCluster, *, replicant_dies: bool) -> Client:
    """The client's connection ended while its session had no owner, and it is back at once; who is to get the will."""
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, will=WILL)
    owner = cluster.owner_of("c")
    await cluster.hosts[owner].kill()
    client.drop()
    await asyncio.sleep(0.05)
    assert cluster.owner_of("c") in ("", owner)
    if replicant_dies:
        await cluster.hosts["replicant-1"].kill()
    client = await Client.connect(cluster, "c", at="replicant-2", expiry_s=60, will=WILL)
    assert client.present
    return watcher


@scenario()
async def test_a_will_is_published_by_the_next_owner(cluster: SimulatedCluster) -> None:
    watcher = await _gone_with_its_owner(cluster, replicant_dies=False)
    assert await watcher.receives(WILL.payload)


@scenario()
async def test_a_will_is_published_by_the_next_owner_though_its_node_is_gone(cluster: SimulatedCluster) -> None:
    watcher = await _gone_with_its_owner(cluster, replicant_dies=True)
    assert await watcher.receives(WILL.payload)


@scenario()
async def test_a_will_comes_to_a_node_that_was_cut_off_though_the_owner_that_published_it_is_gone(
    cluster: SimulatedCluster,
) -> None:
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, will=WILL)
    owner = cluster.owner_of("c")
    cluster.cut(owner, "replicant-2")
    client.drop()
    await asyncio.sleep(TOLD_S)
    assert watcher.payloads() == []
    await cluster.hosts[owner].kill()
    assert await watcher.receives(WILL.payload)
    await asyncio.sleep(TOLD_S)
    assert watcher.payloads() == [WILL.payload]


async def _back_while_redis_stands_still(cluster: SimulatedCluster, patience_s: float) -> Client:
    """A client with a delayed will is lost, and then refused, or leaves before CONNACK. Returns who has the will."""
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, will=LATE_WILL)
    client.drop()
    await asyncio.sleep(MOMENT_S)
    cluster.redis[0].pause()
    again = Client(cluster, "c", "replicant-1", wire.V5)
    properties: list[tuple[int, wire.Value]] = [(wire.SESSION_EXPIRY, 60)]
    connect = wire.connect(wire.V5, "c", clean=False, keep_alive_s=60, properties=properties, will=LATE_WILL)
    connack = await again.link.open((cluster.nodes["replicant-1"].address, MQTT), connect, patience_s)
    assert (connack is None) == (patience_s < REFUSED_AFTER_S)
    assert connack is None or connack.reason >= 0x80
    cluster.redis[0].resume()
    return watcher


@pytest.mark.parametrize("patience_s", [1.0, 2 * REFUSED_AFTER_S])
@scenario()
async def test_who_was_not_let_in_is_not_back_and_has_a_will(cluster: SimulatedCluster, patience_s: float) -> None:
    watcher = await _back_while_redis_stands_still(cluster, patience_s)
    assert await watcher.receives(LATE_WILL.payload, DELAY_S + TOLD_S)


@pytest.mark.parametrize("patience_s", [1.0, 2 * REFUSED_AFTER_S])
@scenario()
async def test_who_was_not_let_in_and_is_back_in_time_has_none(cluster: SimulatedCluster, patience_s: float) -> None:
    watcher = await _back_while_redis_stands_still(cluster, patience_s)
    await Client.connect(cluster, "c", at="replicant-2", expiry_s=60)
    await asyncio.sleep(2 * DELAY_S)
    assert watcher.payloads() == []


@scenario()
async def test_who_left_in_order_while_redis_was_away_leaves_no_will_though_its_owner_dies(
    cluster: SimulatedCluster,
) -> None:
    """That it left isn't in Redis when its owner dies: only its node knows."""
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, will=WILL)
    await cluster.redis[0].kill()
    client.disconnect()
    await asyncio.sleep(AWAY_S)
    await cluster.hosts[cluster.owner_of("c")].kill()
    await cluster.redis[0].start()
    assert not await watcher.receives(WILL.payload, within_s=AWAY_S)
