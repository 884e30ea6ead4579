"""The wills that CONNECTs cancelled, until it is known that their clients are back: a CONNECT may still be refused.

Invariants: a node that gave a CONNECT up says so as soon as it hears the owner's answer, so a will is kept for
CANCELLED_WILLS_KEPT_S; beyond CANCELLED_WILLS_MAX_BYTES the oldest is forgotten. It is known by the nonce of the
CONNECT: a node that lost its link repeats the CONNECT, and then it has another token. No I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from flockmq.bounds import CANCELLED_WILLS_KEPT_S, CANCELLED_WILLS_MAX_BYTES
from flockmq.session_rpc.clean_session_wills import PendingWill


class CancelledWill(NamedTuple):
    """`due_s`: when it would have been published."""

    left: PendingWill
    due_s: float
    cancelled_s: float

    def size_bytes(self) -> int:
        return len(self.left.will.message.packet)


class CancelledWills:
    """`size_bytes`: of all of them."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._by_nonce: dict[bytes, CancelledWill] = {}

    def __len__(self) -> int:
        return len(self._by_nonce)

    def note(self, nonce: bytes, left: PendingWill, due_s: float, now_s: float) -> None:
        """The CONNECT with this nonce cancelled a will."""
        self.take(nonce)
        cancelled = self._by_nonce[nonce] = CancelledWill(left, due_s, now_s)
        self.size_bytes += cancelled.size_bytes()
        while self.size_bytes > CANCELLED_WILLS_MAX_BYTES:
            self.take(next(iter(self._by_nonce)))

    def take(self, nonce: bytes) -> CancelledWill | None:
        """The connection ended. Returns the will that its CONNECT cancelled, if it is known."""
        cancelled = self._by_nonce.pop(nonce, None)
        if cancelled is not None:
            self.size_bytes -= cancelled.size_bytes()
        return cancelled

    def tick(self, now_s: float) -> None:
        """Forget those whose clients must be back."""
        while self._by_nonce:
            oldest = next(iter(self._by_nonce))
            if self._by_nonce[oldest].cancelled_s > now_s - CANCELLED_WILLS_KEPT_S:
                break
            self.take(oldest)
