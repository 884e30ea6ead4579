"""One chapter of a run: clients come, faults happen, all is mended, the publishers fall silent, nodes are looked at,
the clients leave; what was seen is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Final

from faults import aftermath
from faults.cluster import Cluster
from faults.inject import run_step
from faults.schedule import Step
from judges.judge import LOST, RETAINED_MISSING, SHARED_LOST, Rules, Verdict, is_anything_missing, judge
from load.clients import Load
from load.history import AnyEvent, Unwell

START_MAX_S: Final = 60.0
READY_MAX_S: Final = 60.0
POLL_S: Final = 1.0
LOOK_EVERY_S: Final = 1.0

Happen = Callable[[asyncio.Event, Callable[[], Awaitable[None]]], Awaitable[list[asyncio.Task[None]]]]
"""`happen(over, calm)`: `calm()` returns when all nodes are ready and all clients connected, or after READY_MAX_S; it
returns what goes on until `over` is set."""


async def play(
    cluster: Cluster,
    load: Load,
    steps: Sequence[Step],
    events: list[AnyEvent],
    patience_s: float,
    say: Callable[[str], None] | None = None,
    part: Callable[[str], AbstractContextManager[object]] = nullcontext,
    rules: Rules = Rules(),  # noqa: B008
) -> Verdict:
    """`events`: where the load writes down what it sees. `part` is around each part, which it is told."""
    now = asyncio.get_running_loop().time
    started = now()

    async def happen(over: asyncio.Event, calm: Callable[[], Awaitable[None]]) -> list[asyncio.Task[None]]:
        lasting: list[asyncio.Task[None]] = []
        for step in steps:
            if say is not None:
                say(f"{now() - started:7.1f} s {load.acknowledged:8d} acked  {', '.join(map(str, step.faults))}")
            lasting += await run_step(cluster, events.append, step, over)
            if step.calm:
                await calm()
        return lasting

    return await play_while(cluster, load, happen, events, patience_s, part, rules)


async def play_while(
    cluster: Cluster,
    load: Load,
    happen: Happen,
    events: list[AnyEvent],
    patience_s: float,
    part: Callable[[str], AbstractContextManager[object]] = nullcontext,
    rules: Rules = Rules(),  # noqa: B008
) -> Verdict:
    """The same, for whatever may happen under load."""
    now = asyncio.get_running_loop().time
    over = asyncio.Event()

    async def within(longest_s: float, work: Awaitable[object], what: str) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await work
        except TimeoutError:
            events.append(Unwell(now(), "all", f"{what} not within {longest_s:.0f} s"))

    async def calm() -> None:
        await within(READY_MAX_S, cluster.until_ready(), "nodes were ready")
        await within(READY_MAX_S, load.until_connected(), "clients were connected")

    with part("start"):
        await within(START_MAX_S, load.start(), "clients were there")
    looking = asyncio.create_task(_look(cluster, events))
    with part("faults"):
        lasting = await happen(over, calm)

    with part("settle"):
        await within(READY_MAX_S, cluster.until_ready(), "nodes were ready")
        if unsettled := await load.settle(patience_s, is_anything_missing=partial(is_anything_missing, events, rules)):
            events.append(Unwell(now(), ", ".join(unsettled), f"no answer within {patience_s:.0f} s"))
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    with part("judge"):
        verdict = await _until_none_is_lost(events, patience_s, rules)
    with part("look"):
        over.set()
        await asyncio.gather(*lasting)
        events += await aftermath.tables(cluster, patience_s)
        events += await aftermath.alarms_missing(cluster, events)
    with part("leave"):
        await load.leave(patience_s)
        events += await aftermath.routes_left(cluster, patience_s)
    with part("judge"):
        return verdict.joined(judge(events, rules))


async def _look(cluster: Cluster, events: list[AnyEvent]) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        events += await cluster.look()


async def _until_none_is_lost(events: Sequence[AnyEvent], patience_s: float, rules: Rules) -> Verdict:
    """Late isn't lost. What is promised to clients that are there is seen now: of those who left nobody can say. A
    thread judges, for the clients that are there have to go on saying so."""
    now = asyncio.get_running_loop().time
    deadline = now() + patience_s
    while True:
        verdict = await asyncio.to_thread(judge, tuple(events), rules)
        if now() > deadline or not any(map(verdict.count, (LOST, SHARED_LOST, RETAINED_MISSING))):
            return verdict
        await asyncio.sleep(POLL_S)
