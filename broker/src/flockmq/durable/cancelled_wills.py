"""The wills that CONNECTs cancelled, until it is known that their clients are back: a CONNECT may still be refused.

Invariants: of a client at most one is kept, for its latest CONNECT. If an earlier one was never let in, the next one
takes over what it cancelled: a client whose CONNECT isn't answered tries again, and a node that lost its link repeats
it. A node that gave a CONNECT up says so as soon as it hears the owner's answer, so a will is kept for
CANCELLED_WILLS_KEPT_S; beyond CANCELLED_WILLS_MAX_BYTES the oldest is forgotten. No I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from flockmq.bounds import CANCELLED_WILLS_KEPT_S, CANCELLED_WILLS_MAX_BYTES
from flockmq.session_rpc.clean_session_wills import PendingWill


class CancelledWill(NamedTuple):
    """`nonce`: of the CONNECT that decides. `due_s`: when it would have been published."""

    nonce: bytes
    left: PendingWill
    due_s: float
    cancelled_s: float

    def size_bytes(self) -> int:
        return len(self.left.will.message.packet)


class CancelledWills:
    """`size_bytes`: of all of them."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._of: dict[bytes, CancelledWill] = {}
        """By client id."""

    def __len__(self) -> int:
        return len(self._of)

    def note(self, client_id: bytes, nonce: bytes, left: PendingWill, due_s: float, now_s: float) -> None:
        """The client's CONNECT with this nonce cancelled a will."""
        self.forget(client_id)
        cancelled = self._of[client_id] = CancelledWill(nonce, left, due_s, now_s)
        self.size_bytes += cancelled.size_bytes()
        while self.size_bytes > CANCELLED_WILLS_MAX_BYTES:
            self.forget(next(iter(self._of)))

    def asked_again(self, client_id: bytes, nonce: bytes, now_s: float) -> None:
        """The client's CONNECT with this nonce comes behind one that isn't known to have been let in."""
        if (cancelled := self._of.get(client_id)) is not None:
            self.note(client_id, nonce, cancelled.left, cancelled.due_s, now_s)

    def take(self, client_id: bytes, nonce: bytes) -> CancelledWill | None:
        """The connection of this CONNECT ended. Returns the will that it cancelled, if it is known."""
        cancelled = self._of.get(client_id)
        if cancelled is None or cancelled.nonce != nonce:
            return None
        self.forget(client_id)
        return cancelled

    def forget(self, client_id: bytes) -> None:
        """The client was back."""
        if (cancelled := self._of.pop(client_id, None)) is not None:
            self.size_bytes -= cancelled.size_bytes()

    def tick(self, now_s: float) -> None:
        """Forget those whose clients must be back."""
        while self._of:
            oldest = next(iter(self._of))
            if self._of[oldest].cancelled_s > now_s - CANCELLED_WILLS_KEPT_S:
                break
            self.forget(oldest)
