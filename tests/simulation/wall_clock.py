"""A host's wall clock, which may be wrong: it jumps, and drifts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

EPOCH_S: Final = 1_700_000_000.0
"""What a right one says at simulated time 0."""


class WallClock:
    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._off_s = 0.0
        self._drift = 0.0
        self._since_s = 0.0

    def shift(self, seconds: float, drift: float = 0.0) -> None:
        """It is that much off from now on, and gains so much each second."""
        self._off_s, self._drift, self._since_s = seconds, drift, self._time_s()

    def now_s(self) -> float:
        time_s = self._time_s()
        return EPOCH_S + time_s + self._off_s + self._drift * (time_s - self._since_s)
