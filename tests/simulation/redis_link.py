"""Nodes' connections to simulated Redis servers: pipelines and their replies cross the network whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis._parsers.base import BaseParser
from redis.exceptions import BusyLoadingError, ConnectionError, ResponseError

from flockmq.redis_url import Server as RedisAddress
from flockmq.rlog.connection import Argument, RedisConfig, RedisConnection, Reply
from flockmq.rlog.errors import RedisUnreachable
from simulation.network import End, Network


class SimulatedRedisConfig(RedisConfig, frozen=True, kw_only=True):
    network: Any

    async def open(self, server: RedisAddress, *, to_sentinel: bool = False) -> RedisConnection:
        network: Network = self.network
        try:
            async with asyncio.timeout(5.0):
                return SimulatedRedisConnection(await network.dial((server.host, server.port)))
        except (OSError, TimeoutError) as error:
            raise RedisUnreachable(f"Redis at {server}: {error}") from None


class SimulatedRedisConnection(RedisConnection):
    def __init__(self, end: End) -> None:
        self._end = end
        self._asked: asyncio.Future[list[Reply | ResponseError]] | None = None
        end.serve(self._answered, self._lost)

    async def exchange(self, commands: Sequence[Sequence[Argument]]) -> list[Reply | ResponseError]:
        if self._end.is_closed:
            raise ConnectionError("Connection closed by server.")
        self._asked = asyncio.get_running_loop().create_future()
        self._end.send(commands)
        return [_as_redis_py(reply) for reply in await self._asked]

    async def close(self) -> None:
        self._end.close()

    def _answered(self, replies: list[Reply | ResponseError]) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(replies)

    def _lost(self) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ConnectionError("Connection closed by server."))


def _as_redis_py(reply: Reply | ResponseError) -> Reply | ResponseError:
    """Errors are of the kinds that redis-py makes of their texts."""
    if isinstance(reply, BusyLoadingError):
        raise reply
    if not isinstance(reply, ResponseError):
        return reply
    error = BaseParser.parse_error(str(reply))
    if isinstance(error, BusyLoadingError) or not isinstance(error, ResponseError):
        raise error
    return error
