"""Measures the lag of the event loop, which delays every client and link.

A timer is due every `LOOP_WATCH_INTERVAL_S`; its delay is the time that the loop was busy.

Invariants: `late_s` only grows. `worst_s` is the longest delay of the last one to two windows, so a scrape in every
window misses none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from flockmq.bounds import LOOP_WATCH_INTERVAL_S, LOOP_WATCH_WINDOW_S
from flockmq.telemetry.sample import Sample


class LoopWatch:
    """Measures the event loop on which `run` is called."""

    def __init__(self) -> None:
        self.late_s = 0.0
        self.late_now_s = 0.0
        """Of the last timer."""
        self._worst_s = 0.0
        self._worst_before_s = 0.0
        self._window_ends_s = 0.0

    @property
    def worst_s(self) -> float:
        return max(self._worst_s, self._worst_before_s)

    async def run(self) -> None:
        """Measure until cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due_s = clock() + LOOP_WATCH_INTERVAL_S
            await asyncio.sleep(LOOP_WATCH_INTERVAL_S)
            now_s = clock()
            self.note(now_s - due_s, now_s)

    def note(self, late_s: float, now_s: float) -> None:
        """Record one delay of the timer."""
        if now_s >= self._window_ends_s:
            self._worst_before_s = self._worst_s
            self._worst_s = 0.0
            self._window_ends_s = now_s + LOOP_WATCH_WINDOW_S
        late_s = max(late_s, 0.0)
        self.late_now_s = late_s
        self.late_s += late_s
        self._worst_s = max(self._worst_s, late_s)

    def samples(self) -> Iterator[Sample]:
        yield Sample("flockmq_loop_late_seconds", self.late_s)
        yield Sample("flockmq_loop_late_worst_seconds", self.worst_s)
