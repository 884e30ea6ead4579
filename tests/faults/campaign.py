"""`make faults N=1000 SEED=7`: a cluster under load, one fault after another, and what became of each message.

A campaign goes in chapters: clients come, faults happen, all is mended, the publishers fall silent, the history is
judged, the clients leave. The schedule comes from the seed alone. Its last line is

    faults=… acked=… lost=… duplicated=… reordered=…

and it ends with 1 unless the last three are 0 and nothing else was found. Logs of the nodes, and the history of each
chapter in which something was found, are left in --out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import uvloop

from faults import checker, history, sandbox, schedule
from faults.checker import Finding, Verdict, judge
from faults.history import Acknowledged, AlarmMissing, AnyEvent, FaultBegan, FaultEnded, RowsLeft, TablesStood, Unwell
from faults.inject import run_step
from faults.lab import Host, Lab
from faults.load import TOPICS, Publisher, Stage, Subscriber

CHAPTER_FAULTS: Final = 20
SETTLE_MAX_S: Final = 30.0
"""How long clients, tables and messages may take until all is quiet, after the last fault."""
START_MAX_S: Final = 60.0
QUIET_S: Final = 1.0
POLL_S: Final = 0.05
FINDINGS_SHOWN: Final = 10
"""Of a kind and chapter; the rest is in the file."""


class Load:
    """One chapter's clients."""

    def __init__(self, stage: Stage, chapter: int, sessions: str, rate: float, churners: int) -> None:
        kinds = [lasts for lasts, name in ((False, "clean"), (True, "durable")) if sessions in (name, "both")]
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        for lasts in kinds:
            prefix = f"{chapter}-{'durable' if lasts else 'clean'}"
            each = rate / len(kinds) / 3
            self.publishers += [Publisher(stage, f"{prefix}-pub{i}", lasts=lasts, rate=each) for i in range(3)]
            self.subscribers += [
                Subscriber(stage, f"{prefix}-all", [("load/#", 2)], lasts=lasts),
                Subscriber(stage, f"{prefix}-one", [("load/+/1/+", 1)], lasts=lasts),
                Subscriber(stage, f"{prefix}-roves", [("load/+/2/+", 2)], lasts=lasts, roves=True),
            ]
            for i in range(churners):
                filters = [(f"load/+/1/{i % TOPICS}", 1), (f"load/+/2/{i % TOPICS}", 2), (f"own/{prefix}/{i}", 1)]
                self.subscribers.append(Subscriber(stage, f"{prefix}-churns{i}", filters, lasts=lasts, churns=True))
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def acknowledged(self) -> int:
        return sum(publisher.acknowledged for publisher in self.publishers)

    @property
    def deliveries(self) -> int:
        return sum(subscriber.deliveries for subscriber in self.subscribers)

    async def start(self) -> None:
        """Returns when all subscribers are there."""
        self._tasks = [asyncio.create_task(player.run()) for player in (*self.subscribers, *self.publishers)]
        await _until(lambda: all(subscriber.is_settled or subscriber.churns for subscriber in self.subscribers))

    async def settle(self) -> None:
        """Everything published is acknowledged, and what is to come has come."""
        for subscriber in self.subscribers:
            subscriber.settle()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_MAX_S):
                await asyncio.gather(*(publisher.stop() for publisher in self.publishers))
                await _until(lambda: all(subscriber.is_settled for subscriber in self.subscribers))
        await self._until_silent()

    async def _until_silent(self) -> None:
        last = -1
        while last != self.deliveries:
            last = self.deliveries
            await asyncio.sleep(QUIET_S)

    async def leave(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_MAX_S):
                await asyncio.gather(*(player.leave() for player in (*self.subscribers, *self.publishers)))


