"""The path to Redis, under the loop that nodes run on: a reset connection is a lost one, and a slow reply is none."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import cast

import pytest
from redis.asyncio.connection import AbstractConnection

from flockmq.auth.authenticator import Attempt, Pass
from flockmq.auth.built_in import Passwords
from flockmq.auth.redis import RedisAuthenticator
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import RedisAuthSettings
from flockmq.protocol.client import PeerInfo
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisConfig, RedisLink
from integration.redis.servers import Server
from integration.redis_proxy import redis_proxy

ATTEMPT = Attempt(b"c", b"jo", b"pw", PeerInfo("127.0.0.1", 1, "tcp:default"))


async def noticed(connection: AbstractConnection) -> None:
    """Wait until this end of an idle connection knows that it was reset."""
    reader = connection._reader
    assert reader is not None
    with contextlib.suppress(ConnectionError):
        await reader.read(1)


async def test_a_connection_that_was_reset_while_it_was_idle_is_a_lost_one(server: Server) -> None:
    async with redis_proxy(server.port) as proxy:
        link = RedisLink(RedisConfig(f"redis://127.0.0.1:{proxy.port}"))
        assert await link.call("SET", "a", "x") == b"OK"
        assert link.connection is not None
        proxy.reset()
        await noticed(link.connection._connection)
        with pytest.raises(RedisUnreachable, match="the connection was lost while it was idle"):
            await link.call("GET", "a")
        assert await link.call("GET", "a") == b"x"
        await link.close()


async def test_users_are_found_although_idle_connections_were_reset(server: Server) -> None:
    class NoUser:
        async def is_right(self, *_: object) -> bool:
            return False

    async with redis_proxy(server.port) as proxy:
        settings = RedisAuthSettings(url=f"redis://127.0.0.1:{proxy.port}")
        users = RedisAuthenticator(settings, "authentication.chain[0]", cast(Passwords, NoUser()), SYSTEM)
        await users.start()

        async def asked() -> object:
            return await cast(Coroutine[None, None, object], users.check(ATTEMPT))

        assert await asked() is Pass.UNKNOWN
        assert users._client is not None
        (connection,) = users._client.connection_pool._available_connections
        proxy.reset()
        await noticed(connection)
        assert await asked() is Pass.UNKNOWN
        await users.stop()


async def test_a_reply_that_keeps_arriving_is_not_given_up(server: Server) -> None:
    async with redis_proxy(server.port) as proxy:
        link = RedisLink(RedisConfig(f"redis://127.0.0.1:{proxy.port}"))
        value = b"x" * 2**20
        await link.call("SET", "a", value)
        proxy.bytes_per_s = 2**18
        assert await link.call("GET", "a", timeout_s=2.0) == value
        await link.close()


async def test_a_reply_that_arrives_too_slowly_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.bounds.REDIS_REPLIES_MAX_S", 0.0)
    async with redis_proxy(server.port) as proxy:
        link = RedisLink(RedisConfig(f"redis://127.0.0.1:{proxy.port}"))
        await link.call("SET", "a", b"x" * 2**20)
        proxy.bytes_per_s = 2**18
        with pytest.raises(RedisUnreachable, match="no answer in time"):
            await link.call("GET", "a", timeout_s=1.0)
        await link.close()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        link = RedisLink(RedisConfig(f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"))
        with pytest.raises(RedisUnreachable, match="no answer in time"):
            await link.call("GET", "a", timeout_s=0.1)
