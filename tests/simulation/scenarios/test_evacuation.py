"""A node that ends has others take its clients: at a pace, and nobody's will is published who is back soon."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from conformance import wire
from flockmq.bounds import EVICTION_BEGINS_S, OTHERS_UNKNOWN_MAX_S, WILL_HELD_S
from flockmq.mqtt.reason import Reason
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, Refused, scenario

WILL: Final = wire.Will("wills", b"gone", qos=1)
SLOW: Final = Shape(settings=(("CLUSTER__EVICTION_RATE", "10"),))
SHORT: Final = Shape(settings=(("CLUSTER__EVICTION_RATE", "1"), ("NODE__DRAIN_TIMEOUT", "4s")))
KINDS: Final = pytest.mark.parametrize(("clean", "expiry_s", "version"), [(True, 0, 5), (False, 60, 5), (False, 60, 4)])
SLACK_S: Final = 1.0


async def _watching(cluster: SimulatedCluster) -> Client:
    watcher = await Client.connect(cluster, "watcher", at="replicant-2", clean=True)
    assert await watcher.subscribe(str(WILL.topic)) == 1
    return watcher


async def _crowd(cluster: SimulatedCluster, count: int, at: str = "replicant-1") -> list[Client]:
    return [await Client.connect(cluster, f"c{number}", at=at, clean=True) for number in range(count)]


async def _sent_away(cluster: SimulatedCluster, clean: bool, expiry_s: float, version: int) -> None:
    """A client with a will, `c`, whose node drains."""
    client = await Client.connect(
        cluster, "c", at="replicant-1", clean=clean, expiry_s=expiry_s, version=version, will=WILL
    )
    await cluster.nodes["replicant-1"].drain()
    assert not client.is_open


def _seconds(cluster: SimulatedCluster) -> float:
    return cluster.loop.time()


# --- how they go ------------------------------------------------------------------------------------------------------


@scenario(SLOW)
async def test_its_clients_go_at_a_pace_and_none_comes(cluster: SimulatedCluster) -> None:
    clients, began_s = await _crowd(cluster, 30), _seconds(cluster)
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    await asyncio.sleep(EVICTION_BEGINS_S - 0.1)
    assert all(client.is_open for client in clients)
    with pytest.raises(Refused) as refused:
        await Client.connect(cluster, "new", at="replicant-1", clean=True)
    assert refused.value.reason == Reason.USE_ANOTHER_SERVER
    with pytest.raises(Refused) as refused:
        await Client.connect(cluster, "older", at="replicant-1", version=wire.V311, clean=True)
    assert refused.value.reason == 3
    await asyncio.sleep(1.1)
    assert 8 <= sum(not client.is_open for client in clients) <= 12
    await draining
    assert {client.reason for client in clients} == {Reason.USE_ANOTHER_SERVER}
    assert _seconds(cluster) - began_s == pytest.approx(EVICTION_BEGINS_S + 30 / 10, abs=0.5)


@scenario(SLOW)
async def test_nodes_that_end_together_share_the_rate(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster, 20)
    others = [await Client.connect(cluster, f"o{number}", at="replicant-2", clean=True) for number in range(20)]
    began_s = _seconds(cluster)
    await asyncio.gather(*(cluster.nodes[name].drain() for name in ("replicant-1", "replicant-2")))
    assert {client.reason for client in (*clients, *others)} == {Reason.USE_ANOTHER_SERVER}, "cores take clients here"
    assert _seconds(cluster) - began_s == pytest.approx(EVICTION_BEGINS_S + 40 / 10, abs=0.7)


@scenario(SLOW)
async def test_they_go_slower_while_others_are_slow_to_let_clients_in(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster, 60)
    cluster.redis[0].pause()
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    waiting = asyncio.create_task(Client.connect(cluster, "waits", at="replicant-2", expiry_s=60))
    await asyncio.sleep(EVICTION_BEGINS_S + 2.0)
    assert 1 <= sum(not client.is_open for client in clients) <= 12, "20 at the rate that is set"
    cluster.redis[0].resume()
    await waiting
    await draining


@scenario(SLOW)
async def test_a_client_that_is_being_attached_is_admitted_before_it_goes(cluster: SimulatedCluster) -> None:
    """If it were refused, its owner would hear of it later, and disconnect it where it is by then."""
    await Client.connect(cluster, "first", at="replicant-1", clean=True)
    slow = "core-3"
    name = next(f"c{number}" for number in range(1000) if cluster.owner_of(f"c{number}") == slow)
    cluster.slow("replicant-1", slow, 1.0)
    connecting = asyncio.create_task(Client.connect(cluster, name, at="replicant-1", clean=True))
    await asyncio.sleep(0.2)
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    await (await connecting).until_closed()
    again = await Client.connect(cluster, name, at="replicant-2", clean=True)
    await draining
    await asyncio.sleep(2.0)
    assert again.is_open


@scenario(SLOW)
async def test_a_client_that_is_being_attached_when_its_node_ends_is_told_nothing(cluster: SimulatedCluster) -> None:
    """Nobody knows yet whether it is admitted."""
    await Client.connect(cluster, "first", at="replicant-1", clean=True)
    slow = "core-3"
    name = next(f"c{number}" for number in range(1000) if cluster.owner_of(f"c{number}") == slow)
    cluster.slow("replicant-1", slow, 5.0)
    connecting = asyncio.create_task(Client.connect(cluster, name, at="replicant-1", clean=True))
    await asyncio.sleep(0.2)
    evacuation = cluster.nodes["replicant-1"].running.node.evacuation
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    await asyncio.sleep(0.5)
    evacuation.hurry.set()
    await asyncio.sleep(3.0)
    assert not connecting.done(), "it was not refused, and asks again"
    connecting.cancel()
    await draining


@scenario(SHORT)
async def test_all_are_away_when_the_time_is_over(cluster: SimulatedCluster) -> None:
    clients, began_s = await _crowd(cluster, 40), _seconds(cluster)
    await cluster.nodes["replicant-1"].drain()
    assert _seconds(cluster) - began_s < 4.5
    assert {client.reason for client in clients} == {Reason.USE_ANOTHER_SERVER}


@scenario(SLOW)
async def test_who_is_in_a_hurry_sends_all_away_at_once(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    clients, node, began_s = await _crowd(cluster, 30), cluster.nodes["replicant-1"], _seconds(cluster)
    draining = asyncio.create_task(node.drain())
    await asyncio.sleep(0.5)
    node.running.node.evacuation.hurry.set()
    await draining
    assert _seconds(cluster) - began_s < 1.0
    assert {client.reason for client in clients} == {Reason.USE_ANOTHER_SERVER}
    assert not await watcher.receives(WILL.payload, 5.0), "it is held back"


@scenario()
async def test_a_cluster_that_ends_as_a_whole_paces_nothing(cluster: SimulatedCluster) -> None:
    clients, began_s = await _crowd(cluster, 30), _seconds(cluster)
    await asyncio.gather(*(node.drain() for node in cluster.nodes.values()))
    for client in clients:
        await client.until_closed()
    assert {client.reason for client in clients} == {Reason.SERVER_SHUTTING_DOWN}
    assert _seconds(cluster) - began_s < OTHERS_UNKNOWN_MAX_S + 3.0


@scenario()
async def test_a_node_that_reaches_no_core_waits_for_nobody(cluster: SimulatedCluster) -> None:
    clients, began_s = await _crowd(cluster, 3), _seconds(cluster)
    for core in cluster.cores:
        cluster.cut(core.name, "replicant-1")
        cluster.cut("replicant-1", core.name)
    await cluster.nodes["replicant-1"].drain()
    for client in clients:
        await client.until_closed()
    assert {client.reason for client in clients} == {Reason.SERVER_SHUTTING_DOWN}
    assert _seconds(cluster) - began_s >= OTHERS_UNKNOWN_MAX_S


@scenario()
async def test_a_node_without_clients_ends_at_once(cluster: SimulatedCluster) -> None:
    began_s = _seconds(cluster)
    await cluster.nodes["replicant-1"].drain()
    assert _seconds(cluster) - began_s < EVICTION_BEGINS_S


# --- what they leave --------------------------------------------------------------------------------------------------


@KINDS
@scenario()
async def test_who_is_back_soon_has_no_will_published(
    cluster: SimulatedCluster, clean: bool, expiry_s: float, version: int
) -> None:
    watcher = await _watching(cluster)
    await _sent_away(cluster, clean, expiry_s, version)
    await asyncio.sleep(WILL_HELD_S / 2)
    back = await Client.connect(
        cluster, "c", at="replicant-2", clean=clean, expiry_s=expiry_s, version=version, will=WILL
    )
    assert back.present != clean
    assert not await watcher.receives(WILL.payload, WILL_HELD_S)
    back.drop()
    assert await watcher.receives(WILL.payload, SLACK_S), "the next one is"


@KINDS
@scenario()
async def test_who_stays_away_has_its_will_published_once_when_its_node_is_long_gone(
    cluster: SimulatedCluster, clean: bool, expiry_s: float, version: int
) -> None:
    watcher = await _watching(cluster)
    await _sent_away(cluster, clean, expiry_s, version)
    assert not await watcher.receives(WILL.payload, WILL_HELD_S - 2.0)
    assert await watcher.receives(WILL.payload, 3.0)
    await asyncio.sleep(SLACK_S)
    assert watcher.payloads() == [WILL.payload]


@pytest.mark.parametrize("end", ["kill", "drain"])
@KINDS
@scenario()
async def test_a_will_is_held_back_though_its_owner_ends(
    cluster: SimulatedCluster, clean: bool, expiry_s: float, version: int, end: str
) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=clean, expiry_s=expiry_s, version=version, will=WILL)
    await cluster.nodes["replicant-1"].drain()
    owner = cluster.nodes[cluster.owner_of("c")]
    await (owner.kill() if end == "kill" else owner.drain())
    assert not await watcher.receives(WILL.payload, WILL_HELD_S - 5.0)
    assert await watcher.receives(WILL.payload, 7.0)


@pytest.mark.parametrize("change", ["another link", "another owner"])
@scenario(SLOW)
async def test_who_came_back_and_left_in_order_has_no_will_published_though_its_eviction_is_reported_again(
    cluster: SimulatedCluster, change: str
) -> None:
    watcher = await _watching(cluster)
    (name,) = cluster.clients_of("core-1", 1)
    client = await Client.connect(cluster, name, at="replicant-1", clean=True, will=WILL)
    await _crowd(cluster, 150)
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    await client.until_closed()
    back = await Client.connect(cluster, name, at="replicant-2", clean=True, will=WILL)
    await asyncio.sleep(0.5)
    back.disconnect()
    await asyncio.sleep(0.5)
    if change == "another link":
        cluster.cut("core-1", "replicant-1")
        await asyncio.sleep(5.0)
        cluster.mend("core-1", "replicant-1")
    else:
        await cluster.hosts["core-1"].kill()
    assert not await watcher.receives(WILL.payload, WILL_HELD_S + 10.0)
    await draining


@scenario()
async def test_who_comes_back_clean_to_a_short_session_has_no_will_published(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", expiry_s=2, will=WILL)
    await cluster.nodes["replicant-1"].drain()
    await asyncio.sleep(5.0)
    assert not (await Client.connect(cluster, "c", at="replicant-2", clean=True)).present
    assert not await watcher.receives(WILL.payload, WILL_HELD_S + SLACK_S)


@scenario()
async def test_who_goes_by_itself_meanwhile_has_its_will_published_at_once(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    client = await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    draining = asyncio.create_task(cluster.nodes["replicant-1"].drain())
    await asyncio.sleep(0.5)
    client.drop()
    assert await watcher.receives(WILL.payload, SLACK_S)
    await draining


# --- durable sessions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [1, 2])
@scenario()
async def test_a_session_goes_on_elsewhere_with_all_that_it_was_sent(cluster: SimulatedCluster, qos: int) -> None:
    sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=60)
    await sub.subscribe("t", qos)
    pub = await Client.connect(cluster, "pub", at="replicant-2", clean=True)
    node, sent = cluster.nodes["replicant-1"], 0

    async def publish_on() -> None:
        nonlocal sent
        while True:
            await pub.publish("t", b"%d" % sent, qos)
            sent += 1
            await asyncio.sleep(0.02)

    publishing = asyncio.create_task(publish_on())
    await asyncio.sleep(0.5)
    await node.drain()
    back = await Client.connect(cluster, "sub", at="replicant-2", expiry_s=60)
    assert back.present
    await asyncio.sleep(0.5)
    publishing.cancel()
    await asyncio.sleep(1.0)
    got = [*sub.payloads(), *back.payloads()]
    assert set(got) >= {b"%d" % number for number in range(sent)}
    if qos == 2:
        assert len(got) == len(set(got))


# --- by an operator ---------------------------------------------------------------------------------------------------


@scenario(SLOW)
async def test_a_node_is_emptied_goes_on_and_takes_clients_again(cluster: SimulatedCluster) -> None:
    watcher = await _watching(cluster)
    await Client.connect(cluster, "c", at="replicant-1", clean=True, will=WILL)
    clients, node = await _crowd(cluster, 10), cluster.nodes["replicant-1"]
    made = node.running.node
    cluster.loop.call_soon(made.evacuation.start, context=node.process.context if node.process else None)
    await asyncio.sleep(0.5)
    assert made.view.draining()
    assert made.view.ready() == (True, "draining")
    assert made.evacuation.status().is_on
    await asyncio.sleep(2.5)
    assert {client.reason for client in clients} == {Reason.USE_ANOTHER_SERVER}
    assert (made.evacuation.status().clients, made.evacuation.status().rate) == (0, 10.0)
    with pytest.raises(Refused):
        await Client.connect(cluster, "new", at="replicant-1", clean=True)
    await Client.connect(cluster, "c", at="replicant-2", clean=True)
    made.evacuation.stop()
    assert not made.view.draining()
    await Client.connect(cluster, "new", at="replicant-1", clean=True)
    assert not await watcher.receives(WILL.payload, WILL_HELD_S + SLACK_S)


@scenario(SLOW)
async def test_a_node_that_is_emptied_waits_while_nobody_else_takes_clients(cluster: SimulatedCluster) -> None:
    clients, node = await _crowd(cluster, 30), cluster.nodes["replicant-1"]
    made = node.running.node
    cluster.loop.call_soon(made.evacuation.start, context=node.process.context if node.process else None)
    await asyncio.sleep(2.0)
    assert any(not client.is_open for client in clients)
    for other in cluster.nodes.values():
        if other is not node and other.role != "core":
            await other.kill()
    for core in cluster.cores:
        core.running.node.evacuation.start()
    await asyncio.sleep(1.5)
    left = sum(client.is_open for client in clients)
    assert left
    await Client.connect(cluster, "new", at="replicant-1", clean=True)
    await asyncio.sleep(2.0)
    assert sum(client.is_open for client in clients) == left
