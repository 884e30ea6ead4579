"""Clients that aren't authenticated yet, and the memory they use: the bytes they sent, and their TLS objects.

Invariant: all together use at most `max_bytes`, except for the read that is being counted. Above that, networks that
use more than their share lose their oldest clients. So quick clients, and clients of other networks, can still connect.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import UNAUTHENTICATED_COUNTED_BYTES
from flockmq.transport.connection import Connection

_ROOM: Final = 64
"""Free a 64th of the limit at a time, so that not every read has to look at all networks."""


@mypyc_attr(acyclic=True)
class _Network:
    """The unauthenticated clients of one network, oldest first, and the memory they use."""

    __slots__ = ("bytes", "connections")

    def __init__(self) -> None:
        self.bytes: int = 0
        self.connections: dict[Connection, None] = {}


class Unauthenticated:
    """One per node. `bytes`: sum for all clients that use at least UNAUTHENTICATED_COUNTED_BYTES each."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes: int = 0
        self._networks: dict[str, _Network] = {}

    def cost(self, connection: Connection, more: int) -> None:
        """Add to the connection's cost; `more` may be negative."""
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
        """The client was authenticated, or is gone."""
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
        """Remove and return the connections that must be closed."""
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
