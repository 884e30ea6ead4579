"""The wills that CONNECTs cancelled, until it is known that their clients are back: a CONNECT may still be refused.

Invariants: a node that gave a CONNECT up says so as soon as it hears the owner's answer, so a will is kept for
CANCELLED_WILLS_KEPT_S; beyond CANCELLED_WILLS_MAX_BYTES the oldest is forgotten. No I/O.
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
        self._by_token: dict[int, CancelledWill] = {}

    def __len__(self) -> int:
        return len(self._by_token)

    def note(self, token: int, left: PendingWill, due_s: float, now_s: float) -> None:
        """The CONNECT of the connection with this token cancelled a will."""
        cancelled = self._by_token[token] = CancelledWill(left, due_s, now_s)
        self.size_bytes += cancelled.size_bytes()
        while self.size_bytes > CANCELLED_WILLS_MAX_BYTES:
            self.take(next(iter(self._by_token)))

    def take(self, token: int) -> CancelledWill | None:
        """The connection ended. Returns the will that its CONNECT cancelled, if it is known."""
        cancelled = self._by_token.pop(token, None)
        if cancelled is not None:
            self.size_bytes -= cancelled.size_bytes()
        return cancelled

    def tick(self, now_s: float) -> None:
        """Forget those whose clients must be back."""
        while self._by_token:
            oldest = next(iter(self._by_token))
            if self._by_token[oldest].cancelled_s > now_s - CANCELLED_WILLS_KEPT_S:
                break
            self.take(oldest)
