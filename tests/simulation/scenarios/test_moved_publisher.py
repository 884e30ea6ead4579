"""What a client published at one node comes to those at another, though it is there itself by then, and publishes."""

from __future__ import annotations

from typing import Final

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

SLOW_S: Final = 2.0


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
