"""Nodes' connections to simulated Redis servers: pipelines and their replies cross the network whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.exceptions import BusyLoadingError, ConnectionError, RedisError, ResponseError

from flockmq.redis.connection import Argument, RedisConfig, RedisConnection, Reply
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.url import RedisServer as RedisAddress
from simulation.network import End, Network
from simulation.redis.session import Answers


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
        self._asked: asyncio.Future[Answers] | None = None
        end.serve(self._answered, self._lost)

    async def exchange(self, commands: Sequence[Sequence[Argument]], timeout_s: float) -> list[Reply | ResponseError]:
        if self._end.is_closed:
            raise ConnectionError("Connection closed by server.")
        self._asked = asyncio.get_running_loop().create_future()
        self._end.send(commands)
        async with asyncio.timeout(timeout_s):
            replies = await self._asked
        return [reply if type(reply) is bytes else _as_redis_py(reply) for reply in replies]

    async def close(self) -> None:
        self._end.close()

    def _answered(self, replies: Answers) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(replies)

    def _lost(self) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_exception(ConnectionError("Connection closed by server."))


def _as_redis_py(reply: Reply | RedisError) -> Reply | ResponseError:
    """Most errors are replies; some are of the connection."""
    if isinstance(reply, RedisError) and (isinstance(reply, BusyLoadingError) or not isinstance(reply, ResponseError)):
        raise reply
    return reply
