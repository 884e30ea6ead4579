"""`make simulate SEEDS=1000`: as many runs, each from a seed; what one of them finds can be played again.

    python -m simulation.run --seeds 1000 --first 1           which seeds; --profile NAME: only this load; --kinds: of
                                                              faults, only these; --few-kinds 2: of each seed, only two
    python -m simulation.run --seed 17 [--keep 0,2]           one of them, with only these of its faults; --out FILE:
                                                              where its history goes

Ends with 1 if anything was found. A seed that found something is played with fewer and fewer
faults, as long as it finds the same: what is printed is the shortest.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import shlex
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from faults import schedule
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
COMMAND: Final = "PYTHONPATH=broker/src:tests python -m simulation.run"
NONE: Final = "none"


def started(shape: Shape) -> SimulatedCluster:
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    cluster = SimulatedCluster(loop, 0, shape)
    loop.run(cluster.start(), cluster.clients)
    gc.collect()
    return cluster


def outcomes(cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome | Failed]]:
    """As they come. Cases of one shape share a started cluster."""
    for (_, each), outcome in forked(lambda given: played(*given), _on_clusters(cases), jobs, TIMEOUT_S):
        yield each, outcome


def _on_clusters(cases: Sequence[Case]) -> Iterator[tuple[SimulatedCluster, Case]]:
    """Each cluster is started when its first case is due, and never ended: its `finally`s would run."""
    by_shape: dict[Shape, list[Case]] = defaultdict(list)
    for each in cases:
        by_shape[each.shape].append(each)
    clusters: list[SimulatedCluster] = []
    for shape, of_shape in by_shape.items():
        clusters.append(started(shape))
        yield from ((clusters[-1], each) for each in of_shape)


def played(cluster: SimulatedCluster, each: Case) -> Outcome:
    return cluster.loop.run(case.play(cluster, each), cluster.clients)


def many(options: argparse.Namespace) -> int:
    cases = [
        case.case_of(seed, options.profile, options.kinds, options.few_kinds)
        for seed in range(options.first, options.first + options.seeds)
    ]
    began_s, found, finds = time.monotonic(), Counter[str](), list[tuple[Case, Outcome]]()
    runs, acknowledged, faults, simulated_s = Counter[str](), 0, 0, 0.0
    for each, outcome in outcomes(cases, options.jobs):
        runs[each.profile] += 1
        if isinstance(outcome, Failed):
            print(f"seed {each.seed} ({each.profile}): {outcome.text}; again: {again(each, options)}", flush=True)
            found["failed"] += 1
            continue
        acknowledged += outcome.acknowledged
        faults += outcome.faults
        simulated_s += outcome.simulated_s
        if outcome.findings:
            found.update({finding.kind for finding in outcome.findings})
            finds.append((each, outcome))
            tell(each, outcome, options)
    for each, outcome in finds[: options.shrink]:
        print(f"seed {each.seed} ({each.profile}), made smaller:", flush=True)
        tell(*shrink.smallest(each, outcome, partial(outcomes, jobs=options.jobs)), options)
    took_s = time.monotonic() - began_s
    print(f"{', '.join(f'{name} {count}' for name, count in sorted(runs.items()))}; {took_s:.0f} s")
    told = f"seeds={len(cases)} faults={faults} acked={acknowledged} simulated={simulated_s:.0f} s"
    print(f"{told} found={dict(found)}")
    return int(bool(found))


def tell(each: Case, outcome: Outcome, options: argparse.Namespace) -> None:
    print(f"seed {each.seed} ({each.profile}): {outcome.acknowledged} acked, trace {outcome.trace}")
    print(f"  again: {again(each, options)}")
    for step in each.steps:
        print(f"    {', '.join(map(str, step.faults))}; then {step.pause_s:.1f} s")
    for finding in outcome.findings[:FINDINGS_SHOWN]:
        print(f"  {finding}", flush=True)


def again(each: Case, options: argparse.Namespace) -> str:
    """The command that plays it, in the folder of the repository."""
    whole = shrink.faults_of(case.case_of(each.seed, each.profile, each.kinds))
    faults = shrink.faults_of(each)
    kept = ",".join(str(number) for number, fault in enumerate(whole) if fault in faults)
    keep = f" --keep {kept or NONE}" if len(faults) < len(whole) else ""
    kinds = f" --kinds {shlex.join(each.kinds)}" if each.kinds else ""
    bug = f" --bug {options.bug}" if options.bug else ""
    return f"{COMMAND} --seed {each.seed} --profile {each.profile}{kinds}{keep}{bug}"


def one(options: argparse.Namespace) -> int:
    each = case.case_of(options.seed, options.profile, options.kinds, options.few_kinds)
    if options.keep is not None:
        each = shrink.keeping(each, options.keep)
    cluster = started(each.shape)
    gc.disable()  # as in a fork
    outcome = played(cluster, each)
    tell(each, outcome, options)
    if options.out is not None:
        history.save(cluster.events, options.out)
    return int(bool(outcome.findings))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="simulation.run", description="Runs of a simulated cluster.")
    made.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    made.add_argument("--first", type=int, default=1, help="the first of them (default: 1)")
    made.add_argument("--seed", type=int, help="this one only, and its log")
    made.add_argument("--profile", choices=("", *PROFILES), default="", help="of each (default: what the seed chooses)")
    made.add_argument("--kinds", nargs="+", type=kind_of_fault, default=(), help="of faults, instead of the profile's")
    made.add_argument("--few-kinds", type=int, default=0, help="only so many of these, that each seed chooses")
    made.add_argument("--keep", type=fault_numbers, help=f"which of the seed's faults, by number: 0,2 or {NONE}")
    made.add_argument("--bug", choices=("", *bugs.BUGS), default="", help="put into the nodes: it must be found")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once")
    made.add_argument("--shrink", type=int, default=3, help="so many of those that found something (default: 3)")
    made.add_argument("--out", type=Path, help="where the history of the one seed goes")
    made.add_argument("--verbose", action="store_true", help="what nodes log")
    return made


def kind_of_fault(text: str) -> str:
    if text not in schedule.ALL_KINDS.keys() - schedule.REAL_KINDS.keys():
        raise argparse.ArgumentTypeError(f"no kind of fault is called {text!r}; faults/schedule.py has them")
    return text


def fault_numbers(text: str) -> set[int]:
    return set() if text == NONE else {int(number) for number in text.split(",")}


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
