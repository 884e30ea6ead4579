"""Nodes whose wall clocks are wrong: what lasts an hour lasts an hour, whatever any node's clock says."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from conformance import wire
from flockmq.bounds import DELAYED_MAX_S
from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

HOUR_S: Final = 3600
NEVER_S: Final = 0xFFFFFFFF
AHEAD_S: Final = 7200.0
CLIENTS: Final = 8
LOOKED_AT_S: Final = 15.0
"""Longer than the leader takes until it looks for retained messages that expired."""
ALARM_S: Final = 30.0
"""Longer than it takes until an alarm is raised, or ends."""


async def _returned(cluster: SimulatedCluster, session_expiry_s: int, ahead_s: float) -> list[Client]:
    """Clients that were away when core-1, their owner, died, and a message came that lasts an hour. Core-2, which takes
    over some of their sessions, has a clock that is ahead."""
    names = cluster.clients_of("core-1", CLIENTS)
    for name in names:
        client = await Client.connect(cluster, name, at="replicant-1", expiry_s=session_expiry_s)
        await client.subscribe("t")
        client.disconnect()
    publisher = await Client.connect(cluster, "publisher", at="replicant-2", clean=True)
    assert await publisher.publish("t", b"1", expiry_s=HOUR_S) == 0
    cluster.hosts["core-2"].shift_clock(ahead_s)
    await cluster.hosts["core-1"].kill()
    for name in names:
        await cluster.until_moved(name, "core-1")
    assert "core-2" in {cluster.owner_of(name) for name in names}
    await asyncio.sleep(1.0)
    return [await Client.connect(cluster, name, at="replicant-1", expiry_s=session_expiry_s) for name in names]


async def _without_session(cluster: SimulatedCluster, ahead_s: float) -> list[str]:
    return [client.name for client in await _returned(cluster, HOUR_S, ahead_s) if not client.present]


async def _without_message(cluster: SimulatedCluster, ahead_s: float) -> list[str]:
    returned = await _returned(cluster, NEVER_S, ahead_s)
    return [client.name for client in returned if not await client.receives(b"1", within_s=1.0)]


@scenario()
async def test_sessions_and_what_waits_in_them_outlive_their_owner(cluster: SimulatedCluster) -> None:
    returned = await _returned(cluster, HOUR_S, ahead_s=0.0)
    assert all([client.present and await client.receives(b"1") for client in returned])


@scenario()
async def test_sessions_outlive_their_owner_at_a_core_whose_clock_is_ahead(cluster: SimulatedCluster) -> None:
    assert await _without_session(cluster, AHEAD_S) == []


@scenario()
async def test_sessions_outlive_their_owner_at_a_core_that_starts_with_a_clock_that_is_ahead(
    cluster: SimulatedCluster,
) -> None:
    await _start_ahead(cluster, "core-2")
    assert await _without_session(cluster, AHEAD_S) == []


@scenario()
async def test_messages_outlive_an_owner_at_a_core_whose_clock_is_ahead(cluster: SimulatedCluster) -> None:
    assert await _without_message(cluster, AHEAD_S) == []


async def _start_ahead(cluster: SimulatedCluster, core: str) -> None:
    await cluster.hosts[core].kill()
    cluster.hosts[core].shift_clock(AHEAD_S)
    await cluster.hosts[core].start()
    await cluster.until_ready()


@scenario()
async def test_what_a_node_whose_clock_is_wrong_is_given_lasts_as_long_as_it_says(cluster: SimulatedCluster) -> None:
    """It expires neither at the nodes whose clocks are right, nor is it kept from clients of one whose clock isn't."""
    cluster.hosts["replicant-1"].shift_clock(-AHEAD_S)
    cluster.hosts["replicant-2"].shift_clock(AHEAD_S)
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    assert await publisher.publish("t", b"1", retain=True, expiry_s=HOUR_S) < 0x80
    await asyncio.sleep(LOOKED_AT_S)
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    await subscriber.subscribe("t")
    assert await subscriber.receives(b"1", within_s=2.0)


