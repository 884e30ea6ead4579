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

from faults import abilities, admin, sandbox, schedule
from faults.admin import HttpAdmin
from faults.chapter import play
from faults.host import Host
from faults.lab import Lab
from faults.redis_hosts import SHAPES
from faults.tally import Tally
from judges.judge import Finding, Rules, Verdict
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
    extra = {"MQTT__CLIENT_ID_BINDING": "user"}
    if "rules" in PROFILES[options.profile]:
        extra |= admin.settings(sandbox.FOLDER / "api-key")
    now = asyncio.get_running_loop().time

    def ended(host: Host, code: int, last_words: str) -> None:
        say(f"    {host.name} ended with {code}: {last_words}")
        if not host.gave_reason(code, last_words):
            events.append(Unwell(now(), host.name, f"exit code {code}: {last_words}"))

    lab = Lab(options.out, options.cores, options.replicants, redis=options.redis, extra=extra, on_end=ended)
    operator = HttpAdmin(lambda node: lab.nodes[node].url)
    stage = Stage(events.append, lab.fronts, random.Random(options.seed), operator)
    steps = schedule.only(options.kinds, schedule.SCRIPTS.get(options.script) or _plan(options, lab))
    sessions = SESSIONS if options.sessions == "both" else (options.sessions,)
    tally = Tally()
    try:
        with tally.timed("lab"):
            await lab.start()
        for number, chapter in enumerate(_chapters(steps), 1):
            events.clear()
            load = Load(stage, number, options.profile, options.rate, sessions=sessions, churners=options.churners)
            verdict = await play(lab, load, chapter, events, options.patience, say, tally.timed, Rules(options.cores))
            tally.add(events, verdict)
            tell(options, number, events, verdict)
            if verdict.findings and options.stop_at_first:
                break
    finally:
        await operator.aclose()
        await lab.stop()
    say(*tally.table(), tally.last_line())
    return int(tally.found.total() > 0)


def _plan(options: argparse.Namespace, lab: Lab) -> list[schedule.Step]:
    cores, replicants, redis = ([host.name for host in hosts] for hosts in (lab.cores, lab.replicants, lab.redis))
    return schedule.plan(options.seed, options.n, cores, replicants, options.kinds, options.at_once, redis)


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


def _possible(kinds: Sequence[str]) -> list[str]:
    """Those that this machine can do to hosts; which ones it can't is said. Raises SystemExit if none is left."""
    missing = abilities.missing()
    for kind in kinds:
        if reason := missing.get(kind.split()[0]):
            say(f"left out: {kind}: {reason}")
    return [kind for kind in kinds if kind.split()[0] not in missing] or sys.exit("faults: no kind of fault is left")


def tell(options: argparse.Namespace, number: int, events: Sequence[AnyEvent], verdict: Verdict) -> None:
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
    made.add_argument("--redis", choices=tuple(SHAPES), default="server", help="its shape (default: one server)")
    made.add_argument("--kinds", nargs="*", help="only these faults; what there is: --list-kinds")
    made.add_argument("--list-kinds", action="store_true", help="that this --redis can have")
    made.add_argument("--out", type=Path, default=Path("build/faults"), help="for logs and histories")
    made.add_argument("--keep", action="store_true", help="each chapter's history, also where nothing is found")
    made.add_argument("--stop-at-first", action="store_true", help="chapter in which something is found")
    return made


def main() -> int:
    options = parser().parse_args()
    if absent := sandbox.missing():
        print(f"faults: this machine has no {', '.join(absent)}", file=sys.stderr)
        return 2
    kinds = schedule.kinds_for(options.redis)
    if options.list_kinds:
        say(*(f"{kind}{'' if kind in schedule.mix_for(options.redis) else ' (if asked for)'}" for kind in kinds))
        return 0
    wanted = schedule.kinds_of(schedule.SCRIPTS.get(options.script, ())) or options.kinds
    if unknown := set(wanted or ()) - kinds.keys():
        print(f"faults: --redis {options.redis} has no {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    if not sandbox.is_inside():
        return sandbox.enter([sys.executable, "-m", "faults.campaign", *sys.argv[1:]])
    sandbox.furnish()
    options.kinds = _possible(wanted or schedule.mix_for(options.redis))
    options.out = options.out.absolute()
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*"):
        old.unlink()
    return uvloop.run(campaign(options))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
