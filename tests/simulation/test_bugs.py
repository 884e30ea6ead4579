"""Each seeded bug is found, by the judge that is there for it, within so many seeds of its profile."""

from __future__ import annotations

import subprocess
import sys

from judges import judge
from simulation import bugs

SEEDS_MAX = 300


def test_each_bug_is_found() -> None:
    """In a process of its own: a bug stays in the process that it was put into."""
    hunt = [sys.executable, "-m", "simulation.hunt", "--seeds", str(SEEDS_MAX)]
    done = subprocess.run(hunt, env={"PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0


def test_there_is_one_for_each_kind_of_finding_of_the_judges() -> None:
    kinds = {getattr(judge, name) for name in judge.__all__ if name.isupper() and isinstance(getattr(judge, name), str)}
    assert kinds - {bug.finding for bug in bugs.BUGS.values()} == set()
