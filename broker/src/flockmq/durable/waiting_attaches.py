"""Attaches that wait: for a report how the session's previous connection ended, or until other nodes know the usage of
the user. No I/O. (Attaches that wait until their slot is loaded: `session_rpc.pending_attaches`.)

Invariant: at most one per client id, the newest; at most RETURNING_MAX, with at most RETURNING_MAX_BYTES of requests.
"""

from __future__ import annotations

from flockmq import bounds
from flockmq.session_rpc.messages import size_of
from flockmq.session_rpc.ports import Attach


class WaitingAttaches:
    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._of: dict[bytes, Attach] = {}

    def __len__(self) -> int:
        return len(self._of)

    def put(self, attach: Attach) -> bool:
        """Let the attach wait until it is taken. Returns False if there is no room."""
        self.take(attach.client_id)
        size_bytes = size_of(attach.client_id, attach.request)
        if len(self._of) >= bounds.RETURNING_MAX or self.waiting_bytes + size_bytes > bounds.RETURNING_MAX_BYTES:
            return False
        self._of[attach.client_id] = attach
        self.waiting_bytes += size_bytes
        return True

    def take(self, client_id: bytes) -> Attach | None:
        """Remove and return the waiting attach, if any."""
        attach = self._of.pop(client_id, None)
        if attach is not None:
            self.waiting_bytes -= size_of(client_id, attach.request)
        return attach

    def left(self, client_id: bytes, token: int) -> Attach | None:
        """The connection ended: remove and return its attach, if it waits."""
        attach = self._of.get(client_id)
        return self.take(client_id) if attach is not None and attach.token == token else None

    def node_gone(self, incarnation: str) -> None:
        for client_id in [client_id for client_id, attach in self._of.items() if attach.incarnation == incarnation]:
            self.take(client_id)
