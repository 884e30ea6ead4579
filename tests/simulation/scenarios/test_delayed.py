"""Messages that are delayed keep the order in which their client published them; what was refused never comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import pytest

from conformance import wire
from simulation.cluster import Shape, SimulatedCluster
from simulation.profiles import BY_RULES
from simulation.scenario import Client, scenario

MESSAGES: Final = [b"%d" % number for number in range(20)]
DELAY_S: Final = 20
LATE_S: Final = 10.0
PASSED_S: Final = 5.0
REFUSED_S: Final = 12.0
"""By then a write that waits for Redis has been refused."""
PURGED_S: Final = 6.0
"""By then a node that nobody hears has been."""


async def _come_as(cluster: SimulatedCluster, pause_s: float, *, retained: int = 0) -> list[bytes]:
    """The order in which they come that one client published, each so long behind the one before. Every so many is to
    be retained."""
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    for number, message in enumerate(MESSAGES):
        publisher.send("$delayed/2/t", message, retain=retained > 0 and number % retained == 0)
        if pause_s:
            await asyncio.sleep(pause_s)
    for message in MESSAGES:
        assert await subscriber.receives(message)
    return subscriber.payloads()


@scenario()
async def test_delayed_messages_come_in_their_order(cluster: SimulatedCluster) -> None:
    assert await _come_as(cluster, pause_s=0.01) == MESSAGES


@scenario()
async def test_delayed_messages_of_one_millisecond_come_in_their_order(cluster: SimulatedCluster) -> None:
    assert await _come_as(cluster, pause_s=0.0) == MESSAGES


@scenario()
async def test_delayed_messages_come_in_their_order_though_some_are_to_be_retained(cluster: SimulatedCluster) -> None:
    assert await _come_as(cluster, pause_s=0.0, retained=3) == MESSAGES


@scenario()
async def test_a_will_whose_time_has_passed_when_its_client_is_gone_comes_at_once(cluster: SimulatedCluster) -> None:
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    will = wire.Will(f"$delayed/{int(cluster.wall_s()) + 2}/t", b"gone", 1)
    device = await Client.connect(cluster, "device", at="replicant-1", clean=True, will=will)
    await asyncio.sleep(PASSED_S)
    device.drop()
    assert await subscriber.receives(b"gone")


@scenario(Shape(settings=BY_RULES))
async def test_a_delayed_message_that_rules_forbid_meanwhile_never_comes_whoever_leads(
    cluster: SimulatedCluster,
) -> None:
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    for name in ("silenced", "other"):
        publisher = await Client.connect(cluster, name, at="replicant-1", clean=True)
        assert await publisher.publish(f"$delayed/{DELAY_S}/t", name.encode()) < 0x80
        publisher.drop()
    await cluster.admin.silence("replicant-2", "silenced")
    leader = await cluster.leader()
    assert leader is not None
    await cluster.hosts[leader.name].kill()
    assert await subscriber.receives(b"other", DELAY_S + LATE_S)
    assert subscriber.payloads() == [b"other"]


@scenario()
async def test_who_delays_what_cannot_be_delayed_is_told_and_goes_on(cluster: SimulatedCluster) -> None:
    """Before 5.0 it can't be said."""
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    older = await Client.connect(cluster, "older", at="replicant-1", clean=True, version=wire.V311)
    for interval in ("0", "soon", "-1", "4294968", "99999999999"):
        for qos in (1, 2):
            assert await publisher.publish(f"$delayed/{interval}/t", b"never", qos) == 0x90
            assert await older.publish(f"$delayed/{interval}/t", b"never", qos) == 0
    assert await publisher.publish("$delayed/1/t", b"") < 0x80
    assert await older.publish("$delayed/1/t", b"") == 0


async def _refused_come_amid(cluster: SimulatedCluster, trouble: Awaitable[None]) -> tuple[int, list[bytes]]:
    """How many are refused of those that were published before the trouble, and which of these come."""
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", expiry_s=600)
    assert await subscriber.subscribe("t") == 1
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    published = [asyncio.create_task(publisher.publish(f"$delayed/{DELAY_S}/t", message)) for message in MESSAGES]
    await trouble
    reasons = await asyncio.gather(*published)
    await asyncio.sleep(DELAY_S + LATE_S)
    refused = [message for message, reason in zip(MESSAGES, reasons, strict=True) if reason >= 0x80]
    assert subscriber.payloads()[: len(MESSAGES) - len(refused)] == [each for each in MESSAGES if each not in refused]
    return len(refused), [message for message in subscriber.payloads() if message in refused]


async def _redis_is_away(cluster: SimulatedCluster, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await cluster.redis[0].kill()
    await asyncio.sleep(REFUSED_S)
    await cluster.redis[0].start()


async def _publishers_node_is_purged(cluster: SimulatedCluster, after_s: float) -> None:
    others = [name for name in ("redis", *cluster.nodes) if name != "replicant-1"]
    for core in cluster.cores:
        cluster.slow(core.name, "redis", 0.01)
    await asyncio.sleep(after_s)
    for other in others:
        cluster.cut("replicant-1", other)
        cluster.cut(other, "replicant-1")
    await asyncio.sleep(PURGED_S)
    for other in others:
        cluster.mend("replicant-1", other)
        cluster.mend(other, "replicant-1")


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.002, 0.02])
@scenario()
async def test_what_was_refused_while_redis_was_away_does_not_come(cluster: SimulatedCluster, after_s: float) -> None:
    assert (await _refused_come_amid(cluster, _redis_is_away(cluster, after_s)))[1] == []


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.005, 0.02])
@scenario()
async def test_what_was_refused_by_a_node_that_is_purged_does_not_come(
    cluster: SimulatedCluster, after_s: float
) -> None:
    assert (await _refused_come_amid(cluster, _publishers_node_is_purged(cluster, after_s)))[1] == []
