"""One connection to Redis: how it is made, what its errors become.

redis-py's `Connection` with hiredis does the protocol; its client and pool are left out because a log must know when
its connection was made anew (Redis may have restarted in between), never resend by itself, and wants raw replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias, cast
from urllib.parse import urlsplit

import msgspec
from hiredis import pack_command
from redis.asyncio.connection import Connection, parse_url
from redis.exceptions import AuthenticationError, BusyLoadingError, RedisError, ResponseError

from flockmq import bounds
from flockmq.rlog.errors import RedisUnreachable

Argument: TypeAlias = bytes | str | int
_pack = cast(Callable[[tuple[Argument, ...]], bytes], pack_command)  # its stub is for one-tuples
Reply: TypeAlias = "bytes | int | list[Reply] | None"


class RedisConfig(msgspec.Struct, frozen=True):
    """Where Redis is. The password file is read at each connect, so a rotated password is taken up."""

    url: str
    password_file: Path | None = None
    password: str | None = None

    @property
    def address(self) -> str:
        """host:port (or the socket's path), without user and password."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path

    def connection(self) -> Connection:
        """Raises RedisUnreachable if the URL or the password file can't be read."""
        try:
            options = dict(parse_url(self.url))
            if self.password_file is not None:
                options["password"] = self.password_file.read_text().strip()
            elif self.password is not None:
                options["password"] = self.password
        except (ValueError, OSError) as error:
            raise RedisUnreachable(f"Redis at {self.address}: {error}") from None
        options |= {
            "protocol": 2,
            "socket_timeout": None,
            "socket_connect_timeout": bounds.REDIS_CONNECT_MAX_S,
            "driver_info": None,
        }
        kind = cast(Callable[..., Connection], options.pop("connection_class", Connection))
        return kind(**options)


class RedisLink:
    """A connection that one caller at a time uses. After any error it is closed, and the next command makes it anew;
    unless `by_hand`: then only `connect` does, for owners that must prepare a new connection first."""

    def __init__(self, config: RedisConfig, *, by_hand: bool = False) -> None:
        self.config = config
        self._by_hand = by_hand
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    async def connect(self) -> None:
        """Raises RedisUnreachable."""
        await self.close()
        connection = self.config.connection()
        try:
            async with asyncio.timeout(bounds.REDIS_CONNECT_MAX_S):
                await connection.connect()  # type: ignore[no-untyped-call]
        except (RedisError, OSError, TimeoutError) as error:
            await connection.disconnect(nowait=True)
            raise self._unreachable(error) from None
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._connection = connection

    async def call(self, *command: Argument, timeout_s: float = bounds.LOG_REPLY_MAX_S) -> Reply:
        """One command, connecting if need be. Raises RedisUnreachable, or ResponseError for what Redis refuses."""
        reply = (await self.pipeline([command], timeout_s))[0]
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def pipeline(
        self, commands: Sequence[Sequence[Argument]], timeout_s: float = bounds.LOG_REPLY_MAX_S
    ) -> list[Reply | ResponseError]:
        """All commands in one round trip. Raises RedisUnreachable; then it is unknown which of them were executed."""
        async with self._lock:
            if self._connection is None:
                if self._by_hand:
                    raise RedisUnreachable(f"Redis at {self.config.address}: the connection was lost")
                await self.connect()
            connection = self._connection
            assert connection is not None
            try:
                async with asyncio.timeout(timeout_s):
                    await connection.send_packed_command([_pack(tuple(command)) for command in commands])
                    return [await self._reply(connection) for _ in commands]
            except (RedisError, OSError, TimeoutError) as error:
                await self.close()
                raise self._unreachable(error) from None
            except BaseException:
                await self.close()
                raise

    async def write(
        self, commands: Sequence[Sequence[Argument]], timeout_s: float = bounds.LOG_REPLY_MAX_S
    ) -> list[Reply | ResponseError]:
        """As pipeline, for what is acknowledged to anybody: returns when enough replicas have it."""
        return await self.pipeline(commands, timeout_s)

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.disconnect(nowait=True)

    async def _reply(self, connection: Connection) -> Reply | ResponseError:
        try:
            return await connection.read_response()  # type: ignore[no-any-return]
        except BusyLoadingError:
            raise
        except ResponseError as error:
            return error

    def _unreachable(self, error: BaseException) -> RedisUnreachable:
        if isinstance(error, AuthenticationError):
            cause = "it refuses the user or password"
        elif isinstance(error, TimeoutError):
            cause = "no answer in time"
        else:
            cause = str(error) or type(error).__name__
        return RedisUnreachable(f"Redis at {self.config.address}: {cause}")


class RedisLinks:
    """Connections by hash tag. `prepare` runs on every new one before anybody gets it."""

    def __init__(self, config: RedisConfig, prepare: Callable[[RedisLink], Awaitable[None]] | None = None) -> None:
        self._link = RedisLink(config, by_hand=True)
        self._prepare = prepare
        self._connecting = asyncio.Lock()

    async def of(self, key: str) -> RedisLink:
        """The connected link to the server that has the key. Raises RedisUnreachable."""
        async with self._connecting:
            if not self._link.connected:
                await self._link.connect()
                if self._prepare is not None:
                    try:
                        await self._prepare(self._link)
                    except BaseException:
                        await self._link.close()
                        raise
            return self._link

    async def close(self) -> None:
        await self._link.close()
