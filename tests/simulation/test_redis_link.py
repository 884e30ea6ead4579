"""Nodes' connections to a simulated Redis: errors come as redis-py would give or raise them."""

from __future__ import annotations

from random import Random

import pytest
from redis.exceptions import BusyLoadingError, OutOfMemoryError

from flockmq.redis.connection import Argument, Reply
from simulation.loop import Process, SimulatedLoop
from simulation.network import Network
from simulation.redis_host import RedisHost
from simulation.redis_link import SimulatedRedisConfig

ADDRESS = ("10.0.0.1", 6379)


class Redis:
    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        network = self.loop.network = Network(self.loop, Random(1))
        self.host = RedisHost("redis", ADDRESS, network, Random(1))
        self.host.start_now()
        self._config = SimulatedRedisConfig(f"redis://{ADDRESS[0]}:{ADDRESS[1]}", network=network)

    def ask(self, *command: Argument) -> Reply | Exception:
        return self.loop.run(self._ask(command), Process("client", "10.0.0.2"))

    async def _ask(self, command: tuple[Argument, ...]) -> Reply | Exception:
        connection = await self._config.open(self._config.parsed_url.servers[0])
        return (await connection.exchange([command], 5.0))[0]


def test_what_redis_refuses_is_a_reply_of_its_kind() -> None:
    redis = Redis()
    assert redis.ask("SET", "a", 1) == b"OK"
    redis.host.fill()
    assert isinstance(redis.ask("SET", "a", 2), OutOfMemoryError)
    assert redis.ask("GET", "a") == b"1"


def test_a_server_that_loads_is_of_no_use() -> None:
    redis = Redis()
    redis.host.server.is_loading = True
    with pytest.raises(BusyLoadingError):
        redis.ask("GET", "a")
