"""Attaches at their owner that aren't admitted yet, and those of them that wait for the sessions of their slots. Pure.

What always holds: no more wait for sessions than ATTACHES_MAX, nor, but for the last one, with more than
ATTACHES_MAX_BYTES.
"""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.client_registry import Kick


class Waiting:
    """An attach at this core, until the connection it waits for is gone, or the slot's sessions are there."""

    __slots__ = ("client_id", "deadline", "incarnation", "kick", "number", "opening", "token")

    def __init__(
        self, client_id: bytes, incarnation: str, number: int, opening: messages.Opening | None, token: int
    ) -> None:
        self.client_id = client_id
        self.incarnation = incarnation
        self.number = number
        self.opening = opening
        self.token = token
        self.kick: Kick | None = None
        self.deadline = 0.0

    def size(self) -> int:
        """What it counts for, in bytes."""
        return messages.size_of(self.client_id, self.opening)

    def slot(self) -> int:
        return slot_of(self.client_id)


class Unloaded:
    """Those whose slots' sessions aren't here."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._count = 0
        self._slots: dict[int, dict[int, Waiting]] = {}
        """Slot -> token -> who waits."""

    def __len__(self) -> int:
        return self._count

    def put(self, waiting: Waiting) -> bool:
        """False: there is no room for it."""
        if self._count >= bounds.ATTACHES_MAX or self.waiting_bytes >= bounds.ATTACHES_MAX_BYTES:
            return False
        self._slots.setdefault(waiting.slot(), {})[waiting.token] = waiting
        self._count += 1
        self.waiting_bytes += waiting.size()
        return True

    def take(self, slot: int) -> list[Waiting]:
        """Who waited for the slot, and doesn't any more."""
        taken = list(self._slots.pop(slot, {}).values())
        self._count -= len(taken)
        self.waiting_bytes -= sum(waiting.size() for waiting in taken)
        return taken

    def end(self, slot: int, token: int) -> Waiting | None:
        """This connection is gone; who that was, if it waited."""
        of_slot = self._slots.get(slot, {})
        waiting = of_slot.pop(token, None)
        if waiting is not None:
            self._count -= 1
            self.waiting_bytes -= waiting.size()
            if not of_slot:
                del self._slots[slot]
        return waiting

    def node_gone(self, incarnation: str) -> None:
        for slot, of_slot in list(self._slots.items()):
            for token in [token for token, waiting in of_slot.items() if waiting.incarnation == incarnation]:
                self.end(slot, token)