class Tally:
    """What a campaign comes to."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.acknowledged = 0
        self.found: Counter[str] = Counter()
        self.pauses_s: defaultdict[str, float] = defaultdict(float)

    def add(self, events: Sequence[AnyEvent], verdict: Verdict) -> None:
        self.acknowledged += verdict.acknowledged
        self.found += verdict.by_kind()
        for kind, pause_s in pauses(events):
            self.faults[kind] += 1
            self.pauses_s[kind] = max(self.pauses_s[kind], pause_s)

    def table(self) -> list[str]:
        lines = [f"{'fault':<26}{'times':>6}  longest pause of a publisher"]
        lines += [f"{kind:<26}{n:>6}  {self.pauses_s[kind]:.1f} s" for kind, n in sorted(self.faults.items())]
        others = {kind: n for kind, n in self.found.items() if kind not in LAST_LINE}
        return [*lines, *(f"{kind}: {n}" for kind, n in sorted(others.items()))]

    def last_line(self) -> str:
        counts = " ".join(f"{kind}={self.found[kind]}" for kind in LAST_LINE)
        return f"faults={self.faults.total()} acked={self.acknowledged} {counts}"


LAST_LINE: Final = (checker.LOST, checker.DUPLICATED, checker.REORDERED)


def pauses(events: Sequence[AnyEvent]) -> list[tuple[str, float]]:
    """Of each fault: its kind, and the longest time that a publisher heard no acknowledgement which it fell into."""
    faults: list[tuple[str, float, float]] = []
    running: dict[tuple[str, tuple[str, ...]], float] = {}
    gaps: list[tuple[float, float]] = []
    last: dict[str, float] = {}
    for event in events:
        match event:
            case FaultBegan():
                running[event.kind, event.nodes] = event.at
            case FaultEnded():
                faults.append((event.kind, running.pop((event.kind, event.nodes)), event.at))
            case Acknowledged():
                if event.at - last.get(event.client, event.at) > 0.1:
                    gaps.append((last[event.client], event.at))
                last[event.client] = event.at
            case _:
                pass
    return [
        (kind, max((end - begin for begin, end in gaps if begin <= ended and end >= began), default=0.0))
        for kind, began, ended in faults
    ]


async def campaign(options: argparse.Namespace) -> int:
    say(f"seed {options.seed}: {options.n} faults, sessions {options.sessions}; logs in {options.out}")
    events: list[AnyEvent] = []
    lab = Lab(options.out, options.cores, options.replicants)
    now = asyncio.get_running_loop().time

    def ended(host: Host, code: int, last_words: str) -> None:
        say(f"    {host.name} ended with {code}: {last_words}")
        if code < 0 or (host is not lab.redis and not last_words.startswith("flockmq: error: ")):
            events.append(Unwell(now(), host.name, f"exit code {code}: {last_words}"))

    for host in lab.hosts.values():
        host.on_end = ended
    stage = Stage(events.append, lab.fronts, random.Random(options.seed))
    names = [core.name for core in lab.cores], [replicant.name for replicant in lab.replicants]
    steps = schedule.plan(options.seed, options.n, *names, options.kinds or tuple(schedule.KINDS), options.at_once)
    tally = Tally()
    try:
        await lab.start()
        for number, chapter in enumerate(_chapters(steps), 1):
            events.clear()
            load = Load(stage, number, options.sessions, options.rate, options.churners)
            verdict = await _chapter(lab, load, chapter, events)
            tally.add(events, verdict)
            _tell(options, number, events, verdict)
            if verdict.findings and options.stop_at_first:
                break
    finally:
        await lab.stop()
    say(*tally.table(), tally.last_line())
    return int(tally.found.total() > 0)


def _chapters(steps: Sequence[schedule.Step]) -> list[list[schedule.Step]]:
    chapters: list[list[schedule.Step]] = []
    faults = CHAPTER_FAULTS
    for step in steps:
        if faults >= CHAPTER_FAULTS:
            chapters.append([])
            faults = 0
        chapters[-1].append(step)
        faults += len(step.faults)
    return chapters


async def _chapter(lab: Lab, load: Load, steps: Sequence[schedule.Step], events: list[AnyEvent]) -> Verdict:
    now = asyncio.get_running_loop().time
    try:
        async with asyncio.timeout(START_MAX_S):
            await load.start()
    except TimeoutError:
        events.append(Unwell(now(), "clients", f"weren't all there within {START_MAX_S:.0f} s"))
    started = time.monotonic()
    for step in steps:
        say(f"{time.monotonic() - started:7.1f} s {load.acknowledged:8d} acked  {', '.join(map(str, step.faults))}")
        await run_step(lab, events.append, step)
    try:
        await lab.until_ready()
    except TimeoutError as error:
        events.append(Unwell(now(), "nodes", str(error)))
    await load.settle()
    verdict = judge(events)
    deadline = time.monotonic() + SETTLE_MAX_S
    while verdict.count(checker.LOST) and time.monotonic() < deadline:  # late isn't lost
        await asyncio.sleep(QUIET_S)
        verdict = judge(events)
    events += await _tables_when_alike(lab)
    events += await _alarms_missing(lab, events)
    await load.leave()
    events += await _routes_left(lab)
    return judge(events)


async def _tables_when_alike(lab: Lab) -> list[TablesStood]:
    """What all nodes say, once they say the same, or in the end."""
    deadline = time.monotonic() + SETTLE_MAX_S
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
        await asyncio.sleep(QUIET_S / 4)


async def _alarms_missing(lab: Lab, events: Sequence[AnyEvent]) -> list[AlarmMissing]:
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


async def _routes_left(lab: Lab) -> list[RowsLeft]:
    """Every node's routes, once there are none, or in the end."""
    deadline = time.monotonic() + SETTLE_MAX_S
    while True:
        left: list[RowsLeft] = []
        now = asyncio.get_running_loop().time()
        for broker in lab.brokers:
            with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
                left.append(RowsLeft(now, broker.name, int(await lab.metric(broker, "flockmq_routes"))))
        if time.monotonic() > deadline or not any(rows.routes for rows in left):
            return left
        await asyncio.sleep(QUIET_S / 4)


