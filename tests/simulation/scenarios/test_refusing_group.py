"""A QoS 2 message comes once, also where a shared subscription of its topic has no room for it at first."""

from __future__ import annotations

import asyncio
from typing import Final

from conformance import wire
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, Unanswered, scenario

AT: Final = "replicant-1"
QUEUE_MAX: Final = 10
SHAPE: Final = Shape(settings=(("MQTT__MAX_MQUEUE_LEN", str(QUEUE_MAX)),))
SETTLED_S: Final = 1.0


async def member(cluster: SimulatedCluster, waiting: int) -> Client:
    """The only one of a shared subscription; it acknowledges nothing, and so many messages wait for it."""
    client = await Client.connect(cluster, "member", at=AT, receive_maximum=1)
    client.answers = False
    assert await client.subscribe("$share/g/+", 2) == 2
    others = await Client.connect(cluster, "others", at=AT)
    for _ in range(1 + waiting):
        others.send("other", b"")
    await asyncio.sleep(SETTLED_S)
    return client


async def publish_until_taken(cluster: SimulatedCluster, topic: str, payload: bytes) -> None:
    """At QoS 2, and again for as long as the connection ends before it is answered."""
    while True:
        client = await Client.connect(cluster, "pub", at=AT, version=wire.V311)
        try:
            await client.publish(topic, payload, 2, dup=client.present)
            return
        except Unanswered:
            assert not client.is_open
            await asyncio.sleep(SETTLED_S)


async def check_comes_once(cluster: SimulatedCluster) -> None:
    client = await Client.connect(cluster, "sub", at=AT, expiry_s=600)
    assert await client.subscribe("t", 2) == 2
    await publish_until_taken(cluster, "t", b"1")
    await asyncio.sleep(SETTLED_S)
    assert client.payloads() == [b"1"]


@scenario(SHAPE)
async def test_a_message_comes_once_beside_a_group_that_has_room(cluster: SimulatedCluster) -> None:
    await member(cluster, waiting=0)
    await check_comes_once(cluster)


@scenario(SHAPE)
async def test_a_message_comes_once_beside_a_group_whose_only_member_is_full(cluster: SimulatedCluster) -> None:
    await member(cluster, waiting=QUEUE_MAX)
    await check_comes_once(cluster)
