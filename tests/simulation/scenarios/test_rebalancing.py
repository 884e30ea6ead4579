"""A node that has more clients than its share sends the excess to others, and nobody's will is published for that."""

from __future__ import annotations

import asyncio
import math
from itertools import cycle
from typing import Final

from conformance import wire
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
SLOW: Final = Shape(settings=(*ON.settings[:3], ("CLUSTER__EVICTION_RATE", "1")))
WILL: Final = wire.Will("wills", b"gone", qos=1)
COUNT: Final = 40


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


@scenario()
async def test_without_it_all_stay_where_they_are(cluster: SimulatedCluster) -> None:
    clients = await _crowd(cluster)
    await asyncio.sleep(60.0)
    assert all(client.is_open for client in clients)
