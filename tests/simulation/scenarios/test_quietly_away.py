"""A node that is away for a moment is no cause for a warning of links."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from simulation.cluster import SimulatedCluster
from simulation.scenario import Client, scenario

AWAY_S: Final = 5.0
"""Longer than others try to reach it directly alone, shorter than RETRIED_QUIETLY_MAX_S."""


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@scenario()
async def test_nobody_warns_of_a_link_to_a_node_that_is_back_soon(cluster: SimulatedCluster) -> None:
    """Nobody can purge it meanwhile, so it is looked for through cores, too."""
    sub = await Client.connect(cluster, "sub", at="replicant-2", clean=True)
    assert await sub.subscribe("t") == 1
    publisher = await Client.connect(cluster, "pub", at="replicant-1", clean=True)
    assert await publisher.publish("t", b"1") == 0
    heard = Heard()
    logging.getLogger("flockmq.membership.mesh").addHandler(heard)
    away = [cluster.nodes[name] for name in ("core-2", "core-3", "replicant-2")]
    for node in away:
        await node.kill()
    await asyncio.sleep(AWAY_S)
    for node in away:
        await node.start()
    await cluster.until_ready()
    assert heard.said == []
