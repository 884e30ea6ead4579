"""Cores are taken off a cluster without an operator of Kubernetes: they leave, or are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from flockmq.management.view import Conflict, Forgotten, Leaving, Unavailable
from flockmq.node import left_cluster
from flockmq.node.core_admin import CoreAdmin
from simulation.cluster import Shape, SimulatedCluster
from simulation.node import SimulatedNode
from simulation.scenario import Client, scenario

COUNTED: Final = Shape(cores=3)
UNCOUNTED: Final = Shape(cores=3, settings=(("CLUSTER__CORES", "0"),))
PAIR: Final = Shape(cores=2, settings=(("CLUSTER__CORES", "1"),))
DEAD_S: Final = 5.0
CLOSED_S: Final = 0.5
"""Until the others know that the links of a dead node have ended; it is a member still."""


def admin(node: SimulatedNode) -> CoreAdmin:
    return node.running.node.core_admin


async def asked(node: SimulatedNode, answer: Coroutine[Any, Any, Any]) -> Leaving | Forgotten | str:
    """What a node answers, or why it refuses."""
    assert node.process is not None
    task = asyncio.get_running_loop().create_task(answer, context=node.process.context)
    try:
        told: Leaving | Forgotten = await task
    except (Conflict, Unavailable) as error:
        return str(error)
    return told


def ends(node: SimulatedNode) -> asyncio.Event:
    """Set when the node would end its process."""
    ended = asyncio.Event()
    admin(node).end = ended.set
    return ended


@scenario(UNCOUNTED)
async def test_a_core_that_leaves_hands_over_its_slots_and_remembers_it(cluster: SimulatedCluster) -> None:
    core, *others = cluster.cores
    (name,) = cluster.clients_of(core.name, 1)
    client = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await client.subscribe("t", 1) == 1
    ended, slots = ends(core), cluster.slots_of(core.name)
    told = await asked(core, admin(core).leave())
    assert isinstance(told, Leaving)
    assert (told.node, told.slots) == (core.name, slots)
    assert left_cluster.FILE in core.disk.files
    await ended.wait()
    await core.drain()
    cluster.cores = others
    await cluster.until_ready()
    assert sum(cluster.slots_of(other.name) for other in others) == 1024
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"after", 1) == 0
    assert await client.receives(b"after")


@scenario(PAIR)
async def test_of_two_cores_that_are_told_to_leave_at_once_one_stays(cluster: SimulatedCluster) -> None:
    told = await asyncio.gather(*(asked(core, admin(core).leave()) for core in cluster.cores))
    gone = [each for each in told if isinstance(each, Leaving)]
    assert len(gone) < 2
    assert len([core for core in cluster.cores if left_cluster.FILE in core.disk.files]) == len(gone)
    if not gone:
        await asyncio.sleep(DEAD_S)
        assert not any(core.running.node.evacuation.is_wanted for core in cluster.cores)
        assert isinstance(await asked(cluster.cores[1], admin(cluster.cores[1]).leave()), Leaving)


@scenario(UNCOUNTED)
async def test_a_core_that_can_not_remember_it_stays(cluster: SimulatedCluster) -> None:
    core = cluster.cores[0]
    core.fill()
    assert "left-cluster can't be written" in str(await asked(core, admin(core).leave()))
    assert not core.running.node.evacuation.is_wanted


@scenario(COUNTED)
async def test_a_core_that_the_others_count_stays(cluster: SimulatedCluster) -> None:
    core = cluster.cores[0]
    assert "cluster.cores is 3 on core-2, core-3" in str(await asked(core, admin(core).leave()))
    await cluster.cores[2].kill()
    await asyncio.sleep(DEAD_S)
    assert "a majority would be lost" in str(await asked(core, admin(core).leave()))


@scenario(UNCOUNTED)
async def test_a_dead_core_is_forgotten_and_a_live_one_is_not(cluster: SimulatedCluster) -> None:
    asks, dies, lives = cluster.cores
    assert str(await asked(asks, admin(asks).forget(dies.name))).startswith("core-2 is alive: core-1 has a link to it")
    await dies.kill()
    await asyncio.sleep(CLOSED_S)
    assert await asked(asks, admin(asks).forget(dies.name)) == Forgotten(node="core-2", cores=[asks.name, lives.name])


@scenario(UNCOUNTED)
async def test_nothing_changes_while_no_core_leads(cluster: SimulatedCluster) -> None:
    core = cluster.cores[0]
    await cluster.redis[0].kill()
    await asyncio.sleep(DEAD_S)
    assert "of 2 cores none would be ready and reach Redis" in str(await asked(core, admin(core).leave()))
    assert left_cluster.FILE not in core.disk.files
