"""`make simulate SEEDS=1000`: as many runs, each from a seed; what one of them finds can be played again.

    python -m simulation.run --seeds 1000 --first 1           which seeds; --profile NAME: only this load
    python -m simulation.run --seed 17 [--keep 0,2]           one of them, with only these of its faults; its history

Ends with 1 if anything was found. A seed that found something is played with fewer and fewer faults, as long as it
finds the same: what is printed is the shortest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from load import history
from simulation import bugs, case, shrink
from simulation.case import Case, Outcome
from simulation.cluster import Shape, SimulatedCluster
from simulation.forks import Failed, forked
from simulation.loop import SimulatedLoop
from simulation.profiles import PROFILES

HASH_SEED: Final = "0"
"""Of strings, in sets: another one gives other traces."""
TIMEOUT_S: Final = 120.0
"""Real seconds for one run."""
FINDINGS_SHOWN: Final = 5


def started(shape: Shape) -> SimulatedCluster:
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    cluster = SimulatedCluster(loop, 0, shape)
    loop.run(cluster.start(), cluster.clients)
    gc.collect()
    gc.disable()  # a run is over before its garbage matters
    return cluster


def outcomes(cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome | Failed]]:
    """Cases of one shape share a started cluster."""
    by_shape: dict[Shape, list[Case]] = defaultdict(list)
    for each in cases:
        by_shape[each.shape].append(each)
    for shape, of_shape in by_shape.items():
        cluster = started(shape)
        yield from forked(lambda each: played(cluster, each), of_shape, jobs, TIMEOUT_S)  # noqa: B023 - used up here


def played(cluster: SimulatedCluster, each: Case) -> Outcome:
    return cluster.loop.run(case.play(cluster, each), cluster.clients)


def many(options: argparse.Namespace) -> int:
    cases = [case.case_of(seed, options.profile) for seed in range(options.first, options.first + options.seeds)]
    began_s, found, failed = time.monotonic(), Counter[str](), list[Case]()
    runs, acknowledged, faults, simulated_s = Counter[str](), 0, 0, 0.0
    for each, outcome in outcomes(cases, options.jobs):
        runs[each.profile] += 1
        if isinstance(outcome, Failed):
            print(f"seed {each.seed} ({each.profile}): {outcome.text}", flush=True)
            found["failed"] += 1
            failed.append(each)
            continue
        acknowledged += outcome.acknowledged
        faults += outcome.faults
        simulated_s += outcome.simulated_s
        if outcome.findings:
            found.update({finding.kind for finding in outcome.findings})
            failed.append(each)
            tell(each, outcome)
    for each in failed[: options.shrink]:
        print(f"seed {each.seed} ({each.profile}), made smaller:", flush=True)
        small, outcome = shrink.smallest(each, options.jobs)
        tell(small, outcome)
    took_s = time.monotonic() - began_s
    print(f"{', '.join(f'{name} {count}' for name, count in sorted(runs.items()))}; {took_s:.0f} s")
    print(f"seeds={len(cases)} faults={faults} acked={acknowledged} simulated={simulated_s:.0f} s found={dict(found)}")
    return int(bool(found))


def tell(each: Case, outcome: Outcome) -> None:
    print(
        f"seed {each.seed} ({each.profile}): {outcome.acknowledged} acked, trace {outcome.trace}; again: {again(each)}"
    )
    for step in each.steps:
        print(f"    {', '.join(map(str, step.faults))}; then {step.pause_s:.1f} s")
    for finding in outcome.findings[:FINDINGS_SHOWN]:
        print(f"  {finding}", flush=True)


def again(each: Case) -> str:
    whole = case.case_of(each.seed, each.profile)
    kept = ",".join(str(number) for number, step in enumerate(whole.steps) if step in each.steps)
    keep = "" if len(each.steps) == len(whole.steps) else f" --keep {kept or 'none'}"
    return f"python -m simulation.run --seed {each.seed} --profile {each.profile}{keep}"


def one(options: argparse.Namespace) -> int:
    each = case.case_of(options.seed, options.profile)
    if options.keep:
        kept = {int(number) for number in options.keep.split(",") if number != "none"}
        each = Case(each.seed, each.profile, each.shape, tuple(step for n, step in enumerate(each.steps) if n in kept))
    cluster = started(each.shape)
    outcome = played(cluster, each)
    tell(each, outcome)
    if options.out is not None:
        history.save(cluster.events, options.out)
    return int(bool(outcome.findings))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="simulation.run", description="Runs of a simulated cluster.")
    made.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    made.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    made.add_argument("--seed", type=int, help="this one only, and its log")
    made.add_argument("--profile", choices=("", *PROFILES), default="", help="of each (default: what the seed chooses)")
    made.add_argument("--keep", default="", help="which of the seed's faults, by number: 0,2 or none")
    made.add_argument("--bug", choices=("", *bugs.BUGS), default="", help="put into the nodes: it must be found")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    made.add_argument("--shrink", type=int, default=3, help="so many of those that found something (default: 3)")
    made.add_argument("--out", type=Path, help="where the history of the one seed goes")
    made.add_argument("--verbose", action="store_true", help="what nodes log")
    return made


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation.run", *sys.argv[1:]])
    options = parser().parse_args()
    level = logging.INFO if options.verbose else logging.CRITICAL
    shown = logging.StreamHandler()
    shown.setLevel(level)
    logging.basicConfig(level=level, format="%(name)s: %(message)s", handlers=[shown])
    if options.bug:
        bugs.install(options.bug)
    return one(options) if options.seed is not None else many(options)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # what killed processes did isn't to be undone
