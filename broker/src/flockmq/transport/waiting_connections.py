"""Connections that wait to be read: users take turns, those of one user go in order.

So a client waits for one connection of each other user, however many those have. Who isn't connected yet, and so has no
user, shares turns with all of them from its network.

There are two rows. In the first one are connected clients of whom the last read took everything, in the second one all
others: those that had sent more, and those that aren't connected. So where all clients have one user, or none, who
sends little doesn't wait behind those that send much.
"""

from __future__ import annotations

from flockmq.protocol.channel import CONNECTED
from flockmq.transport.connection import Connection


class Row:
    """Connections by user, strangers by their network in a tuple."""

    def __init__(self) -> None:
        self._turns: dict[object, dict[Connection, None]] = {}
        """The user whose last turn is longest ago is first."""
        self.size: int = 0

    def add(self, user: object, connection: Connection) -> None:
        self._turns.setdefault(user, {})[connection] = None
        self.size += 1

    def discard(self, user: object, connection: Connection) -> None:
        own = self._turns[user]
        del own[connection]
        self.size -= 1
        if not own:
            del self._turns[user]

    def next(self) -> Connection:
        user = next(iter(self._turns))
        own = self._turns.pop(user)
        connection = next(iter(own))
        del own[connection]
        self.size -= 1
        if own:
            self._turns[user] = own
        return connection


class WaitingConnections:
    """Each connection is here once. Each listener knows how many strangers, who aren't connected yet, wait."""

    def __init__(self) -> None:
        self.first = Row()
        self.second = Row()
        self._places: dict[Connection, tuple[Row, object]] = {}
        """The row and the user of each."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._places

    def add(self, connection: Connection) -> None:
        if connection in self._places:
            return
        row, user = self.second, _turn_of(connection)
        if connection.state != CONNECTED:
            connection.listener.strangers_waiting += 1
        elif not connection.has_more:
            row = self.first
        self._places[connection] = (row, user)
        row.add(user, connection)

    def discard(self, connection: Connection) -> None:
        if connection in self._places:
            row, user = self._forget(connection)
            row.discard(user, connection)

    def next(self, row: Row) -> Connection:
        """Take the connection of the row whose turn it is."""
        connection = row.next()
        self._forget(connection)
        return connection

    def _forget(self, connection: Connection) -> tuple[Row, object]:
        place = self._places.pop(connection)
        if isinstance(place[1], tuple):
            connection.listener.strangers_waiting -= 1
        return place


def _turn_of(connection: Connection) -> object:
    """With whom it has turns."""
    return connection.principal.username if connection.state == CONNECTED else (connection.network,)
