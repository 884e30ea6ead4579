"""What follows when changes are durable: many barriers with one answer, and what is said only if it is True."""

from __future__ import annotations

from collections.abc import Callable


class All:
    """`done` is called once, when `waits` barriers were answered: True if all of them were."""

    __slots__ = ("_done", "_durable", "_waits")

    def __init__(self, waits: int, done: Callable[[bool], None]) -> None:
        self._waits = waits
        self._done = done
        self._durable = True

    def one(self, durable: bool) -> None:
        self._durable = self._durable and durable
        self._waits -= 1
        if self._waits == 0:
            self._done(self._durable)


def if_durable(then: Callable[[], None], durable: bool) -> None:
    """Who never hears is kicked, or asks the slot's new home."""
    if durable:
        then()
