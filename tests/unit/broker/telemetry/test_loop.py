"""The event loop's lateness: it adds up, and the worst of it is seen by whoever looks once a window."""

from __future__ import annotations

import asyncio
import time

import pytest

from flockmq.bounds import LOOP_WATCH_INTERVAL_S, LOOP_WATCH_WINDOW_S
from flockmq.telemetry.loop import LoopWatch


def test_the_worst_is_kept_for_a_window_and_forgotten_after_two() -> None:
    watch = LoopWatch()
    watch.note(0.5, 1.0)
    watch.note(0.1, 2.0)
    assert watch.worst_s == 0.5
    watch.note(0.2, 1.0 + LOOP_WATCH_WINDOW_S)
    assert watch.worst_s == 0.5
    watch.note(0.0, 1.0 + 2 * LOOP_WATCH_WINDOW_S)
    assert watch.worst_s == 0.2
    assert watch.late_s == pytest.approx(0.8)


def test_a_timer_that_comes_early_is_not_late() -> None:
    watch = LoopWatch()
    watch.note(-0.001, 1.0)
    assert watch.late_s == 0.0


class Noting(LoopWatch):
    def __init__(self) -> None:
        super().__init__()
        self.noted = asyncio.Event()

    def note(self, late_s: float, now_s: float) -> None:
        super().note(late_s, now_s)
        self.noted.set()


async def test_a_loop_that_is_held_is_late() -> None:
    watch = Noting()
    running = asyncio.ensure_future(watch.run())
    await asyncio.sleep(0)
    time.sleep(LOOP_WATCH_INTERVAL_S * 2)  # noqa: ASYNC251  # which is what holds it
    await watch.noted.wait()
    running.cancel()
    assert watch.worst_s >= LOOP_WATCH_INTERVAL_S / 2
