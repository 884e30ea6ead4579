"""When rules change, connections must drop what they were allowed to publish, and ask for authorization again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flockmq.bounds import AUTHORIZATION_SLICE_CLIENTS
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.principal import Principal


class PublishReauthorization:
    """`connections` returns this node's connections, with None for closed ones. `must_authorize` tells whether a
    principal is subject to rules."""

    def __init__(
        self, connections: Callable[[], Sequence[Channel | None]], must_authorize: Callable[[Principal], bool]
    ) -> None:
        self._connections = connections
        self._must_authorize = must_authorize
        self._task: asyncio.Task[None] | None = None
        self._changed = False

    def rules_changed(self) -> None:
        """Mark all connections within a few event-loop iterations."""
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._ask_anew())

    async def done(self) -> None:
        """Wait until all connections were marked."""
        if self._task is not None:
            await self._task

    async def _ask_anew(self) -> None:
        """Mark all connections, in slices. If rules change meanwhile, finish the round and begin another. So every
        connection is marked, however often rules change."""
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
