"""A delayed message that nobody accepts for good holds up no other one."""

from __future__ import annotations

import asyncio
from typing import Final

from flockmq import bounds
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


@scenario(Shape(redis=CLUSTER))
async def test_what_waits_for_room_is_not_retained_again_over_what_came_since(cluster: SimulatedCluster) -> None:
    """Its leader has no room for it, because a master is dead, and tries again and again."""
    names = cluster.clients_of(OWNER, 20)
    name = next(name for name in names if cluster.redis_of(name).name == MASTER)
    at_dead = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await at_dead.subscribe("dead", 1) == 1
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    leader = await cluster.leader()
    assert leader is not None
    at_leader = await Client.connect(cluster, "at leader", at=leader.name, clean=True)
    await cluster.hosts[MASTER].kill()
    bounds.SLOT_QUEUE_MAX_MESSAGES = 1  # type: ignore[misc]  # this process is the scenario's own
    at_leader.send("dead", b"fills the queue", 1)
    await asyncio.sleep(1.0)
    assert await publisher.publish("$delayed/1/dead", b"old", 1, retain=True) < 0x80
    await asyncio.sleep(3.0)
    publisher.send("dead", b"new", 1, retain=True)
    await asyncio.sleep(5.0)
    sub = await Client.connect(cluster, "sub", at="replicant-2", clean=True)
    assert await sub.subscribe("dead", 1) == 1
    await sub.until_got(1)
    assert sub.payloads()[0] == b"new"


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
