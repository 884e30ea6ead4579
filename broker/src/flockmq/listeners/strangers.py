"""Clients that aren't let in yet, and what they cost: what they sent, and what TLS made for them.

What always holds: all together cost no more than `max_bytes`, but for the read that is being counted. Where it would be
more, the oldest of the addresses that cost more than their share go: who is quick, or comes from elsewhere, has room.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.listeners.connection import Connection

_ROOM: Final = 64
"""A 64th of the bound is made free at a time, so that not each read looks at all addresses."""


@mypyc_attr(acyclic=True)
class _Address:
    """Who is a stranger from here, with what each one costs, oldest first."""

    __slots__ = ("bytes", "costs")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.costs: dict[Connection, int] = {}


class Strangers:
    """One per node; who says nothing isn't in it. `bytes`: what they cost."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._addresses: dict[str, _Address] = {}

    def __len__(self) -> int:
        return sum([len(address.costs) for address in self._addresses.values()])

    def cost(self, connection: Connection, more: int) -> None:
        """It costs so much more; less, where that is negative."""
        address = self._addresses.get(connection.place)
        if address is None:
            address = self._addresses[connection.place] = _Address()
        address.costs[connection] = address.costs.get(connection, 0) + more
        address.bytes += more
        self.bytes += more

    def forget(self, connection: Connection) -> None:
        """It was let in, or is gone."""
        address = self._addresses.get(connection.place)
        if address is not None and connection in address.costs:
            self._drop(connection, address)

    def supernumerary(self) -> list[Connection]:
        """Who must go, and isn't counted any more."""
        going: list[Connection] = []
        most = self.max_bytes if self.bytes <= self.max_bytes else self.max_bytes - self.max_bytes // _ROOM
        while self.bytes > most:
            share = self.bytes // len(self._addresses)
            for address in list(self._addresses.values()):
                while self.bytes > most and address.costs and address.bytes >= share:
                    connection = next(iter(address.costs))
                    self._drop(connection, address)
                    going.append(connection)
        return going

    def _drop(self, connection: Connection, address: _Address) -> None:
        cost = address.costs.pop(connection)
        address.bytes -= cost
        self.bytes -= cost
        if not address.costs:
            del self._addresses[connection.place]
