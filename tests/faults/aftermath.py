"""What is looked at on every node when a chapter's faults are over: each waits until it is as it should be, or tells
how it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from faults.lab import Lab
from judges.judge import judge
from load.history import AlarmMissing, AnyEvent, FaultBegan, RowsLeft, TablesStood

POLL_S: Final = 0.1


async def tables(lab: Lab, patience_s: float) -> list[TablesStood]:
    """What all nodes say, once they say the same, or in the end."""
    deadline = time.monotonic() + patience_s
    while True:
        stood: list[TablesStood] = []
        now = asyncio.get_running_loop().time()
        for broker in lab.brokers:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                shards = await lab.get(broker, "/api/v5/rlog")
                stood += [
                    TablesStood(now, broker.name, shard, state["applied"], state["digests"])
                    for shard, state in shards.items()
                ]
        nodes = {told.node for told in stood}
        if time.monotonic() > deadline or (len(nodes) == len(lab.brokers) and not judge(stood).findings):
            return stood
        await asyncio.sleep(POLL_S)


async def alarms_missing(lab: Lab, events: Sequence[AnyEvent]) -> list[AlarmMissing]:
    """Whoever lost Redis' data must have been told so."""
    emptied = [event.at for event in events if isinstance(event, FaultBegan) and event.kind == "empty redis"]
    if not emptied:
        return []
    now = asyncio.get_running_loop().time()
    lost_at_s = time.time() - (now - emptied[-1])
    alarms: list[dict[str, Any]] = []
    with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
        alarms = await lab.get(lab.cores[0], "/api/v5/alarms")
    if any(alarm["name"].startswith("redis-lost-data") and alarm["since_s"] >= lost_at_s for alarm in alarms):
        return []
    return [AlarmMissing(now, f"Redis lost its data, and the alarms are {alarms}")]


async def routes_left(lab: Lab, patience_s: float) -> list[RowsLeft]:
    """Every node's routes, once there are none, or in the end."""
    deadline = time.monotonic() + patience_s
    while True:
        left: list[RowsLeft] = []
        now = asyncio.get_running_loop().time()
        for broker in lab.brokers:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                left.append(RowsLeft(now, broker.name, int(await lab.metric(broker, "flockmq_routes"))))
        if time.monotonic() > deadline or not any(rows.routes for rows in left):
            return left
        await asyncio.sleep(POLL_S)
