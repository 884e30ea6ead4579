"""Simulated time and clients, for tests of the simulated Redis alone."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, Final

from flockmq.redis.connection import Argument
from simulation.redis.sentinel import SentinelSession
from simulation.redis.server import Server
from simulation.redis.session import Answers, Session

NOW_S: Final = 0.001


class Handle:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeTimers:
    """What is due at the same time runs in the order in which it was asked for."""

    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0
        self._order = count()
        self._due: list[tuple[float, int, Handle, Callable[..., object], tuple[object, ...]]] = []

    def wall_clock(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *args: object) -> Handle:
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Handle:
        handle = Handle()
        heapq.heappush(self._due, (self.now_s + delay_s, next(self._order), handle, callback, args))
        return handle

    def run(self, for_s: float = 0.0) -> None:
        """All that is due within that time."""
        end_s = self.now_s + for_s
        while self._due and self._due[0][0] <= end_s:
            self.now_s, _, handle, callback, args = heapq.heappop(self._due)
            if not handle.is_cancelled:
                callback(*args)
        self.now_s = end_s


def new_server(timers: FakeTimers, number: int = 0, seed: int = 0) -> Server:
    return Server(f"server-{number}", (f"10.0.0.{number}", 6379), timers, Random(seed), timers.wall_clock)


class Asked:
    """One pipeline on its way; `replies` are None until it is answered."""

    def __init__(self, session: Session | SentinelSession, *commands: Sequence[Argument]) -> None:
        self.replies: Answers | None = None
        session.execute(commands, self._answered)

    def _answered(self, replies: Answers) -> None:
        assert self.replies is None
        self.replies = replies


def ask(timers: FakeTimers, session: Session | SentinelSession, *commands: Sequence[Argument]) -> list[Any]:
    """What is answered without waiting for anything but the disk."""
    asked = Asked(session, *commands)
    timers.run(NOW_S)
    assert asked.replies is not None
    return asked.replies
