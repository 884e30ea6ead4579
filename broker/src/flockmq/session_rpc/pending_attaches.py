"""Attaches that wait at their owner until the sessions of their slots are loaded. No I/O.

`server` also uses `PendingAttach` for attaches that wait for the end of an older connection. An attach that then waits
for a report or a quota is in `durable.waiting_attaches`.

Invariant: at most ATTACHES_MAX wait for loading, with at most ATTACHES_MAX_BYTES; only the last one may exceed that.
"""

from __future__ import annotations

from typing import Final

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.client_registry import Kick


class PendingAttach:
    """An attach that waits for the end of an older connection, or until its slot's sessions are loaded."""

    __slots__ = ("client_id", "deadline", "incarnation", "kick", "number", "request", "slot", "token")

    def __init__(
        self, client_id: bytes, incarnation: str, number: int, request: messages.SessionRequest | None, token: int
    ) -> None:
        self.client_id = client_id
        self.incarnation = incarnation
        self.number = number
        self.request = request
        self.token = token
        self.slot: Final = slot_of(client_id)
        self.kick: Kick | None = None
        self.deadline = 0.0

    def size(self) -> int:
        """Size in bytes, for limits."""
        return messages.size_of(self.client_id, self.request)


class PendingAttaches:
    """Attaches whose slots aren't loaded."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._count = 0
        self._slots: dict[int, dict[int, PendingAttach]] = {}
        """Slot → token → attach."""

    def __len__(self) -> int:
        return self._count

    def put(self, waiting: PendingAttach) -> bool:
        """Returns False if there is no room."""
        if self._count >= bounds.ATTACHES_MAX or self.waiting_bytes >= bounds.ATTACHES_MAX_BYTES:
            return False
        self._slots.setdefault(waiting.slot, {})[waiting.token] = waiting
        self._count += 1
        self.waiting_bytes += waiting.size()
        return True

    def take(self, slot: int) -> list[PendingAttach]:
        """Remove and return the attaches that wait for the slot."""
        taken = list(self._slots.pop(slot, {}).values())
        self._count -= len(taken)
        self.waiting_bytes -= sum(waiting.size() for waiting in taken)
        return taken

    def end(self, slot: int, token: int) -> PendingAttach | None:
        """The connection ended: remove and return its attach, if it waits."""
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
