"""Connections that wait to be read: users take turns, those of one user go in order.

So a client waits for one connection of each other user, however many those have. Who isn't connected yet, and so has no
user, shares turns with all of them from its network.
"""

from __future__ import annotations

from flockmq.protocol.channel import CONNECTED
from flockmq.transport.connection import Connection


class WaitingConnections:
    """Each connection is here once. Each listener knows how many strangers, who aren't connected yet, wait."""

    def __init__(self) -> None:
        self._turns: dict[object, dict[Connection, None]] = {}
        """By user, strangers by their network in a tuple; the one whose last turn is longest ago is first."""
        self._users: dict[Connection, object] = {}

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._users

    def add(self, connection: Connection) -> None:
        if connection not in self._users:
            user: object = connection.principal.username
            if connection.state != CONNECTED:
                user = (connection.network,)
                connection.listener.strangers_waiting += 1
            self._users[connection] = user
            self._turns.setdefault(user, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        if connection in self._users:
            user = self._forget(connection)
            own = self._turns[user]
            del own[connection]
            if not own:
                del self._turns[user]

    def next(self) -> Connection:
        """Take the connection whose turn it is."""
        user = next(iter(self._turns))
        own = self._turns.pop(user)
        connection = next(iter(own))
        del own[connection]
        self._forget(connection)
        if own:
            self._turns[user] = own
        return connection

    def _forget(self, connection: Connection) -> object:
        user = self._users.pop(connection)
        if isinstance(user, tuple):
            connection.listener.strangers_waiting -= 1
        return user