@scenario()
async def test_what_a_node_whose_clock_is_wrong_is_given_is_due_when_it_says(cluster: SimulatedCluster) -> None:
    cluster.hosts["replicant-1"].shift_clock(-AHEAD_S)
    cluster.hosts["replicant-2"].shift_clock(AHEAD_S)
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    await subscriber.subscribe("+")
    behind = await Client.connect(cluster, "behind", at="replicant-1", clean=True)
    assert await behind.publish(f"$delayed/{HOUR_S}/late", b"late") == 0
    ahead = await Client.connect(cluster, "ahead", at="replicant-2", clean=True)
    assert await ahead.publish("$delayed/3/soon", b"soon") == 0
    assert await subscriber.receives(b"soon", within_s=5.0)
    assert not await subscriber.receives(b"late", within_s=5.0)


@pytest.mark.parametrize("ahead_s", [-DELAYED_MAX_S, AHEAD_S])
@scenario()
async def test_a_node_whose_clock_is_wrong_takes_a_will_for_a_time_that_is_to_come(
    cluster: SimulatedCluster, ahead_s: float
) -> None:
    cluster.hosts["replicant-1"].shift_clock(ahead_s)
    will = wire.Will(f"$delayed/{int(cluster.wall_s()) + HOUR_S}/t", b"gone", 1)
    await Client.connect(cluster, "device", at="replicant-1", clean=True, will=will)


@scenario()
async def test_an_alarm_stands_while_a_clock_is_wrong(cluster: SimulatedCluster) -> None:
    wrong = {"core-2": AHEAD_S, "replicant-1": -AHEAD_S}
    for name, seconds in wrong.items():
        cluster.hosts[name].shift_clock(seconds)
    await asyncio.sleep(ALARM_S)
    alarms = dict(await cluster.alarms())
    assert sorted(alarms) == ["clock/core-2", "clock/replicant-1"]
    assert all(abs(since_s - cluster.wall_s()) < ALARM_S for since_s in alarms.values())
    for name in wrong:
        cluster.hosts[name].shift_clock(0.0)
    await asyncio.sleep(ALARM_S)
    assert await cluster.alarms() == []


@scenario()
async def test_the_alarm_of_a_node_that_is_gone_ends(cluster: SimulatedCluster) -> None:
    cluster.hosts["replicant-1"].shift_clock(AHEAD_S)
    await asyncio.sleep(ALARM_S)
    assert [name for name, _ in await cluster.alarms()] == ["clock/replicant-1"]
    await cluster.hosts["replicant-1"].drain()
    await asyncio.sleep(ALARM_S)
    assert await cluster.alarms() == []


async def _retained_for_an_hour(cluster: SimulatedCluster, ahead_s: float) -> bool:
    """Whether it is there after seconds. The leader's clock is ahead."""
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    assert await publisher.publish("t", b"1", retain=True, expiry_s=HOUR_S) < 0x80
    await _set_ahead(cluster, ahead_s)
    await asyncio.sleep(LOOKED_AT_S)
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    return await subscriber.receives(b"1", within_s=2.0)


async def _set_ahead(cluster: SimulatedCluster, seconds: float) -> None:
    leader = await cluster.leader()
    assert leader is not None
    leader.shift_clock(seconds)


@scenario()
async def test_a_retained_message_lasts_as_long_as_it_says(cluster: SimulatedCluster) -> None:
    assert await _retained_for_an_hour(cluster, ahead_s=0.0)


@scenario()
async def test_a_retained_message_outlives_a_look_by_a_leader_whose_clock_is_ahead(cluster: SimulatedCluster) -> None:
    assert await _retained_for_an_hour(cluster, AHEAD_S)


async def _delayed_by_an_hour(cluster: SimulatedCluster, ahead_s: float) -> bool:
    """Whether it comes after seconds. The leader's clock is ahead."""
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    await subscriber.subscribe("t")
    await _set_ahead(cluster, ahead_s)
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    assert await publisher.publish(f"$delayed/{HOUR_S}/t", b"1") == 0
    return await subscriber.receives(b"1", within_s=5.0)


@scenario()
async def test_a_delayed_message_waits(cluster: SimulatedCluster) -> None:
    assert not await _delayed_by_an_hour(cluster, ahead_s=0.0)


@scenario()
async def test_a_delayed_message_waits_at_a_leader_whose_clock_is_ahead(cluster: SimulatedCluster) -> None:
    assert not await _delayed_by_an_hour(cluster, AHEAD_S)
