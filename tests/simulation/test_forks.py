"""Runs as forks: what comes of each, and that none knows of another."""

from __future__ import annotations

import contextlib
import gc
import os
import signal

import pytest

from simulation.forks import Failed, forked

TIMEOUT_S = 60.0
TOO_SHORT_S = 0.05
LARGE_BYTES = 1 << 20


def ended(number: int) -> int:
    os._exit(number)


def killed(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def paused(_: object) -> None:
    signal.pause()


def first_only(number: int) -> int:
    if number:
        signal.pause()
    return number


@pytest.mark.parametrize("jobs", [1, 3])
def test_each_item_has_its_outcome(jobs: int) -> None:
    outcomes = dict(forked(lambda number: number * number, range(7), jobs, TIMEOUT_S))
    assert outcomes == {number: number * number for number in range(7)}


def test_a_run_begins_where_the_others_began() -> None:
    seen: list[int] = []

    def work(number: int) -> tuple[list[int], int]:
        seen.append(number)
        return seen, os.getpid()

    outcomes = dict(forked(work, range(3), 2, TIMEOUT_S))
    assert [outcome[0] for outcome in outcomes.values() if not isinstance(outcome, Failed)] == [[0], [1], [2]]
    assert len({outcome[1] for outcome in outcomes.values()} | {os.getpid()}) == 4
    assert seen == []


def test_no_garbage_is_collected_amid_a_run() -> None:
    assert gc.isenabled()
    assert list(forked(lambda _: gc.isenabled(), [None], 1, TIMEOUT_S)) == [(None, False)]
    assert gc.isenabled()


def test_an_outcome_may_be_larger_than_a_pipe() -> None:
    ((_, outcome),) = forked(lambda _: bytes(LARGE_BYTES), [None], 1, TIMEOUT_S)
    assert outcome == bytes(LARGE_BYTES)


def test_a_run_that_raises_tells_what_and_the_others_go_on() -> None:
    outcomes = dict(forked(lambda number: 1 // number, [1, 0, -1], 2, TIMEOUT_S))
    assert (outcomes[1], outcomes[-1]) == (1, -1)
    failed = outcomes[0]
    assert isinstance(failed, Failed)
    assert failed.kind == "ZeroDivisionError"
    assert "1 // number" in failed.text


def test_a_run_that_ends_without_a_word_is_told() -> None:
    ((_, outcome),) = forked(ended, [7], 1, TIMEOUT_S)
    assert outcome == Failed("ended with 7 and no outcome")
    ((_, crashed),) = forked(killed, [None], 1, TIMEOUT_S)
    assert crashed == Failed(f"ended with {-signal.SIGKILL} and no outcome")


def test_what_cannot_be_told_is_a_failure() -> None:
    ((_, outcome),) = forked(lambda _: lambda: None, [None], 1, TIMEOUT_S)
    assert isinstance(outcome, Failed)


def test_a_run_that_hangs_is_killed() -> None:
    ((_, outcome),) = forked(paused, [None], 1, TOO_SHORT_S)
    assert outcome == Failed(f"ended with {-signal.SIGKILL} and no outcome")


def test_whoever_wants_no_more_outcomes_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = []
    fork = os.fork

    def noted() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(os, "fork", noted)
    with contextlib.closing(forked(first_only, range(3), 3, TIMEOUT_S)) as outcomes:  # type: ignore[type-var]
        assert next(outcomes) == (0, 0)
    assert len(pids) == 3
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
