"""Barriers: callbacks that wait until Redis has committed a change."""

from __future__ import annotations

from collections.abc import Callable


class SlotBarriers:
    """One barrier per slot. `done` is called once, when all were answered: with True if all are durable. `slots`: those
    that aren't durable, at least not yet."""

    __slots__ = ("_done", "_durable", "_waits", "slots")

    def __init__(self, slots: dict[int, None], done: Callable[[bool], None]) -> None:
        self.slots = slots
        self._waits = len(slots)
        self._done = done
        self._durable = True

    def one(self, slot: int, durable: bool) -> None:
        if durable:
            del self.slots[slot]
        else:
            self._durable = False
        self._waits -= 1
        if self._waits == 0:
            self._done(self._durable)


def if_durable(then: Callable[[], None], durable: bool) -> None:
    """Call `then` only if the change is durable. If it isn't, nobody answers: the client is disconnected, or asks the
    slot's new owner."""
    if durable:
        then()
