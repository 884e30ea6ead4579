"""Clients that aren't let in yet, and the bytes that they cost: what they sent, and what TLS made for them.

What always holds: all together cost no more than `max_bytes`, but for the read that is being counted. Above that, the
networks that cost more than their share lose their oldest clients. So there is room for who is quick, and for who comes
from elsewhere.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import UNAUTHENTICATED_COUNTED_BYTES
from flockmq.transport.connection import Connection

_ROOM: Final = 64
"""A 64th of the bound is made free at a time, so that not every read looks at all networks."""


@mypyc_attr(acyclic=True)
class _Network:
    """The clients of one network that aren't let in yet, oldest first, and what they cost."""

    __slots__ = ("bytes", "connections")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.connections: dict[Connection, None] = {}


class Unauthenticated:
    """One per node. `bytes`: what all those cost who cost at least UNAUTHENTICATED_COUNTED_BYTES each."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._networks: dict[str, _Network] = {}

    def cost(self, connection: Connection, more: int) -> None:
        """The connection costs so much more; less, where that is negative."""
        before = connection.cost
        cost = connection.cost = before + more
        if cost < UNAUTHENTICATED_COUNTED_BYTES:
            return
        network = self._networks.get(connection.network)
        if network is None:
            network = self._networks[connection.network] = _Network()
        if before < UNAUTHENTICATED_COUNTED_BYTES:
            more = cost
            network.connections[connection] = None
        network.bytes += more
        self.bytes += more

    def forget(self, connection: Connection) -> None:
        """The client was let in, or is gone."""
        cost = connection.cost
        connection.cost = 0
        if cost >= UNAUTHENTICATED_COUNTED_BYTES:
            network = self._networks[connection.network]
            del network.connections[connection]
            network.bytes -= cost
            self.bytes -= cost
            if not network.connections:
                del self._networks[connection.network]

    def excess(self) -> list[Connection]:
        """The connections that must go. They aren't counted any more."""
        going: list[Connection] = []
        most = self.max_bytes if self.bytes <= self.max_bytes else self.max_bytes - self.max_bytes // _ROOM
        while self.bytes > most:
            share = self.bytes // len(self._networks)
            for network in list(self._networks.values()):
                while self.bytes > most and network.connections and network.bytes >= share:
                    connection = next(iter(network.connections))
                    self.forget(connection)
                    going.append(connection)
        return going
