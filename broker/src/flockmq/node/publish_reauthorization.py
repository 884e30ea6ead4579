"""When rules change, clients must be asked about again, whatever they were allowed before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flockmq.bounds import AUTHORIZATION_SLICE_CLIENTS
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.principal import Principal


class Reauthorization:
    """`connections` are the node's, None where one is gone; `must_authorize` says about whom is asked."""

    def __init__(
        self, connections: Callable[[], Sequence[Channel | None]], must_authorize: Callable[[Principal], bool]
    ) -> None:
        self._connections = connections
        self._must_authorize = must_authorize
        self._task: asyncio.Task[None] | None = None
        self._changed = False

    def rules_changed(self) -> None:
        """Look at all clients within a few turns."""
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._ask_anew())

    async def done(self) -> None:
        """Returns when everybody was asked about."""
        if self._task is not None:
            await self._task

    async def _ask_anew(self) -> None:
        """Go through all clients to the last, and again if rules changed meanwhile. So everybody has its turn, however
        fast rules change."""
        try:
            while self._changed:
                self._changed = False
                connections = self._connections()
                for first in range(0, len(connections), AUTHORIZATION_SLICE_CLIENTS):
                    for connection in connections[first : first + AUTHORIZATION_SLICE_CLIENTS]:
                        if connection is not None and connection.state == CONNECTED:
                            connection.must_be_asked_about(self._must_authorize(connection.principal))
                    await asyncio.sleep(0)
        finally:
            self._task = None
