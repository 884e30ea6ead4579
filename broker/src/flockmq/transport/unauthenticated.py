"""Clients that aren't let in yet, and the bytes that they cost: what they sent, and what TLS made for them.

What always holds: all together cost no more than `max_bytes`, but for the read that is being counted. Above that, the
addresses that cost more than their share lose their oldest clients. So there is room for who is quick, and for who
comes from elsewhere.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import UNAUTHENTICATED_COUNTED_BYTES
from flockmq.transport.connection import Connection

_ROOM: Final = 64
"""A 64th of the bound is made free at a time, so that not every read looks at all addresses."""


@mypyc_attr(acyclic=True)
class _Address:
    """The clients of one network that aren't let in yet, oldest first, and what they cost."""

    __slots__ = ("bytes", "strangers")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.strangers: dict[Connection, None] = {}


class Unauthenticated:
    """One per node. `bytes`: what all those cost who cost at least UNAUTHENTICATED_COUNTED_BYTES each."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._addresses: dict[str, _Address] = {}

    def cost(self, connection: Connection, more: int) -> None:
        """The connection costs so much more; less, where that is negative."""
        before = connection.cost
        cost = connection.cost = before + more
        if cost < UNAUTHENTICATED_COUNTED_BYTES:
            return
        address = self._addresses.get(connection.place)
        if address is None:
            address = self._addresses[connection.place] = _Address()
        if before < UNAUTHENTICATED_COUNTED_BYTES:
            more = cost
            address.strangers[connection] = None
        address.bytes += more
        self.bytes += more

    def forget(self, connection: Connection) -> None:
        """The client was let in, or is gone."""
        cost = connection.cost
        connection.cost = 0
        if cost >= UNAUTHENTICATED_COUNTED_BYTES:
            address = self._addresses[connection.place]
            del address.strangers[connection]
            address.bytes -= cost
            self.bytes -= cost
            if not address.strangers:
                del self._addresses[connection.place]

    def supernumerary(self) -> list[Connection]:
        """The connections that must go. They aren't counted any more."""
        going: list[Connection] = []
        most = self.max_bytes if self.bytes <= self.max_bytes else self.max_bytes - self.max_bytes // _ROOM
        while self.bytes > most:
            share = self.bytes // len(self._addresses)
            for address in list(self._addresses.values()):
                while self.bytes > most and address.strangers and address.bytes >= share:
                    connection = next(iter(address.strangers))
                    self.forget(connection)
                    going.append(connection)
        return going
