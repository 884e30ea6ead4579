"""A core is cut off while it starts, for longer than the others wait for it: it comes in all the same, as another
incarnation, and its process doesn't end."""

from __future__ import annotations

import asyncio
from typing import Final

from flockmq.rlog.schema import CLUSTER
from simulation.cluster import SimulatedCluster
from simulation.node import SimulatedNode
from simulation.scenario import scenario

CORE: Final = "core-3"
SLOW_S: Final = 0.4
"""To Redis, so that a start takes its time."""
AWAY_S: Final = 10.0
"""Who is registered, and no member, is purged by then."""
POLL_S: Final = 0.01


def registered(cluster: SimulatedCluster) -> set[str]:
    """Incarnations of the core that the log takes writes from."""
    sequences = cluster.nodes["core-1"].running.rlog.tables.shards[CLUSTER].sequences
    return {incarnation for incarnation in sequences if incarnation.startswith(f"{CORE}@")}


def cut_off(cluster: SimulatedCluster, node: SimulatedNode, *, ends: bool) -> None:
    others = [host for host in cluster.hosts if host != node.name]
    for other in others:
        for pair in ((node.name, other), (other, node.name)):
            (cluster.mend if ends else cluster.cut)(*pair)


@scenario()
async def test_a_core_that_is_purged_while_it_starts_comes_in_as_another_incarnation(cluster: SimulatedCluster) -> None:
    core = cluster.nodes[CORE]
    former = registered(cluster)
    await core.kill()
    cluster.slow(CORE, "redis", SLOW_S)
    await core.start()
    while not (came := registered(cluster) - former):  # noqa: ASYNC110 - simulated time
        await asyncio.sleep(POLL_S)
    cut_off(cluster, core, ends=False)
    await asyncio.sleep(AWAY_S)
    assert not core.is_ready
    assert not registered(cluster) & came
    cut_off(cluster, core, ends=True)
    cluster.slow(CORE, "redis", 0.0)
    await cluster.until_ready()
