"""Packets of connected clients that have come in part. One per router.

A client may take its time with the rest, so that memory is shared: above `max_bytes`, users that have more than their
share lose their oldest connections. So the packets of others, and those that come quickly, go on.

Invariants: `bytes` is the sum of all parts of at least PARTIAL_COUNTED_BYTES. After `excess` it is at most `max_bytes`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import PARTIAL_COUNTED_BYTES, PARTIALS_MAX_BYTES
from flockmq.routing.back_pressure import PausablePublisher

_ROOM: Final = 64
"""Free a 64th of the limit at a time, so that not every read has to look at all users."""


@mypyc_attr(acyclic=True)
class _OfUser:
    """The connections of one user with such a packet, the one that began first is first, and the bytes that came."""

    __slots__ = ("bytes", "parts")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.parts: dict[PausablePublisher, int] = {}


class PartialPackets:
    def __init__(self, max_bytes: int = PARTIALS_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._users: dict[bytes, _OfUser] = {}

    def has_come(self, user: bytes, client: PausablePublisher, size_bytes: int) -> None:
        """So much of the client's packet has come by now."""
        if size_bytes < PARTIAL_COUNTED_BYTES:
            return
        of_user = self._users.get(user)
        if of_user is None:
            of_user = self._users[user] = _OfUser()
        more_bytes = size_bytes - of_user.parts.get(client, 0)
        of_user.parts[client] = size_bytes
        of_user.bytes += more_bytes
        self.bytes += more_bytes

    def ended(self, user: bytes, client: PausablePublisher) -> None:
        """The packet is whole, or its client is gone."""
        of_user = self._users.get(user)
        size_bytes = 0 if of_user is None else of_user.parts.pop(client, 0)
        if of_user is not None and size_bytes:
            of_user.bytes -= size_bytes
            self.bytes -= size_bytes
            if not of_user.parts:
                del self._users[user]

    def excess(self) -> list[PausablePublisher]:
        """Remove and return the clients that must be disconnected."""
        going: list[PausablePublisher] = []
        if self.bytes <= self.max_bytes:
            return going
        most = self.max_bytes - self.max_bytes // _ROOM
        while self.bytes > most:
            share = self.bytes // len(self._users)
            for user, of_user in list(self._users.items()):
                while self.bytes > most and of_user.parts and of_user.bytes >= share:
                    client = next(iter(of_user.parts))
                    self.ended(user, client)
                    going.append(client)
        return going
