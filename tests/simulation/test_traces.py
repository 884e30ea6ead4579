"""The same seed gives the same run: in another process, after other allocations, among others, and compiled.

Compared is all that clients saw, and when, beside the trace. In the compiled leg of `make test` this process' own
broker is the compiled one, and is held against the sources.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from flockmq import compiled_modules

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = str(ROOT / "broker" / "src")
OWN: Final = str(compiled_modules.PACKAGE.parent)
TESTS: Final = str(ROOT / "tests")
CASES: Final = ((7, "takeover"), (12, "shared"))
NOTHING_FOUND, SOMETHING_FOUND = 0, 1
SIMULATION: Final = ("-m", "simulation.run")
JUNK_AND_RUN: Final = """
import random, sys
junk = [bytearray(random.Random(number).randrange(3000)) for number in range(20_000)]
del junk[::3]
from simulation import run
sys.argv[0] = "run"
run.main()
"""
AMONG_OTHERS: Final = """
from simulation.case import case_of
from simulation.run import outcomes
cases = [case_of(2, "base"), *(case_of(seed, profile) for seed, profile in {cases})]
for case, outcome in outcomes(cases, 2):
    print(case.seed, outcome.trace)
"""


def python(*arguments: str, broker: str, hash_seed: str = "0") -> str:
    """What it prints. `broker`: where it is imported from."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((broker, TESTS)), "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (NOTHING_FOUND, SOMETHING_FOUND), done.stderr
    return done.stdout


def played(program: Sequence[str], seed: int, profile: str, broker: str, hash_seed: str = "0") -> tuple[str, bytes]:
    """What it prints, and the history."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "history"
        arguments = (*program, "--seed", str(seed), "--profile", profile, "--out", str(out))
        return python(*arguments, broker=broker, hash_seed=hash_seed), out.read_bytes()


@functools.cache
def alone(seed: int, profile: str, broker: str = OWN) -> tuple[str, bytes]:
    return played(SIMULATION, seed, profile, broker)


def test_a_run_is_the_same_whatever_hashes_its_caller_has() -> None:
    assert played(SIMULATION, *CASES[0], OWN, hash_seed="1") == alone(*CASES[0])


def test_a_run_is_the_same_after_other_allocations() -> None:
    assert played(("-c", JUNK_AND_RUN), *CASES[1], OWN) == alone(*CASES[1])


def test_a_run_is_the_same_alone_and_among_others() -> None:
    among = python("-c", AMONG_OTHERS.format(cases=CASES), broker=OWN)
    traces = dict(line.split() for line in among.splitlines())
    for seed, profile in CASES:
        printed, _ = alone(seed, profile)
        assert f"trace {traces[str(seed)]}" in printed
    assert len(set(traces.values())) == len(CASES) + 1


@pytest.mark.parametrize(("seed", "profile"), CASES)
def test_a_run_is_that_of_the_sources(seed: int, profile: str) -> None:
    """Where this process' broker is compiled; else the sources are what it runs."""
    assert alone(seed, profile) == alone(seed, profile, SOURCES)
