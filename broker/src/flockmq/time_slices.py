"""Work on many sessions, or on one with many filters, in time slices: one in each event-loop iteration, in the order in
which it was added.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from flockmq import bounds
from flockmq.clock import Clock

log: Final = logging.getLogger(__name__)


class TimeSlices:
    """`soon` runs a call in the next iteration."""

    def __init__(self, soon: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self._soon = soon
        self._clock = clock
        self._work: deque[Iterator[Callable[[], None]]] = deque()

    def add(self, steps: Iterator[Callable[[], None]]) -> None:
        """Add work that begins in the next iteration. Each step is for one session, or some of its
        filters; if it raises, the others still run.
        """
        if not self._work:
            self._soon(self._go_on)
        self._work.append(steps)

    def stop(self) -> None:
        self._work.clear()

    def _go_on(self) -> None:
        ends_s = self._clock.monotonic() + bounds.SLOT_WORK_MAX_S
        while self._work:
            step = next(self._work[0], None)
            if step is None:
                self._work.popleft()
                continue
            try:
                step()
            except Exception:  # One bad session must not stop the others.
                log.exception("work on a session failed")
            if self._clock.monotonic() >= ends_s:
                break
        if self._work:
            self._soon(self._go_on)
