"""A TCP proxy in front of a Redis: what it sends can be slow, and connections can be reset."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator


class RedisProxy:
    """`bytes_per_s`: of what Redis sends, over each connection."""

    def __init__(self, redis_port: int) -> None:
        self.bytes_per_s = float("inf")
        self.port = 0
        self._redis_port = redis_port
        self._writers: list[asyncio.StreamWriter] = []

    def reset(self) -> None:
        """Reset all connections of clients."""
        for writer in self._writers:
            if not writer.is_closing():
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
        self._writers.clear()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self._redis_port)
        self._writers.append(writer)
        with contextlib.suppress(asyncio.CancelledError):  # the test is over
            await asyncio.gather(self._pump(reader, to_redis), self._pump(from_redis, writer, is_slow=True))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_slow: bool = False) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
                if is_slow:
                    await asyncio.sleep(len(data) / self.bytes_per_s)
        writer.close()


@contextlib.asynccontextmanager
async def redis_proxy(redis_port: int) -> AsyncIterator[RedisProxy]:
    proxy = RedisProxy(redis_port)
    server = await asyncio.start_server(proxy.connected, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.reset()
