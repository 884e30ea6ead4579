"""A short campaign finds nothing; with a bug put in, it does. Minutes, and root or namespaces of one's own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from faults import bugs, sandbox, schedule
from judges import judge as checker

LAST_LINE = re.compile(r"faults=(\d+) acked=(\d+) lost=(\d+) duplicated=(\d+) reordered=(\d+)")


def campaign(out: Path, *arguments: str, bug: str = "") -> tuple[int, list[str]]:
    """Its exit code and its lines."""
    done = subprocess.run(
        [sys.executable, "-m", "faults.campaign", "--out", str(out), *arguments],
        env=sandbox.environment() | {"FAULTS_BUG": bug, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(done.stdout)
    return done.returncode, done.stdout.splitlines()


def test_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    code, lines = campaign(tmp_path, "-n", "60", "--seed", "1")
    last = LAST_LINE.fullmatch(lines[-1])
    assert last
    assert int(last[1]) == 60
    assert int(last[2]) > 0
    assert last.groups()[2:] == ("0", "0", "0")
    assert code == 0


BASE = ("--profile", "base", "--rate", "350")
SCRIPTS = {
    "deposed-home": (*BASE, "--script", "deposed-home", "--sessions", "durable", "--churners", "8"),
    "late-write": (*BASE, "--script", "late-write", "--sessions", "clean", "--churners", "8", "--rate", "60"),
    "unanswered": (*BASE, "--script", "unanswered", "--sessions", "durable"),
}


@pytest.mark.parametrize("script", schedule.SCRIPTS)
def test_a_script_finds_nothing_where_no_bug_is(tmp_path: Path, script: str) -> None:
    code, lines = campaign(tmp_path, *SCRIPTS[script])
    assert LAST_LINE.fullmatch(lines[-1])
    assert code == 0


def kills(role: str, sessions: str) -> tuple[str, ...]:
    return *BASE, "-n", "2", "--seed", "3", "--kinds", f"kill {role}", "--sessions", sessions


TWICE = f"{checker.DUPLICATED}|{checker.REPEATED}"
FOUND = {
    "drop": (checker.LOST, kills("core", "clean")),
    "duplicate": (checker.DUPLICATED, kills("core", "clean")),
    "reorder": (checker.REORDERED, kills("core", "clean")),
    "settle": (checker.LOST, kills("replicant", "durable")),
    "forget": (checker.UNWELL, kills("core", "durable")),
    "repeat": (TWICE, SCRIPTS["unanswered"]),
    "stale-fence": (TWICE, SCRIPTS["deposed-home"]),
    "late-write": (checker.ROUTES_LEFT, SCRIPTS["late-write"]),
}


@pytest.mark.parametrize("bug", bugs.BUGS)
def test_a_bug_is_found(tmp_path: Path, bug: str) -> None:
    finding, arguments = FOUND[bug]
    code, lines = campaign(tmp_path, "--patience", "5", *arguments, bug=bug)
    assert code == 1
    assert any(re.search(rf"'({finding})': [1-9]", line) for line in lines)
