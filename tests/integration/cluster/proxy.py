"""A path between two nodes that can lose everything one way or both, without either end being told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from flockmq.membership.mesh import Address


class Proxy:
    """Listens on loopback and passes on to `target`."""

    def __init__(self, target: Address) -> None:
        self.loses_there = False
        """What is sent to the target disappears."""
        self.loses_back = False
        self.address: Address = ("", 0)
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = self._server.sockets[0].getsockname()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._writers += [writer, back]
        self._spawn(self._carry(reader, back, lambda: self.loses_there))
        self._spawn(self._carry(there, writer, lambda: self.loses_back))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.add(asyncio.create_task(work))

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: Callable[[], bool]
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if not loses():
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass
        if not self.loses_there and not self.loses_back:
            writer.close()
