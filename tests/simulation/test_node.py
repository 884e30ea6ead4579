"""A node's lives: how they end and begin again, and what they leave to the next one."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import tasks
from flockmq.mqtt.reason import Reason
from load.history import Unwell
from simulation.cluster import SimulatedCluster
from simulation.loop import DEAD
from simulation.node import GRACE_S, LINK, RESTART_S, STEADY_S, SimulatedNode
from simulation.scenario import Client, scenario

LONG_S = 30.0
DRAINED_WITHIN_S = 0.5
NOTICED_S = 1.0
"""By others, that a core crashed; no sooner."""


async def until_down(node: SimulatedNode) -> None:
    while node.is_running:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.001)


async def until_up(node: SimulatedNode) -> float:
    """How long it took."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not node.is_running:  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(0.001)
    return loop.time() - began_s


async def _fails() -> None:
    raise ValueError("nobody foresaw it")


def have_vital_task_fail(cluster: SimulatedCluster, node: SimulatedNode) -> None:
    assert node.process is not None
    cluster.loop.call_soon(tasks.vital, _fails(), "applying the log", context=node.process.context)


# --- crashes ----------------------------------------------------------------------------------------------------------


@scenario()
async def test_a_crash_ends_a_nodes_connections_and_it_stays_down_until_it_is_started(
    cluster: SimulatedCluster,
) -> None:
    node = cluster.nodes["replicant-1"]
    client = await Client.connect(cluster, "c", at=node.name)
    process = node.process
    await node.kill()
    await client.until_closed()
    assert client.reason == -1
    await asyncio.sleep(LONG_S)
    assert process is not None
    assert process.state == DEAD
    assert not node.is_running
    assert not node.is_ready
    await node.start()
    await cluster.until_ready()
    assert node.process is not process
    await Client.connect(cluster, "c", at=node.name)


@scenario()
async def test_a_nodes_next_life_has_its_disk_but_for_what_was_not_synced(cluster: SimulatedCluster) -> None:
    core = cluster.cores[0]
    kept = dict(core.disk.files)
    assert kept
    with core.disk.create("unfinished") as file:
        file.write(b"half")
    await core.kill()
    await asyncio.sleep(LONG_S)
    assert core.disk.files == kept
    await core.start()
    await cluster.until_ready()
    assert set(core.disk.files) == set(kept)


