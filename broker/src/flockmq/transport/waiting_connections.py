"""Connections that wait to be read: users take turns, those of one user go in order.

So a client waits for one connection of each other user, however many those have. Who isn't connected yet, and so has no
user, takes turns by itself.
"""

from __future__ import annotations

from flockmq.protocol.channel import CONNECTED
from flockmq.transport.connection import Connection


class WaitingConnections:
    """Each connection is here once."""

    def __init__(self) -> None:
        self._turns: dict[object, dict[Connection, None]] = {}
        """By user; the one whose last turn is longest ago is first."""
        self._users: dict[Connection, object] = {}

    def __len__(self) -> int:
        return len(self._users)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self._users

    def add(self, connection: Connection) -> None:
        if connection not in self._users:
            user: object = connection.principal.username if connection.state == CONNECTED else connection
            self._users[connection] = user
            self._turns.setdefault(user, {})[connection] = None

    def discard(self, connection: Connection) -> None:
        if connection in self._users:
            user = self._users.pop(connection)
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
        del self._users[connection]
        if own:
            self._turns[user] = own
        return connection
