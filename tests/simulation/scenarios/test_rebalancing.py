"""A node that has more clients than its share sends the excess to others, and nobody's will is published for that."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from itertools import cycle
from typing import Any, Final, TypeVar

import pytest

from conformance import wire
from flockmq.auth.admin import Missing
from flockmq.management.rebalance_rows import AskedProgress, AskedRebalance
from flockmq.management.view import Conflict
from flockmq.mqtt.reason import Reason
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, scenario

ON: Final = Shape(
    settings=(
        ("CLUSTER__REBALANCE__ENABLED", "true"),
        ("CLUSTER__REBALANCE__ABSOLUTE_THRESHOLD", "5"),
        ("CLUSTER__REBALANCE__WAIT", "5s"),
        ("CLUSTER__EVICTION_RATE", "10"),
    )
)
BY_MESSAGES: Final = Shape(
    settings=(
        *ON.settings,
        ("CLUSTER__REBALANCE__CONNECTIONS_WEIGHT", "0"),
        ("CLUSTER__REBALANCE__SESSIONS_WEIGHT", "0"),
    )
)
SLOW: Final = Shape(settings=(*ON.settings[:3], ("CLUSTER__EVICTION_RATE", "1")))
ASKED: Final = AskedRebalance(name="Jo", absolute_threshold=5, rate=10.0)
WILL: Final = wire.Will("wills", b"gone", qos=1)
COUNT: Final = 40

T = TypeVar("T")


async def _crowd(cluster: SimulatedCluster) -> list[Client]:
    return [
        await Client.connect(cluster, f"c{number:02}", at="replicant-1", clean=number % 2 == 0, will=WILL)
        for number in range(COUNT)
    ]


@scenario(ON)
async def test_the_oldest_connections_beyond_the_mean_go_at_the_rate_and_no_will_is_published(
    cluster: SimulatedCluster,
) -> None:
    watcher = await Client.connect(cluster, "watcher", at="replicant-2", clean=True)
    assert await watcher.subscribe(str(WILL.topic)) == 1
    clients = await _crowd(cluster)
    await asyncio.sleep(4.0)
    assert all(client.is_open for client in clients)
    moved, others = list[Client](), cycle(name for name in cluster.nodes if name != "replicant-1")  # cores take clients
    for _ in range(60):
        await asyncio.sleep(0.5)
        for number, client in enumerate(clients):
            if not client.is_open:
                assert client.reason == Reason.USE_ANOTHER_SERVER
                assert client not in moved, "nobody is moved twice"
                clients[number] = await Client.connect(
                    cluster, f"c{number:02}", at=next(others), clean=number % 2 == 0, will=WILL
                )
                moved.append(clients[number])
    stays = [number for number, client in enumerate(clients) if client not in moved]
    assert stays == list(range(COUNT - len(stays), COUNT)), "the oldest go"
    fair = math.ceil((COUNT + 1) / len(cluster.nodes))
    assert fair - 2 <= len(stays) <= fair
    assert not await watcher.receives(WILL.payload, 1.0)


@scenario(SLOW)
async def test_donors_whose_share_of_the_rate_is_below_one_client_a_look_send_one_now_and_then(
    cluster: SimulatedCluster,
) -> None:
    donors = ("core-1", "replicant-1", "replicant-2")
    clients = [
        await Client.connect(cluster, f"{donor}-{number}", at=donor, clean=True)
        for donor in donors
        for number in range(COUNT // 2)
    ]
    await asyncio.sleep(35.0)
    assert 20 <= sum(not client.is_open for client in clients) <= 35


@scenario(BY_MESSAGES)
async def test_of_a_node_with_few_clients_and_all_of_the_traffic_some_of_the_busy_ones_go(
    cluster: SimulatedCluster,
) -> None:
    quiet = [
        await Client.connect(cluster, f"{node}-{number}", at=node, clean=True)
        for node in cluster.nodes
        for number in range(4)
    ]
    names, others = [f"busy-{number}" for number in range(4)], cycle(cluster.nodes)
    busy = {name: await Client.connect(cluster, name, at="replicant-1", clean=True) for name in names}
    moved = list[str]()
    for _ in range(360):
        await asyncio.sleep(0.5)
        for name, client in list(busy.items()):
            if client.is_open:
                client.send("readings", b"7", 0)
            else:
                assert name not in moved, "nobody is moved twice"
                moved.append(name)
                at = next(node for node in others if node != "replicant-1")
                busy[name] = await Client.connect(cluster, name, at=at, clean=True)
    assert len(moved) == 3
    assert Reason.USE_ANOTHER_SERVER not in {client.reason for client in quiet}


@scenario()
async def test_without_it_all_stay_where_they_are(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster)
    await asyncio.sleep(60.0)
    assert all(client.is_open for client in clients)


# One that an operator asks for, where it is off.


async def _answer(cluster: SimulatedCluster, node: str, answer: Coroutine[Any, Any, T]) -> T:
    process = cluster.nodes[node].process
    assert process is not None
    return await asyncio.get_running_loop().create_task(answer, context=process.context)


async def _start(cluster: SimulatedCluster, asked: AskedRebalance = ASKED, node: str | None = None) -> None:
    """Asks a replicant, which asks a core."""
    admin = cluster.nodes["replicant-2"].running.node.rebalance_admin
    assert not (await _answer(cluster, "replicant-2", admin.start(asked, node))).missing


async def _stop(cluster: SimulatedCluster, name: str | None = None) -> None:
    admin = cluster.nodes["replicant-2"].running.node.rebalance_admin
    await _answer(cluster, "replicant-2", admin.stop(name, None))


async def _progress(cluster: SimulatedCluster, by: str = "replicant-2") -> dict[str, AskedProgress | None]:
    """By node, as `by` tells it."""
    shown = await _answer(cluster, by, cluster.nodes[by].running.node.rebalance_admin.shown())
    return {row.node: row.asked for row in shown.nodes}


@scenario()
async def test_one_that_is_asked_for_ends_when_each_node_has_its_share(cluster: SimulatedCluster) -> None:
    clients, others = await _crowd(cluster), cycle(name for name in cluster.nodes if name != "replicant-1")
    await _start(cluster)
    moved = 0
    for _ in range(60):
        await asyncio.sleep(0.5)
        for number, client in enumerate(clients):
            if not client.is_open:
                clients[number] = await Client.connect(cluster, f"c{number:02}", at=next(others), clean=number % 2 == 0)
                moved += 1
    fair = math.ceil(COUNT / len(cluster.nodes))
    assert fair - 2 <= COUNT - moved <= fair
    for by in ("core-1", "replicant-1"):
        told = await _progress(cluster, by)
        assert told.pop("replicant-1") == AskedProgress(name="Jo", state="balanced", moved=moved)
        assert set(told.values()) == {AskedProgress(name="Jo", state="balanced", moved=0)}


@scenario()
async def test_one_that_is_asked_for_gives_up_on_clients_that_always_come_back(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster)
    await _start(cluster)
    for _ in range(60):
        await asyncio.sleep(0.5)
        for number, client in enumerate(clients):
            if not client.is_open:
                name, is_clean = f"c{number:02}", number % 2 == 0
                clients[number] = await Client.connect(cluster, name, at="replicant-1", clean=is_clean)
    told = (await _progress(cluster))["replicant-1"]
    assert told is not None
    assert told.state == "gave_up"
    assert told.moved == COUNT, "nobody is sent away twice"


@scenario()
async def test_one_that_runs_is_ended_and_nobody_else_starts_another_meanwhile(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster)
    with pytest.raises(Missing, match="there is no node 'replicant-9'; the nodes are core-1, "):
        await _start(cluster, node="replicant-9")
    await _start(cluster, AskedRebalance(name="Jo", absolute_threshold=5, rate=1.0), node="replicant-1")
    await asyncio.sleep(5.0)
    sent = sum(not client.is_open for client in clients)
    assert 2 <= sent <= 6
    with pytest.raises(Conflict, match="one that Jo started runs already"):
        await _start(cluster, AskedRebalance(name="Ann"))
    await _stop(cluster, name="Ann")
    assert (await _progress(cluster))["replicant-1"] == AskedProgress(name="Jo", state="running", moved=sent)
    await _stop(cluster)
    await asyncio.sleep(5.0)
    told = await _progress(cluster)
    assert told["replicant-1"] == AskedProgress(name="Jo", state="stopped", moved=sent)
    assert told["core-1"] is None, "it was asked of one node"
    assert sum(not client.is_open for client in clients) == sent


@scenario()
async def test_a_node_that_restarts_forgets_what_was_asked_of_it(cluster: SimulatedCluster) -> None:
    await _start(cluster)
    await cluster.nodes["replicant-1"].kill()
    await cluster.nodes["replicant-1"].start()
    await cluster.until_ready()
    told = await _progress(cluster)
    assert told["replicant-1"] is None
    assert told["core-1"] is not None
