"""How each kind of fault of schedule.py is done to a lab, and undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final, cast

from faults.cluster import Cluster, MemoryHost, NodeHost, RedisHost
from faults.schedule import FOR_GOOD, LEADER, PRIMARY, REPLICA, Planned, Step
from load.history import AnyEvent, FaultBegan, FaultEnded, RedisLost, Unwell

Record = Callable[[AnyEvent], None]
DOWN_S: Final = 0.1
CROWDED_PART: Final = 0.8
"""Of its memory that a Redis uses: nodes refuse more, and the log has the rest."""
"""How long Redis is away while it is replaced, at least."""


async def run_step(cluster: Cluster, record: Record, step: Step, over: asyncio.Event) -> list[asyncio.Task[None]]:
    """All its faults at once, each undone when its time is over; then the pause. Returns those that go on until `over`
    is set."""
    running = [(planned, asyncio.create_task(run_fault(cluster, record, planned, over))) for planned in step.faults]
    await asyncio.gather(*(task for planned, task in running if planned.hold_s < FOR_GOOD))
    await asyncio.sleep(step.pause_s)
    return [task for planned, task in running if planned.hold_s == FOR_GOOD]


async def run_fault(cluster: Cluster, record: Record, planned: Planned, over: asyncio.Event) -> None:
    await asyncio.sleep(planned.after_s)
    targets = await _resolved(cluster, planned.targets)
    now = asyncio.get_running_loop().time
    record(FaultBegan(now(), planned.kind, targets))
    try:
        async with _done(cluster, record, planned, targets):
            await (over.wait() if planned.hold_s == FOR_GOOD else asyncio.sleep(planned.hold_s))
    except TimeoutError:
        record(Unwell(now(), ", ".join(targets), f"{planned.kind} took too long"))
    finally:
        record(FaultEnded(now(), planned.kind, targets))


async def _resolved(cluster: Cluster, targets: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([await _named(cluster, target) for target in targets])


async def _named(cluster: Cluster, target: str) -> str:
    """The host that is the leader, the primary or a replica now."""
    if target == LEADER:
        return (await cluster.leader() or cluster.cores[0]).name
    if target not in (PRIMARY, REPLICA):
        return target
    primary = await cluster.primary() or cluster.redis[0]
    return next(host.name for host in cluster.redis if (host.name == primary.name) == (target == PRIMARY))


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
        case "upgrade":
            cast(NodeHost, host).upgrade()
            await host.drain()
            yield
            await host.start()
        case "stop":
            host.pause()
            yield
            host.resume()
        case "strain":
            cast(NodeHost, host).strain(planned.amount)
            yield
            cast(NodeHost, host).strain(0.0)
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
        case "oom":
            await asyncio.to_thread(cast(RedisHost, host).limit_memory, 1.0)
            yield
            await asyncio.to_thread(cast(RedisHost, host).limit_memory, 0.0)
        case "crowd":
            await asyncio.to_thread(cast(MemoryHost, host).limit_memory, planned.amount or CROWDED_PART)
            yield
            await asyncio.to_thread(cast(MemoryHost, host).limit_memory, 0.0)
        case "scale":
            before = len(cluster.cores)
            await cluster.scale_cores(int(planned.amount))
            yield
            await cluster.scale_cores(before)
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
            cast(RedisHost, host).empty()
            record(RedisLost(asyncio.get_running_loop().time()))
            yield
            await host.start()
        case "older":
            cast(RedisHost, host).copy_data()
            yield
            await host.kill()
            cast(RedisHost, host).restore_copy()
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
