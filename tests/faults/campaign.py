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
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop

from faults import admin, sandbox, schedule
from faults.admin import HttpAdmin
from faults.chapter import play
from faults.lab import MANAGEMENT, Host, Lab
from faults.tally import Tally
from judges.judge import Finding, Verdict
from load import history
from load.clients import SESSIONS, Load
from load.history import AnyEvent, Unwell
from load.profiles import PROFILES
from load.stage import Stage

CHAPTER_FAULTS: Final = 20
PLAYABLE: Final = tuple(name for name, features in PROFILES.items() if "overflow" not in features)
"""Here no bound is reached, for what a bound drops isn't lost."""
FINDINGS_SHOWN: Final = 10
"""Of a kind and chapter; the rest is in the file."""


async def campaign(options: argparse.Namespace) -> int:
    what = options.script or f"{options.n} faults"
    say(f"seed {options.seed}: {what}, sessions {options.sessions}; logs in {options.out}")
    events: list[AnyEvent] = []
    extra = admin.settings(sandbox.FOLDER / "api-key") if "rules" in PROFILES[options.profile] else None
    lab = Lab(options.out, options.cores, options.replicants, extra)
    now = asyncio.get_running_loop().time

    def ended(host: Host, code: int, last_words: str) -> None:
        say(f"    {host.name} ended with {code}: {last_words}")
        if code < 0 or (host is not lab.redis and not last_words.startswith("flockmq: error: ")):
            events.append(Unwell(now(), host.name, f"exit code {code}: {last_words}"))

    for host in lab.hosts.values():
        host.on_end = ended
    operator = HttpAdmin(lambda node: f"http://{lab.hosts[node].address}:{MANAGEMENT}")
    stage = Stage(events.append, lab.fronts, random.Random(options.seed), operator)
    names = [core.name for core in lab.cores], [replicant.name for replicant in lab.replicants]
    kinds = options.kinds or tuple(schedule.KINDS)
    steps = schedule.SCRIPTS.get(options.script) or schedule.plan(
        options.seed, options.n, *names, kinds, options.at_once
    )
    sessions = SESSIONS if options.sessions == "both" else (options.sessions,)
    tally = Tally()
    try:
        with tally.timed("lab"):
            await lab.start()
        for number, chapter in enumerate(_chapters(steps), 1):
            events.clear()
            load = Load(stage, number, options.profile, options.rate, sessions=sessions, churners=options.churners)
            verdict = await play(lab, load, chapter, events, options.patience, say, tally.timed)
            tally.add(events, verdict)
            _tell(options, number, events, verdict)
            if verdict.findings and options.stop_at_first:
                break
    finally:
        await operator.aclose()
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


def say(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="faults.campaign", description="A cluster under load and faults.")
    made.add_argument("-n", type=int, default=60, help="how many faults (default: 60)")
    made.add_argument("--seed", type=int, default=1, help="of the schedule (default: 1)")
    made.add_argument("--sessions", choices=(*SESSIONS, "both"), default="both", help="of the base")
    made.add_argument("--profile", choices=PLAYABLE, default="real", help="features of the load (default: real)")
    made.add_argument(
        "--rate",
        type=float,
        default=200.0,
        help="messages a second of the base; features have a share more (default: 200)",
    )
    made.add_argument("--churners", type=int, default=2, help="clients that subscribe and unsubscribe (default: 2)")
    made.add_argument(
        "--at-once", type=float, default=schedule.AT_ONCE_SHARE, help="share of steps with several faults"
    )
    made.add_argument("--script", choices=tuple(schedule.SCRIPTS), default="", help="instead of a schedule of the seed")
    made.add_argument(
        "--patience", type=float, default=30.0, help="seconds for all to be quiet after the last fault (default: 30)"
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
