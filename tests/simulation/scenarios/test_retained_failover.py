"""What is retained, and promised to a durable session, when the session's owner dies amid it, or its answer is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from flockmq.durable.session_fields import PENDING_RETAINED, subscription_field
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MESSAGES: Final = [(b"%d" % number).ljust(200_000) for number in range(40)]
"""Together more than may wait for a client that is given what is retained."""
WINDOW: Final = 4
FEW: Final = [b"0", b"1", b"2"]
LAST: Final = b"published when all of them were sent"
LOOK_S: Final = 0.001


async def _given(cluster: SimulatedCluster, *, owner_dies: bool) -> Counter[bytes]:
    """How often each of these messages came to a client that subscribed at QoS 2."""
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    for number, message in enumerate(MESSAGES):
        assert await publisher.publish(f"t/{number}", message, 2, retain=True) < 0x80
    client = await Client.connect(cluster, "c", at="replicant-1", expiry_s=60, receive_maximum=WINDOW)
    assert await client.subscribe("t/#", 2) == 2
    await client.until_got(len(MESSAGES) // 4)
    if owner_dies:
        await cluster.hosts[cluster.owner_of("c")].kill()
    for message in MESSAGES:
        assert await client.receives(message)
    return Counter(payload.rstrip() for payload in client.payloads())


@scenario()
async def test_what_is_retained_comes_once(cluster: SimulatedCluster) -> None:
    assert set((await _given(cluster, owner_dies=False)).values()) == {1}


@scenario()
async def test_what_is_retained_comes_once_though_the_owner_dies_amid_it(cluster: SimulatedCluster) -> None:
    assert set((await _given(cluster, owner_dies=True)).values()) == {1}


@scenario()
async def test_it_comes_once_though_the_answer_to_SUBSCRIBE_is_lost(cluster: SimulatedCluster) -> None:
    (name,) = cluster.clients_of("core-1", 1)
    publisher, client = await _connected(cluster, name)
    cluster.cut("core-1", "replicant-1")
    assert await client.subscribe("t/+", 2) == 2
    assert await _got(cluster, publisher, client) == [*FEW, LAST]


@scenario()
async def test_it_comes_once_though_the_owner_dies_before_it_answers_SUBSCRIBE(cluster: SimulatedCluster) -> None:
    (name,) = cluster.clients_of("core-1", 1)
    publisher, client = await _connected(cluster, name)
    asked = asyncio.create_task(client.subscribe("t/+", 2))
    while subscription_field(b"t/+") not in cluster.session_of(name):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(LOOK_S)
    await cluster.hosts["core-1"].kill()
    assert await asked == 2
    assert await _got(cluster, publisher, client) == [*FEW, LAST]


async def _connected(cluster: SimulatedCluster, name: str) -> tuple[Client, Client]:
    """One that published what is retained, and one with a durable session."""
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    for message in FEW:
        assert await publisher.publish("t/" + message.decode(), message, 2, retain=True) < 0x80
    return publisher, await Client.connect(cluster, name, at="replicant-1", expiry_s=600)


def _is_pending(cluster: SimulatedCluster, name: str) -> bool:
    return cluster.session_of(name)[subscription_field(b"t/+")][0] & PENDING_RETAINED != 0


async def _got(cluster: SimulatedCluster, publisher: Client, client: Client) -> list[bytes]:
    """What came to the client until nothing more that is retained does."""
    while _is_pending(cluster, client.name):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(LOOK_S)
    assert await publisher.publish("t/last", LAST, 2) < 0x80
    assert await client.receives(LAST)
    return sorted(client.payloads())
