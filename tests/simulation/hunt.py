"""`python -m simulation.hunt [NAME …]`: which seed finds each seeded bug, and how.

For each bug seeds are played, in a process that has it, until a judge gives the kind of finding that the bug must give:
the one that found it last, and if it doesn't any more, all from 1 on. What comes of it is a table, for docs/faults.md.
Ends with 1 if a bug wasn't found.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Final

import msgspec

from simulation import bugs, case
from simulation.forks import Failed, forked
from simulation.run import HASH_SEED, TIMEOUT_S, played, started

SEEDS_MAX: Final = 300


class Hunted(msgspec.Struct, frozen=True):
    """`seed` 0: no seed found it. `text`: of the finding, or what the last run came to."""

    bug: str
    seed: int
    text: str
    took_s: float


def hunted(names: Iterable[str], jobs: int, seeds: int = SEEDS_MAX) -> Iterator[Hunted]:
    """As they come."""
    for name, outcome in forked(partial(_hunt, seeds), names, jobs, seeds * TIMEOUT_S):
        yield Hunted(name, 0, outcome.text, 0.0) if isinstance(outcome, Failed) else outcome


def _hunt(seeds: int, name: str) -> Hunted:
    began_s, bug, last = time.monotonic(), bugs.BUGS[name], "nothing was found"
    bugs.install(name)
    cluster_of = cache(started)
    for seed in dict.fromkeys((bug.seed, *range(1, seeds + 1))):
        each = case.case_of(seed, bug.profile, bug.kinds)
        cluster = cluster_of(each.shape)
        ((_, outcome),) = forked(partial(played, cluster), [each], 1, TIMEOUT_S)
        if isinstance(outcome, Failed):
            last = outcome.text
            continue
        for finding in outcome.findings:
            if finding.kind == bug.finding:
                return Hunted(name, seed, str(finding), time.monotonic() - began_s)
        if outcome.findings:
            last = str(outcome.findings[0])
    return Hunted(name, 0, last, time.monotonic() - began_s)


def table(all_hunted: Iterable[Hunted]) -> Iterator[str]:
    yield "| bug | what it does | profile | found as | by seed |"
    yield "| --- | --- | --- | --- | ---: |"
    for one in sorted(all_hunted, key=lambda one: list(bugs.BUGS).index(one.bug)):
        bug = bugs.BUGS[one.bug]
        profile = f"{bug.profile}: {', '.join(bug.kinds)}" if bug.kinds else bug.profile
        yield f"| {one.bug} | {bug.what} | {profile} | {bug.finding} | {one.seed or 'none'} |"


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation.hunt", *sys.argv[1:]])
    parser = argparse.ArgumentParser(prog="simulation.hunt", description="Seeds that find each seeded bug.")
    parser.add_argument("names", nargs="*", help="of bugs (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help=f"at most, for each (default: {SEEDS_MAX})")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="bugs at once")
    options = parser.parse_args()
    logging.basicConfig(handlers=[logging.NullHandler()])
    found: list[Hunted] = []
    for one in hunted(options.names or bugs.BUGS, options.jobs, options.seeds):
        found.append(one)
        print(f"{one.bug}: seed {one.seed}, {one.took_s:.1f} s: {one.text}", file=sys.stderr, flush=True)
    print("\n".join(table(found)))
    return int(not all(one.seed for one in found))


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
