"""How each kind of fault of schedule.py is done to a lab, and undone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from faults.lab import Broker, Lab
from faults.schedule import LEADER, Planned, Step
from load.history import AnyEvent, FaultBegan, FaultEnded, RedisLost

Record = Callable[[AnyEvent], None]
DOWN_S: Final = 0.1
"""How long Redis is away while it is replaced, at least."""


async def run_step(lab: Lab, record: Record, step: Step) -> None:
    """All its faults at once, each undone when its time is over; then the pause."""
    await asyncio.gather(*(run_fault(lab, record, planned) for planned in step.faults))
    await asyncio.sleep(step.pause_s)


async def run_fault(lab: Lab, record: Record, planned: Planned) -> None:
    await asyncio.sleep(planned.after_s)
    targets = await _resolved(lab, planned.targets)
    now = asyncio.get_running_loop().time
    record(FaultBegan(now(), planned.kind, targets))
    try:
        async with _done(lab, record, planned, targets):
            await asyncio.sleep(planned.hold_s)
    finally:
        record(FaultEnded(now(), planned.kind, targets))


async def _resolved(lab: Lab, targets: tuple[str, ...]) -> tuple[str, ...]:
    if LEADER not in targets:
        return targets
    leader = await lab.leader()
    name = (leader or lab.cores[0]).name
    return tuple(name if target == LEADER else target for target in targets)


@contextlib.asynccontextmanager
async def _done(lab: Lab, record: Record, planned: Planned, targets: tuple[str, ...]) -> AsyncIterator[None]:
    verb, host = planned.kind.split()[0], lab.hosts[targets[0]]
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
            async with _cut(lab, pairs, planned.both_ways):
                yield
        case "isolate":
            async with _cut(lab, [(host.name, other) for other in lab.hosts if other != host.name], planned.both_ways):
                yield
        case "fill":
            await asyncio.to_thread(host.fill)
            yield
            host.clear()
        case "clock":
            assert isinstance(host, Broker)
            host.shift_clock(planned.amount)
            yield
            host.shift_clock(0.0)
        case "empty":
            await host.kill()
            lab.redis.empty()
            record(RedisLost(asyncio.get_running_loop().time()))
            yield
            await host.start()
        case "older":
            lab.redis.copy_data()
            yield
            await host.kill()
            lab.redis.restore_copy()
            record(RedisLost(asyncio.get_running_loop().time()))
            await asyncio.sleep(DOWN_S)
            await host.start()
        case _:
            raise ValueError(f"no fault is called {planned.kind!r}")


@contextlib.asynccontextmanager
async def _cut(lab: Lab, pairs: list[tuple[str, str]], both_ways: bool) -> AsyncIterator[None]:
    ways = pairs + [(target, source) for source, target in pairs] * both_ways
    for source, target in ways:
        lab.cut(source, target)
    try:
        yield
    finally:
        for source, target in ways:
            lab.mend(source, target)
