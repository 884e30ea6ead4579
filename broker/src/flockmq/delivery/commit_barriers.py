"""What follows when changes are committed: many barriers with one answer, and what is done only if it is True."""

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


class BySlot:
    """One barrier a slot. `done` is called once, when all were answered: True if all of them were. `slots`: those whose
    barrier wasn't answered yet, or never will be by us.
    """

    __slots__ = ("_all", "slots")

    def __init__(self, slots: dict[int, None], done: Callable[[bool], None]) -> None:
        self.slots = slots
        self._all = All(len(slots), done)

    def one(self, slot: int, durable: bool) -> None:
        if durable:
            del self.slots[slot]
        self._all.one(durable)


def if_durable(then: Callable[[], None], durable: bool) -> None:
    """Who never hears is kicked, or asks the slot's new owner."""
    if durable:
        then()
