"""How each kind of fault of schedule.py is done to a lab, and undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from faults.cluster import Cluster
from faults.schedule import LEADER, Planned, Step
from load.history import AnyEvent, FaultBegan, FaultEnded, RedisLost

Record = Callable[[AnyEvent], None]
DOWN_S: Final = 0.1
"""How long Redis is away while it is replaced, at least."""


async def run_step(cluster: Cluster, record: Record, step: Step) -> None:
    """All its faults at once, each undone when its time is over; then the pause."""
    await asyncio.gather(*(run_fault(cluster, record, planned) for planned in step.faults))
    await asyncio.sleep(step.pause_s)


async def run_fault(cluster: Cluster, record: Record, planned: Planned) -> None:
    await asyncio.sleep(planned.after_s)
    targets = await _resolved(cluster, planned.targets)
    now = asyncio.get_running_loop().time
    record(FaultBegan(now(), planned.kind, targets))
    try:
        async with _done(cluster, record, planned, targets):
            await asyncio.sleep(planned.hold_s)
    finally:
        record(FaultEnded(now(), planned.kind, targets))


async def _resolved(cluster: Cluster, targets: tuple[str, ...]) -> tuple[str, ...]:
    if LEADER not in targets:
        return targets
    leader = await cluster.leader()
    name = (leader or cluster.cores[0]).name
    return tuple(name if target == LEADER else target for target in targets)


@contextlib.asynccontextmanager
async def _done(cluster: Cluster, record: Record, planned: Planned, targets: tuple[str, ...]) -> AsyncIterator[None]:
    verb, host = planned.kind.split()[0], cluster.hosts[targets[0]]
    match verb:
        case "kill":
            await host.kill()
            yield
            await host.start()
        case "drain":
            await host.drain()
            yield
            await host.start()
        case "stop":
            host.pause()
            yield
            host.resume()
        case "cut":
            pairs = [(targets[0], targets[1])]
            async with _cut(cluster, pairs, planned.both_ways):
                yield
        case "isolate":
            async with _cut(
                cluster, [(host.name, other) for other in cluster.hosts if other != host.name], planned.both_ways
            ):
                yield
        case "fill":
            await asyncio.to_thread(host.fill)
            yield
            host.clear()
        case "clock":
            host.shift_clock(planned.amount)
            yield
            host.shift_clock(0.0)
        case "drift":
            host.shift_clock(0.0, planned.amount)
            yield
            host.shift_clock(0.0)
        case "slow":
            host.slow_down(planned.amount)
            yield
            host.slow_down(0.0)
        case "lossy":
            host.lose(planned.amount)
            yield
            host.lose(0.0)
        case "stall":
            host.stall_disk(True)
            yield
            host.stall_disk(False)
        case "fsync":
            host.fail_disk()
            yield
            await host.start()
        case "corrupt":
            await host.kill()
            host.corrupt()
            yield
            await host.start()
        case "empty":
            await host.kill()
            cluster.redis.empty()
            record(RedisLost(asyncio.get_running_loop().time()))
            yield
            await host.start()
        case "older":
            cluster.redis.copy_data()
            yield
            await host.kill()
            cluster.redis.restore_copy()
            record(RedisLost(asyncio.get_running_loop().time()))
            await asyncio.sleep(DOWN_S)
            await host.start()
        case _:
            raise ValueError(f"no fault is called {planned.kind!r}")


@contextlib.asynccontextmanager
async def _cut(cluster: Cluster, pairs: list[tuple[str, str]], both_ways: bool) -> AsyncIterator[None]:
    ways = pairs + [(target, source) for source, target in pairs] * both_ways
    for source, target in ways:
        cluster.cut(source, target)
    try:
        yield
    finally:
        for source, target in ways:
            cluster.mend(source, target)
