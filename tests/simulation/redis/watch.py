"""How processes that watch one another find out who is down: by who didn't answer for too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from simulation.redis.server import Handle, Timers

_Process = TypeVar("_Process")

TICK_S: Final = 0.1
"""How often everybody looks."""


class Watch:
    """What one process knows of others, in ticks."""

    def __init__(self) -> None:
        self._silent_for: dict[object, int] = {}

    def look(self, others: Iterable[_Process], answers: Callable[[_Process], bool]) -> None:
        """Once a tick."""
        for other in others:
            self._silent_for[other] = 0 if answers(other) else self._silent_for.get(other, 0) + 1

    def is_down(self, other: object, after_s: float) -> bool:
        return self._silent_for.get(other, 0) * TICK_S > after_s


class Ticker:
    """Calls `tick` every TICK_S, until it is stopped."""

    def __init__(self, timers: Timers, tick: Callable[[], None]) -> None:
        self._timers = timers
        self._tick = tick
        self._next: Handle | None = None
        self._wait()

    def stop(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _wait(self) -> None:
        self._next = self._timers.call_later(TICK_S, self._run)

    def _run(self) -> None:
        self._wait()
        self._tick()