def _tell(options: argparse.Namespace, number: int, events: Sequence[AnyEvent], verdict: Verdict) -> None:
    say(f"chapter {number}: {verdict.acknowledged} acked, {dict(verdict.by_kind()) or 'nothing found'}")
    if verdict.findings or options.keep:
        history.save(events, options.out / f"chapter-{number}.jsonl")
        (options.out / f"chapter-{number}.findings").write_text("".join(f"{finding}\n" for finding in verdict.findings))
        say(*(f"  {finding}" for finding in _first(verdict.findings)))


def _first(findings: Sequence[Finding]) -> list[Finding]:
    shown: Counter[str] = Counter()
    some = []
    for finding in findings:
        shown[finding.kind] += 1
        if shown[finding.kind] <= FINDINGS_SHOWN:
            some.append(finding)
    return some


async def _until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(POLL_S)


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="faults.campaign", description="A cluster under load and faults.")
    made.add_argument("-n", type=int, default=60, help="how many faults (default: 60)")
    made.add_argument("--seed", type=int, default=1, help="of the schedule (default: 1)")
    made.add_argument("--sessions", choices=("clean", "durable", "both"), default="both")
    made.add_argument("--rate", type=float, default=300.0, help="messages published a second (default: 300)")
    made.add_argument("--churners", type=int, default=2, help="clients that subscribe and unsubscribe (default: 2)")
    made.add_argument(
        "--at-once", type=float, default=schedule.AT_ONCE_SHARE, help="share of steps with several faults"
    )
    made.add_argument("--cores", type=int, default=3)
    made.add_argument("--replicants", type=int, default=3)
    made.add_argument("--kinds", nargs="*", choices=tuple(schedule.KINDS), help="only these faults")
    made.add_argument("--out", type=Path, default=Path("build/faults"), help="for logs and histories")
    made.add_argument("--keep", action="store_true", help="each chapter's history, also where nothing is found")
    made.add_argument("--stop-at-first", action="store_true", help="chapter in which something is found")
    return made


def main() -> int:
    options = parser().parse_args()
    if absent := sandbox.missing():
        print(f"faults: this machine has no {', '.join(absent)}", file=sys.stderr)
        return 2
    if not sandbox.is_inside():
        return sandbox.enter([sys.executable, "-m", "faults.campaign", *sys.argv[1:]])
    sandbox.furnish()
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*"):
        old.unlink()
    return uvloop.run(campaign(options))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
