"""A short campaign on real processes finds nothing; with a bug put in, one does. Three minutes, and root or namespaces
of one's own. Many seeds, and all seeded bugs, are the simulator's work; here it is shown that real processes, sockets,
disks and servers of Redis are no worse than simulated ones.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from faults import sandbox, schedule
from judges import judge as checker

LAST_LINE = re.compile(r"faults=(\d+) acked=(\d+) lost=(\d+) duplicated=(\d+) reordered=(\d+)")
RATE = ("--rate", "150")


def campaign(out: Path, *arguments: str, bug: str = "") -> tuple[int, list[str]]:
    """Its exit code and its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "faults.campaign", "--out", str(out), *RATE, *arguments],
        env=sandbox.environment() | {"FAULTS_BUG": bug, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout)
    return done.returncode, done.stdout.splitlines()


def finds_nothing(out: Path, script: str, *arguments: str) -> None:
    code, lines = campaign(out, "--script", script, *arguments)
    last = LAST_LINE.fullmatch(lines[-1])
    assert last
    assert int(last[1]) == sum(len(step.faults) for step in schedule.SCRIPTS[script])
    assert int(last[2]) > 0
    assert last.groups()[2:] == ("0", "0", "0")
    assert code == 0


def test_faults_of_many_kinds_lose_double_and_reorder_nothing(tmp_path: Path) -> None:
    finds_nothing(tmp_path, "many-kinds", "--profile", "flow")


def test_a_failover_of_redis_loses_doubles_and_reorders_nothing(tmp_path: Path) -> None:
    finds_nothing(tmp_path, "failover", "--redis", "sentinel", "--profile", "base")


def test_a_bug_is_found(tmp_path: Path) -> None:
    kills = ("--profile", "base", "--sessions", "clean", "-n", "1", "--kinds", "kill core")
    code, lines = campaign(tmp_path, *kills, "--patience", "5", bug="drop")
    assert code == 1
    assert any(re.search(rf"'{checker.LOST}': [1-9]", line) for line in lines)
