"""What a client published at one node comes to those at another, though it is there itself by then, and publishes."""

from __future__ import annotations

import asyncio
from typing import Final

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

SLOW_S: Final = 2.0
RELEASED_S: Final = 0.1
"""Its node doesn't acknowledge before it has waited longer for the others."""


@scenario()
async def test_what_is_late_at_a_node_is_not_taken_for_a_repeat(cluster: SimulatedCluster) -> None:
    """It is QoS 2, and numbered: what the same session publishes later, at that node itself, has a higher number."""
    subscriber = await Client.connect(cluster, "sub", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t", qos=2) == 2
    device = await Client.connect(cluster, "device", at="replicant-1", expiry_s=60)
    assert await device.publish("t", b"0", qos=2) == 0
    assert await subscriber.receives(b"0")
    cluster.slow("replicant-1", "replicant-2", SLOW_S)
    cluster.cut("replicant-2", "replicant-1")  # it doesn't hear what was accepted
    assert await device.publish("t", b"1", qos=2) == 0
    device.disconnect()
    device = await Client.connect(cluster, "device", at="replicant-2", expiry_s=60)
    assert device.present
    assert await device.publish("t", b"2", qos=2) == 0
    cluster.mend("replicant-2", "replicant-1")
    assert await subscriber.receives(b"1")
    assert subscriber.payloads().count(b"1") == 1


@scenario()
async def test_what_is_late_at_a_node_is_not_taken_for_a_repeat_for_what_was_sent_again_there(
    cluster: SimulatedCluster,
) -> None:
    """That has the number that it had, above those of what was acknowledged before it."""
    subscriber = await Client.connect(cluster, "sub", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t", qos=2) == 2
    device = await Client.connect(cluster, "device", at="replicant-1", expiry_s=60)
    cluster.slow("replicant-1", "replicant-2", SLOW_S)
    cluster.cut("replicant-2", "replicant-1")
    assert await device.publish("t", b"1", qos=2) == 0
    packet_id = device.send("t", b"2", qos=2)
    await asyncio.sleep(RELEASED_S)
    device.drop()
    device = await Client.connect(cluster, "device", at="replicant-2", expiry_s=60)
    assert device.present
    device.send("t", b"2", qos=2, dup=True, packet_id=packet_id)
    assert await subscriber.receives(b"2")
    cluster.mend("replicant-2", "replicant-1")
    assert await subscriber.receives(b"1")
    await asyncio.sleep(SLOW_S)
    assert subscriber.payloads() == [b"2", b"1"]
