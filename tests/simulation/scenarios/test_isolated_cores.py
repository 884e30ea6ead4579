"""Cores that were cut off from everybody, and are back: nobody suffers from what they didn't hear meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

ISOLATED: Final = ("core-2", "core-3")
REPLICANTS: Final = ("replicant-1", "replicant-2")
AWAY_S: Final = 8.0
SOONER_S: Final = 1.5
"""Cores reach one another, and Redis, so much sooner than replicants."""
AFTER_S: Final = 6.0
"""By then the leader has purged whom it thinks gone."""


def for_each_path(act: Callable[[str, str], None], others: Iterable[str]) -> None:
    """Between isolated cores and others, in both directions."""
    for isolated in ISOLATED:
        for other in others:
            if isolated != other:
                act(isolated, other)
                act(other, isolated)


@scenario()
async def test_two_of_three_cores_that_come_back_purge_no_replicant(cluster: SimulatedCluster) -> None:
    clients = [await Client.connect(cluster, f"clean-{node}", at=node, clean=True) for node in REPLICANTS]
    for client in clients:
        assert await client.subscribe("t") == 1
    nearer = ("core-1", *ISOLATED, "redis")
    for_each_path(cluster.cut, (*nearer, *REPLICANTS))
    await asyncio.sleep(AWAY_S)
    cluster.cut("core-1", "redis")  # so that one of those that come back leads
    for_each_path(cluster.mend, nearer)
    await asyncio.sleep(SOONER_S)
    for_each_path(cluster.mend, REPLICANTS)
    cluster.mend("core-1", "redis")
    await asyncio.sleep(AFTER_S)
    assert all(client.is_open for client in clients), "a node that was purged closes who may have missed messages"
    assert await clients[0].publish("t", b"1") == 0
    for client in clients:
        assert await client.receives(b"1")
