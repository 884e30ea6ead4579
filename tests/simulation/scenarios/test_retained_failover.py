"""What is retained, and promised to a durable session, when the session's owner dies amid it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MESSAGES: Final = [(b"%d" % number).ljust(200_000) for number in range(40)]
"""Together more than may wait for a client that is given what is retained."""
WINDOW: Final = 4


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
