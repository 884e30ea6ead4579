"""What is looked at on every node when a chapter's faults are over: each waits until it is as it should be, or tells
how it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from faults.cluster import Cluster
from judges.judge import judge
from load.history import AlarmMissing, AnyEvent, FaultBegan, RowsLeft, TablesStood

POLL_S: Final = 0.1


async def tables(cluster: Cluster, patience_s: float) -> list[TablesStood]:
    """What all nodes say, once they say the same, or in the end."""
    now = asyncio.get_running_loop().time
    deadline = now() + patience_s
    while True:
        stood = await cluster.tables()
        nodes = {told.node for told in stood}
        if now() > deadline or (len(nodes) == len(cluster.nodes) and not judge(stood).findings):
            return stood
        await asyncio.sleep(POLL_S)


async def alarms_missing(cluster: Cluster, events: Sequence[AnyEvent]) -> list[AlarmMissing]:
    """Whoever lost Redis' data must have been told so."""
    emptied = [event.at for event in events if isinstance(event, FaultBegan) and event.kind == "empty redis"]
    if not emptied:
        return []
    now = asyncio.get_running_loop().time()
    lost_at_s = cluster.wall_s() - (now - emptied[-1])
    alarms = await cluster.alarms()
    if any(name.startswith("redis-lost-data") and since_s >= lost_at_s for name, since_s in alarms):
        return []
    return [AlarmMissing(now, f"Redis lost its data, and the alarms are {alarms}")]


async def routes_left(cluster: Cluster, patience_s: float) -> list[RowsLeft]:
    """Every node's routes, once there are none, or in the end."""
    now = asyncio.get_running_loop().time
    deadline = now() + patience_s
    while True:
        left = await cluster.routes()
        if now() > deadline or not any(rows.routes for rows in left):
            return left
        await asyncio.sleep(POLL_S)