@scenario()
async def test_a_node_that_is_started_twice_runs_once(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["core-1"]
    process = node.process
    await node.start()
    assert node.process is process


@scenario()
async def test_a_node_that_stands_still_answers_later(cluster: SimulatedCluster) -> None:
    client = await Client.connect(cluster, "c", at="replicant-1")
    node = cluster.nodes["replicant-1"]
    node.pause()
    subscribing = asyncio.create_task(client.subscribe("t"))
    await asyncio.sleep(1.0)
    assert node.is_running
    assert not subscribing.done()
    node.resume()
    assert await subscribing == 1


@scenario()
async def test_a_node_that_stands_still_is_not_seen(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["replicant-1"]
    node.pause()
    assert all(seen.node != node.name for seen in await cluster.look())
    node.resume()
    assert any(seen.node == node.name for seen in await cluster.look())


# --- in order ---------------------------------------------------------------------------------------------------------


@scenario()
async def test_a_replicant_that_drains_says_goodbye_to_its_clients(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["replicant-1"]
    client = await Client.connect(cluster, "c", at=node.name)
    await node.drain()
    await client.until_closed()
    assert client.reason == Reason.USE_ANOTHER_SERVER
    await asyncio.sleep(LONG_S)
    assert not node.is_running


@scenario()
async def test_a_core_that_drains_gives_its_slots_away_sooner_than_one_that_crashes(cluster: SimulatedCluster) -> None:
    loop, (first, second, _) = cluster.loop, cluster.cores
    (client,) = cluster.clients_of(first.name, 1)
    began_s = loop.time()
    await first.drain()
    await cluster.until_moved(client, first.name)
    assert loop.time() - began_s < DRAINED_WITHIN_S
    await first.start()
    await cluster.until_ready()
    (client,) = cluster.clients_of(second.name, 1)
    began_s = loop.time()
    await second.kill()
    await cluster.until_moved(client, second.name)
    assert loop.time() - began_s > NOTICED_S


@scenario()
async def test_a_node_that_stands_still_is_killed_when_its_grace_is_over(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["replicant-1"]
    node.pause()
    process, began_s = node.process, cluster.loop.time()
    await node.drain()
    assert cluster.loop.time() - began_s == pytest.approx(GRACE_S)
    node.resume()
    await asyncio.sleep(LONG_S)
    assert not node.is_running
    assert process is not None
    assert process.state == DEAD


# --- by itself --------------------------------------------------------------------------------------------------------


@scenario(may_be_unwell=True)
async def test_a_node_whose_vital_task_fails_ends_at_once_is_told_of_and_started_again(
    cluster: SimulatedCluster,
) -> None:
    node = cluster.nodes["core-1"]
    process = node.process
    have_vital_task_fail(cluster, node)
    await until_down(node)
    assert process is not None
    assert process.state == DEAD
    (told,) = [event for event in cluster.events if isinstance(event, Unwell)]
    assert told.node == "core-1"
    assert "applying the log" in told.what
    assert "nobody foresaw it" in told.what
    assert await until_up(node) == pytest.approx(RESTART_S[0], abs=0.01)
    await cluster.until_ready()
    assert node.process is not process


@scenario(may_be_unwell=True)
async def test_a_node_that_fails_again_and_again_is_started_later_and_later(cluster: SimulatedCluster) -> None:
    node, waits_s = cluster.nodes["core-1"], []
    for _ in range(6):
        have_vital_task_fail(cluster, node)
        await until_down(node)
        waits_s.append(await until_up(node))
    assert waits_s[1] == pytest.approx(2 * waits_s[0], abs=0.01)
    assert waits_s == sorted(waits_s)
    assert waits_s[-2:] == pytest.approx([RESTART_S[1], RESTART_S[1]], abs=0.01)
    await asyncio.sleep(STEADY_S + 1.0)
    have_vital_task_fail(cluster, node)
    await until_down(node)
    assert await until_up(node) == pytest.approx(RESTART_S[0], abs=0.01)


@scenario(may_be_unwell=True)
async def test_a_failure_that_a_kill_overtakes_starts_nothing(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["core-1"]
    have_vital_task_fail(cluster, node)
    await until_down(node)
    await node.kill()
    await asyncio.sleep(LONG_S)
    assert not node.is_running


@scenario(may_be_unwell=True)
async def test_a_node_that_ends_by_a_defect_is_told_of_and_started_again(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["core-1"]
    node.running.purged = None  # type: ignore[assignment] # it is looked at now and then
    await until_down(node)
    assert ["ended with AttributeError" in event.what for event in cluster.events if isinstance(event, Unwell)] == [
        True
    ]
    assert await until_up(node) == pytest.approx(RESTART_S[0], abs=0.01)
    await cluster.until_ready()


@scenario()
async def test_a_node_that_cannot_start_for_what_a_user_can_mend_tries_again(cluster: SimulatedCluster) -> None:
    node = cluster.nodes["replicant-1"]
    await node.kill()
    taken = cluster.network.listen((node.address, LINK), cluster.clients, lambda end: end.abort())
    await node.start()
    await until_down(node)
    assert not node.is_ready
    taken.close()
    await cluster.until_ready()


# --- disks and clocks -------------------------------------------------------------------------------------------------


@scenario()
async def test_nobody_goes_on_who_waits_for_a_disk_that_stalls(cluster: SimulatedCluster) -> None:
    core = cluster.cores[0]
    assert core.process is not None
    core.stall_disk(True)
    writing = cluster.loop.create_task(asyncio.to_thread(core.disk.create, "new"), context=core.process.context)
    await asyncio.sleep(LONG_S)
    assert not writing.done()
    core.stall_disk(False)
    (await writing).close()


@scenario()
async def test_a_clock_jumps_and_drifts_and_is_right_again(cluster: SimulatedCluster) -> None:
    node, other = cluster.nodes["core-1"], cluster.nodes["core-2"]

    def ahead_s() -> float:
        assert other.clock.now_s() == cluster.wall_s()
        return node.clock.now_s() - cluster.wall_s()

    assert ahead_s() == 0.0
    node.shift_clock(-600.0)
    assert ahead_s() == pytest.approx(-600.0)
    node.shift_clock(0.0, 0.05)
    assert ahead_s() == pytest.approx(0.0)
    await asyncio.sleep(10.0)
    assert ahead_s() == pytest.approx(0.5)
    await node.kill()
    await node.start()
    await cluster.until_ready()
    assert ahead_s() > 0.5
    node.shift_clock(0.0)
    assert ahead_s() == 0.0
