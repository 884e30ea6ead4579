"""A delayed message that nobody accepts for good holds up no other one."""

from __future__ import annotations

from typing import Final

from flockmq.durable.pending_writes import SlotKeys
from flockmq.routing.slots import slot_of
from simulation.cluster import Shape, SimulatedCluster
from simulation.scenario import Client, scenario
from simulation.topology import CLUSTER

OWNER: Final = "core-1"
MASTER: Final = "redis-1"
LONG_S: Final = 40.0


async def _is_published_behind(cluster: SimulatedCluster, unaccepted: str) -> bool:
    """Whether another client's delayed message comes, behind one to this topic."""
    sub = await Client.connect(cluster, "sub", at="replicant-2", clean=True)
    assert await sub.subscribe("t", 1) == 1
    first = await Client.connect(cluster, "first", at="replicant-1", clean=True)
    second = await Client.connect(cluster, "second", at="replicant-2", clean=True)
    assert await first.publish(f"$delayed/1/{unaccepted}", b"late", 1) < 0x80
    assert await second.publish("$delayed/3/t", b"due", 1) < 0x80
    return await sub.receives(b"due", LONG_S)


@scenario(Shape(redis=CLUSTER))
async def test_a_master_that_is_dead_holds_up_no_other_delayed_message(cluster: SimulatedCluster) -> None:
    names = cluster.clients_of(OWNER, 20)
    name = next(name for name in names if cluster.redis_of(name).name == MASTER)
    at_dead = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await at_dead.subscribe("dead", 1) == 1
    await cluster.hosts[MASTER].kill()
    assert await _is_published_behind(cluster, "dead")


@scenario()
async def test_a_slot_that_cannot_be_read_holds_up_no_delayed_message_of_others(cluster: SimulatedCluster) -> None:
    (spoilt,) = cluster.clients_of(OWNER, 1)
    subscriber = await Client.connect(cluster, spoilt, at="replicant-1", expiry_s=3600)
    assert await subscriber.subscribe("spoilt") == 1
    subscriber.disconnect()
    await cluster.hosts[OWNER].kill()
    keys = cluster.redis_of(spoilt).server.keys
    keys.values[SlotKeys(slot_of(spoilt.encode())).marks] = b"of a wrong type"
    await cluster.until_moved(spoilt, OWNER)
    assert await _is_published_behind(cluster, "spoilt")
