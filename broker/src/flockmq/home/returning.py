"""Clients that are back at a session whose former connection isn't known to be gone, or how it ended. Pure.

What always holds: one a client id, the newest; as many as RETURNING_MAX, and RETURNING_MAX_BYTES of what they ask for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from flockmq import bounds


class _One(NamedTuple):
    incarnation: str
    token: int
    size_bytes: int
    go_on: Callable[[], None]


class Returning:
    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._of: dict[bytes, _One] = {}

    def __len__(self) -> int:
        return len(self._of)

    def put(self, client_id: bytes, incarnation: str, token: int, size_bytes: int, go_on: Callable[[], None]) -> bool:
        """The connection waits until it is taken; False: there is no room for it."""
        self.take(client_id)
        if len(self._of) >= bounds.RETURNING_MAX or self.waiting_bytes + size_bytes > bounds.RETURNING_MAX_BYTES:
            return False
        self._of[client_id] = _One(incarnation, token, size_bytes, go_on)
        self.waiting_bytes += size_bytes
        return True

    def take(self, client_id: bytes) -> Callable[[], None] | None:
        """What lets it go on, if one waits."""
        one = self._of.pop(client_id, None)
        if one is None:
            return None
        self.waiting_bytes -= one.size_bytes
        return one.go_on

    def left(self, client_id: bytes, token: int) -> None:
        """This connection is gone."""
        one = self._of.get(client_id)
        if one is not None and one.token == token:
            self.take(client_id)

    def node_gone(self, incarnation: str) -> None:
        for client_id in [client_id for client_id, one in self._of.items() if one.incarnation == incarnation]:
            self.take(client_id)
