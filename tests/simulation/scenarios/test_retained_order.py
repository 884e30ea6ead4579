"""What was refused is not retained, and what a client was told to be retained isn't overtaken by what came before it.

Redis goes away while retained messages are written, and comes back.
"""

from __future__ import annotations

import asyncio
from typing import Final

from conformance import wire
from faults.inject import CROWDED_PART
from flockmq.mqtt.reason import Reason
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

TOPICS: Final = [f"t/{number}" for number in range(20)]
TOPIC: Final = "t"
MOMENT_S: Final = 0.5
REFUSED_S: Final = 12.0
"""By then a write that waits for Redis has been refused."""
SETTLED_S: Final = 4.0
"""After Redis came back: by then all is written that ever will be."""


async def retained(cluster: SimulatedCluster, filter: str) -> dict[str, bytes]:
    """By topic: what somebody who comes now is given."""
    client = await Client.connect(cluster, "looks", at="replicant-2", clean=True)
    assert await client.subscribe(filter) == 1
    await asyncio.sleep(MOMENT_S)
    return {packet.topic.decode(): packet.payload for packet in client.got}


async def publish_elsewhere(cluster: SimulatedCluster, payload: bytes) -> list[int]:
    """The device comes back at the other replicant, and is answered for each topic."""
    device = await Client.connect(cluster, "device", at="replicant-2", clean=True)
    return await asyncio.gather(*(device.publish(topic, payload, retain=True) for topic in TOPICS))


@scenario()
async def test_a_retained_message_waits_for_redis(cluster: SimulatedCluster) -> None:
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    await cluster.redis[0].kill()
    published = asyncio.create_task(device.publish(TOPIC, b"1", retain=True))
    await asyncio.sleep(REFUSED_S / 3)
    await cluster.redis[0].start()
    assert await published < 0x80
    assert await retained(cluster, TOPIC) == {TOPIC: b"1"}


@scenario()
async def test_a_client_that_moves_isnt_overtaken_by_what_it_left_behind(cluster: SimulatedCluster) -> None:
    watches = await Client.connect(cluster, "watches", at="replicant-2", clean=True)
    assert await watches.subscribe("t/+") == 1
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    await cluster.redis[0].kill()
    for topic in TOPICS:
        device.send(topic, b"1", retain=True)
    await asyncio.sleep(MOMENT_S / 5)
    device.drop()
    moved = asyncio.create_task(publish_elsewhere(cluster, b"2"))
    await asyncio.sleep(MOMENT_S / 5)
    for core in cluster.cores:
        cluster.cut("replicant-1", core.name)
    await asyncio.sleep(MOMENT_S)  # by then no core tries any more what it was handed before
    await cluster.redis[0].start()
    await asyncio.sleep(3 * MOMENT_S)
    for core in cluster.cores:
        cluster.mend("replicant-1", core.name)
    assert max(await moved) < 0x80
    await asyncio.sleep(SETTLED_S)
    assert await retained(cluster, "t/+") == dict.fromkeys(TOPICS, b"2")
    last = {packet.topic.decode(): packet.payload for packet in watches.got}
    assert last == dict.fromkeys(TOPICS, b"2"), "who has subscribed hears nothing that was overtaken"


@scenario()
async def test_what_was_delayed_isnt_overtaken_by_what_its_client_left_behind(cluster: SimulatedCluster) -> None:
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    await cluster.redis[0].kill()
    for topic in TOPICS:
        device.send(topic, b"1", retain=True)
    await asyncio.sleep(MOMENT_S / 5)
    device.drop()
    device = await Client.connect(cluster, "device", at="replicant-2", clean=True)
    for core in cluster.cores:
        cluster.cut("replicant-1", core.name)
    await asyncio.sleep(MOMENT_S)  # by then no core tries any more what it was handed before
    await cluster.redis[0].start()
    delayed = (device.publish(f"$delayed/1/{topic}", b"2", retain=True) for topic in TOPICS)
    assert max(await asyncio.gather(*delayed)) < 0x80
    await asyncio.sleep(2 * MOMENT_S)
    for core in cluster.cores:
        cluster.mend("replicant-1", core.name)
    await asyncio.sleep(SETTLED_S)
    assert await retained(cluster, "t/+") == dict.fromkeys(TOPICS, b"2")


@scenario()
async def test_what_was_delayed_replaces_what_its_client_published_meanwhile(cluster: SimulatedCluster) -> None:
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    assert await device.publish(f"$delayed/2/{TOPIC}", b"2", retain=True) < 0x80
    device = await Client.connect(cluster, "device", at="replicant-2", clean=True)
    assert await device.publish(TOPIC, b"1", retain=True) < 0x80
    await asyncio.sleep(SETTLED_S)
    assert await retained(cluster, TOPIC) == {TOPIC: b"2"}
    assert await device.publish(TOPIC, b"3", retain=True) < 0x80
    assert await retained(cluster, TOPIC) == {TOPIC: b"3"}


@scenario()
async def test_a_will_isnt_retained_behind_what_its_client_publishes_later(cluster: SimulatedCluster) -> None:
    will = wire.Will(TOPIC, b"offline", 1, True)
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True, will=will)
    await cluster.redis[0].kill()
    device.drop()
    await asyncio.sleep(REFUSED_S / 2)
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True, will=will)
    online = asyncio.create_task(device.publish(TOPIC, b"online", retain=True))
    await asyncio.sleep(REFUSED_S / 2)
    await cluster.redis[0].start()
    assert await online < 0x80
    await asyncio.sleep(SETTLED_S)
    assert await retained(cluster, TOPIC) == {TOPIC: b"online"}


@scenario()
async def test_what_was_refused_isnt_retained(cluster: SimulatedCluster) -> None:
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    assert await device.publish(TOPIC, b"1", retain=True) < 0x80
    await cluster.redis[0].kill()
    published = asyncio.create_task(device.publish(TOPIC, b"2", retain=True))
    await asyncio.sleep(REFUSED_S)
    await cluster.redis[0].start()
    is_refused = await published >= 0x80
    await asyncio.sleep(SETTLED_S)
    assert await retained(cluster, TOPIC) == {TOPIC: b"1" if is_refused else b"2"}


@scenario()
async def test_what_no_durable_session_takes_is_not_cleared(cluster: SimulatedCluster) -> None:
    """While Redis is short of memory a PUBLISH is refused that would wait for one; clearing a topic needs no memory."""
    away = await Client.connect(cluster, "away", at="replicant-2", expiry_s=60)
    assert await away.subscribe(TOPIC, 1) == 1
    away.drop()
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True)
    assert await device.publish(TOPIC, b"1", retain=True) < 0x80
    cluster.redis[0].limit_memory(CROWDED_PART)
    await asyncio.sleep(SETTLED_S)
    assert await device.publish(TOPIC, b"", retain=True) == Reason.QUOTA_EXCEEDED
    assert await retained(cluster, TOPIC) == {TOPIC: b"1"}
