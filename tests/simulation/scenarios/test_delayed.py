"""Messages that are delayed keep the order in which their client published them."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

MESSAGES: Final = [b"%d" % number for number in range(20)]


async def _come_as(cluster: SimulatedCluster, pause_s: float) -> list[bytes]:
    """The order in which they come that one client published, each so long behind the one before."""
    subscriber = await Client.connect(cluster, "subscriber", at="replicant-2", clean=True)
    assert await subscriber.subscribe("t") == 1
    publisher = await Client.connect(cluster, "publisher", at="replicant-1", clean=True)
    for message in MESSAGES:
        publisher.send("$delayed/2/t", message)
        if pause_s:
            await asyncio.sleep(pause_s)
    for message in MESSAGES:
        assert await subscriber.receives(message)
    return subscriber.payloads()


@scenario()
async def test_delayed_messages_come_in_their_order(cluster: SimulatedCluster) -> None:
    assert await _come_as(cluster, pause_s=0.01) == MESSAGES


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="Mend 10: delayed messages of one millisecond come out shuffled"
)
@scenario()
async def test_delayed_messages_of_one_millisecond_come_in_their_order(cluster: SimulatedCluster) -> None:
    assert await _come_as(cluster, pause_s=0.0) == MESSAGES
