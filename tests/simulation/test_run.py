"""The command line: what it prints, its exit codes, and that what it prints can be played again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from judges.judge import LOST, Finding
from load import history
from simulation import run
from simulation.bugs import BUGS
from simulation.case import Case, Outcome, case_of
from simulation.forks import Failed
from simulation.shrink import faults_of, keeping

ROOT = Path(__file__).parents[2]
SEED = 1


class Played:
    """In the place of runs: a finding where a case of these seeds has its first fault; others come to nothing."""

    def __init__(self, finds: Sequence[int] = (), fails: Sequence[int] = ()) -> None:
        self.finds = finds
        self.fails = fails
        self.cases: list[Case] = []

    def __call__(self, cases: Sequence[Case], jobs: int) -> Iterator[tuple[Case, Outcome | Failed]]:
        for case in cases:
            self.cases.append(case)
            yield case, Failed("hung") if case.seed in self.fails else self._outcome(case)

    def _outcome(self, case: Case) -> Outcome:
        is_found = case.seed in self.finds and faults_of(case_of(case.seed))[0] in faults_of(case)
        findings = [Finding(LOST, 1001.0, "made up")] if is_found else []
        return Outcome(case.seed, case.profile, len(faults_of(case)), 200, 200, 15.0, 1.0, "0badcafe", findings)


def told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], played: Played, *arguments: str
) -> tuple[int, list[str]]:
    """The exit code, and the lines."""
    monkeypatch.setenv("PYTHONHASHSEED", run.HASH_SEED)
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    monkeypatch.setattr(run, "outcomes", played)
    code = run.main()
    return code, capsys.readouterr().out.splitlines()


def test_runs_that_find_nothing_end_with_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    played = Played()
    code, lines = told(monkeypatch, capsys, played, "--seeds", "5", "--first", "7")
    assert code == 0
    assert [case.seed for case in played.cases] == [7, 8, 9, 10, 11]
    assert lines[-1].startswith("seeds=5 faults=")
    assert "acked=1000 simulated=75 s found={}" in lines[-1]
    assert len(lines) == 2


def test_a_run_that_finds_something_ends_with_1_and_is_made_smaller(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = told(monkeypatch, capsys, Played(finds=[2]), "--seeds", "3")
    assert code == 1
    whole, small = [line for line in lines if line.startswith("  again: ")]
    profile = case_of(2).profile
    assert whole == f"  again: {run.COMMAND} --seed 2 --profile {profile}"
    assert small == f"  again: {run.COMMAND} --seed 2 --profile {profile} --keep 0"
    assert lines.count("  lost at 1001.000: made up") == 2
    assert "found={'lost': 1}" in lines[-1]


def test_only_so_many_are_made_smaller(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines = told(monkeypatch, capsys, Played(finds=[1, 2, 3]), "--seeds", "3", "--shrink", "1")
    assert [line for line in lines if "made smaller" in line] == [f"seed 1 ({case_of(1).profile}), made smaller:"]


def test_a_run_without_an_outcome_ends_with_1_and_can_be_played_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = told(monkeypatch, capsys, Played(fails=[3]), "--seeds", "3", "--profile", "base")
    assert code == 1
    assert lines[0] == f"seed 3 (base): hung; again: {run.COMMAND} --seed 3 --profile base"
    assert "found={'failed': 1}" in lines[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--keep", "first"),
        ("--profile", "none"),
        ("--bug", "none"),
        ("--seeds", "many"),
        ("--kinds", "kill"),
        ("--unknown",),
    ],
)
def test_what_it_cannot_understand_ends_it_with_2(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", run.HASH_SEED)
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert ended.value.code == 2


@pytest.mark.parametrize(("kept", "printed"), [({0}, " --keep 0"), (set(), " --keep none"), (None, "")])
def test_the_line_that_plays_a_case_again_names_its_faults_and_its_bug(kept: set[int] | None, printed: str) -> None:
    whole, bug = case_of(SEED, "base"), next(iter(BUGS))
    case = whole if kept is None else keeping(whole, kept)
    line = f"{run.COMMAND} --seed {SEED} --profile base{printed}"
    assert run.again(case, run.parser().parse_args([])) == line
    assert run.again(case, run.parser().parse_args(["--bug", bug])) == f"{line} --bug {bug}"


def test_the_line_that_plays_a_case_again_names_the_kinds_that_its_faults_were_chosen_from() -> None:
    options = run.parser().parse_args(["--kinds", "slow redis", "kill core"])
    line = run.again(case_of(SEED, "base", options.kinds), options)
    assert line == f"{run.COMMAND} --seed {SEED} --profile base --kinds 'slow redis' 'kill core'"


# --- real ones --------------------------------------------------------------------------------------------------------


def command(line: str) -> tuple[int, list[str]]:
    """A line that was printed, as a user enters it in the folder of the repository."""
    environment, python, *arguments = line.split()
    name, _, value = environment.partition("=")
    assert python == "python"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.splitlines()


def test_one_run_prints_the_line_by_which_it_is_played_again_and_keeps_its_history(tmp_path: Path) -> None:
    out = tmp_path / "history"
    code, lines = command(f"{run.COMMAND} --seed {SEED} --profile base --keep 0 --out {out}")
    assert code == 0
    assert list(history.load(out))
    (line,) = [line.removeprefix("  again: ") for line in lines if line.startswith("  again: ")]
    assert line == f"{run.COMMAND} --seed {SEED} --profile base --keep 0"
    assert command(line) == (0, lines)
