"""A core that reaches all nodes, but not Redis, while the other cores do.

Its slots go to cores that can serve them, and it says how it is."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, is_answered, scenario

CORE: Final = "core-2"
ADMITTED_S: Final = 5.0
GIVEN_UP_S: Final = 10.0
"""By then a core that can't serve its slots has given them up, and another one serves them."""


def cut_off(cluster: SimulatedCluster, core: str) -> None:
    cluster.cut(core, "redis")
    cluster.cut("redis", core)


async def subscriber(cluster: SimulatedCluster, name: str) -> Client:
    """Of a session that lasts."""
    client = await Client.connect(cluster, name, at="replicant-1", expiry_s=600)
    assert await client.subscribe("t") == 1
    return client


async def check_given(cluster: SimulatedCluster, client: Client) -> None:
    """What is published is acknowledged, and comes."""
    pub = await Client.connect(cluster, "pub", at="replicant-2")
    assert await pub.publish("t", b"1") == 0
    assert await client.receives(b"1")


@scenario()
async def test_a_core_that_reaches_redis_serves_its_slots(cluster: SimulatedCluster) -> None:
    known, new = cluster.clients_of(CORE, 2)
    client = await subscriber(cluster, known)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(CORE) > 0
    assert cluster.says_ready(CORE)
    assert cluster.is_said_ready(CORE, by="replicant-1")
    assert not await cluster.alarms()
    await check_given(cluster, client)
    await subscriber(cluster, new)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="Mend 2: a core that doesn't reach Redis keeps its slots")
@scenario()
async def test_a_core_that_is_cut_off_gives_up_its_slots(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert cluster.slots_of(CORE) == 0


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="Mend 2: what is published for a session of a core that is cut off isn't answered",
)
@scenario()
async def test_a_session_of_a_core_that_is_cut_off_goes_on_elsewhere(cluster: SimulatedCluster) -> None:
    (known,) = cluster.clients_of(CORE, 1)
    client = await subscriber(cluster, known)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert await is_answered(check_given(cluster, client))


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="Mend 2: nobody is admitted whose home is cut off")
@scenario()
async def test_a_new_client_of_a_core_that_is_cut_off_is_admitted(cluster: SimulatedCluster) -> None:
    (new,) = cluster.clients_of(CORE, 1)
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert await is_answered(subscriber(cluster, new), ADMITTED_S)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="Mend 2: a core that can't serve its slots says that it is ready, and no alarm is raised",
)
@scenario()
async def test_a_core_that_is_cut_off_says_so(cluster: SimulatedCluster) -> None:
    cut_off(cluster, CORE)
    await asyncio.sleep(GIVEN_UP_S)
    assert not cluster.says_ready(CORE)
    assert not cluster.is_said_ready(CORE, by="replicant-1")
    assert await cluster.alarms()
