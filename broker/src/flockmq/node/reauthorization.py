"""Whatever clients were allowed before, when the rules change they are to be asked about again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from flockmq.bounds import AUTHORIZATION_SLICE_CLIENTS
from flockmq.protocol.channel import CONNECTED, Channel
from flockmq.protocol.principal import Principal


class Reauthorization:
    """`connections` are the node's, some of them gone; `must_authorize` says of whom is asked."""

    def __init__(
        self, connections: Callable[[], Sequence[Channel | None]], must_authorize: Callable[[Principal], bool]
    ) -> None:
        self._connections = connections
        self._must_authorize = must_authorize
        self._task: asyncio.Task[None] | None = None
        self._changed = False

    def rules_changed(self) -> None:
        """All of them within a few turns."""
        self._changed = True
        if self._task is None:
            self._task = asyncio.ensure_future(self._ask_anew())

    async def done(self) -> None:
        """Returns when everybody was asked about."""
        if self._task is not None:
            await self._task

    async def _ask_anew(self) -> None:
        """All to the last, and again if the rules changed meanwhile: however fast they do, everybody has its turn."""
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
