"""One connection to one server: how it is made, and which error each failure becomes.

redis-py's `Connection` with hiredis does the protocol. Its clients and pools aren't used: the log must know when a
connection is new (Redis may have restarted in between), needs raw replies, and must resend commands itself. Passwords
and certificates are read at each connect, so replaced files are used.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import msgspec
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError, RedisError, ResponseError

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.pem_files import unreadable
from flockmq.redis.errors import RedisRefused, RedisUnreachable
from flockmq.redis.redis_py import HearingParser, TcpConnection, TlsConnection, UnixConnection
from flockmq.redis.url import RedisServer, RedisUrl, parse_redis_url

Argument: TypeAlias = bytes | str | int
Reply: TypeAlias = "bytes | int | list[Reply] | None"
_pack = cast(Callable[[tuple[Argument, ...]], bytes], pack_command)  # its stub is for one-tuples


class RedisConfig(msgspec.Struct, frozen=True):
    """Where Redis is, how a node authenticates, and when a write counts."""

    url: str
    """Any kind of URL that url.py knows."""
    username: str | None = None
    password: str | None = None
    password_file: Path | None = None
    sentinel_password_file: Path | None = None
    cacertfile: Path | None = None
    """PEM: the CAs of the servers' certificates. None: those that the system trusts."""
    certfile: Path | None = None
    keyfile: Path | None = None
    min_replicas: int = 0
    """How many replicas must have a write before it is acknowledged."""
    wait_timeout_s: float = 1.0

    @property
    def parsed_url(self) -> RedisUrl:
        """Raises RedisRefused if the URL is invalid."""
        try:
            return parse_redis_url(self.url)
        except ValueError as error:
            raise RedisRefused(f"redis.url {error}") from None

    @property
    def address(self) -> str:
        """For messages: without user and password."""
        return str(self.parsed_url)

    def by_server(self, keys: Iterable[str]) -> list[list[str]]:
        """Group the keys so that each group is certainly on one server. Without a Redis Cluster that is one group."""
        return [[key] for key in keys] if self.parsed_url.kind == "cluster" else [list(keys)]

    async def open(self, server: RedisServer, *, to_sentinel: bool = False) -> RedisConnection:
        """Connect and authenticate. Raises RedisUnreachable, RedisRefused."""
        return await _open(self, server, to_sentinel)


class RedisConnection:
    """A connection to one server, by redis-py."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection

    async def exchange(self, commands: Sequence[Sequence[Argument]], timeout_s: float) -> list[Reply | ResponseError]:
        """Send all commands in one round trip. Raises TimeoutError if nothing arrives for `timeout_s`, or if replies
        that keep arriving take longer than REDIS_REPLIES_MAX_S. Raises redis-py's errors if the connection can't be
        used any more."""
        parser = self._connection._parser
        assert isinstance(parser, HearingParser)
        loop = asyncio.get_running_loop()
        latest = loop.time() + max(timeout_s, bounds.REDIS_REPLIES_MAX_S)
        async with asyncio.timeout(timeout_s) as silence:
            parser.on_bytes = lambda: silence.reschedule(min(loop.time() + timeout_s, latest))
            try:
                await self._connection.send_packed_command([_pack(tuple(command)) for command in commands])
                return [await _reply(self._connection) for _ in commands]
            finally:
                parser.on_bytes = ignore

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


async def _open(config: RedisConfig, server: RedisServer, to_sentinel: bool) -> RedisConnection:
    parsed_url = config.parsed_url
    options: dict[str, object] = {
        "username": None if to_sentinel else config.username or parsed_url.username,
        "password": _password(config, to_sentinel),
        "db": 0 if to_sentinel else parsed_url.database,
        "protocol": 2,
        "socket_timeout": None,
        "socket_connect_timeout": bounds.REDIS_CONNECT_MAX_S,
        "driver_info": None,
        "parser_class": HearingParser,
    }
    kind: Callable[..., AbstractConnection] = TcpConnection
    if server.port:
        options |= {"host": server.host, "port": server.port}
        if parsed_url.tls:
            kind = TlsConnection
    else:
        options["path"] = server.host
        kind = UnixConnection
    connection = kind(**options)
    connect: Callable[[], Awaitable[None]] = connection.connect
    if isinstance(connection, SSLConnection):
        connection.ssl_context.context = _tls(config)
    try:
        async with asyncio.timeout(bounds.REDIS_CONNECT_MAX_S):
            await connect()
    except (RedisError, OSError, TimeoutError) as error:
        await connection.disconnect(nowait=True)
        raise unreachable(server, error, to_sentinel=to_sentinel) from None
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return RedisConnection(connection)


async def ask(config: RedisConfig, server: RedisServer, *command: Argument, to_sentinel: bool = False) -> Reply:
    """Send one command on a connection of its own. Raises RedisUnreachable, RedisRefused."""
    connection = await config.open(server, to_sentinel=to_sentinel)
    try:
        (reply,) = await connection.exchange([command], bounds.REDIS_CONNECT_MAX_S)
    except (RedisError, OSError, TimeoutError) as error:
        raise unreachable(server, error, to_sentinel=to_sentinel) from None
    finally:
        await connection.close()
    if isinstance(reply, ResponseError):
        raise unreachable(server, reply, to_sentinel=to_sentinel)
    return reply


def unreachable(server: RedisServer, error: BaseException, *, to_sentinel: bool = False) -> RedisUnreachable:
    """Translate an error of redis-py into one line that never contains the password."""
    who = f"the sentinel at {server}" if to_sentinel else f"Redis at {server}"
    prefix = "sentinel_" if to_sentinel else ""
    match error:
        case AuthenticationError(status_code="NOAUTH"):
            return RedisRefused(f"{who}: it wants a password (NOAUTH); set redis.{prefix}password_file")
        case AuthenticationError():
            keys = f"redis.{prefix}password_file" if to_sentinel else "redis.username and redis.password_file"
            return RedisRefused(f"{who}: it refuses the user or password (WRONGPASS); see {keys}")
        case NoPermissionError():
            return RedisRefused(f"{who}: its ACL doesn't let us (NOPERM): {error}")
        case TimeoutError():
            return RedisUnreachable(f"{who}: no answer in time")
    if (tls := _tls_error(error)) is not None:
        return RedisRefused(f"{who}: TLS: {tls}; see redis.cacertfile, redis.certfile and redis.keyfile")
    return RedisUnreachable(f"{who}: {_one_line(error)}")


async def _reply(connection: AbstractConnection) -> Reply | ResponseError:
    try:
        reply: Reply = await connection.read_response()
    except BusyLoadingError:
        raise
    except ResponseError as error:
        return error
    return reply


def _password(config: RedisConfig, to_sentinel: bool) -> str | None:
    file = config.sentinel_password_file if to_sentinel else config.password_file
    if file is None:
        return None if to_sentinel else config.password
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        key = "redis.sentinel_password_file" if to_sentinel else "redis.password_file"
        raise RedisRefused(f"{key}: {str(file)!r} can't be read: {_one_line(error)}") from None


def _tls(config: RedisConfig) -> ssl.SSLContext:
    for key, file in (("cacertfile", config.cacertfile), ("certfile", config.certfile), ("keyfile", config.keyfile)):
        if file is None:
            continue
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            raise RedisRefused(str(unreadable(f"redis.{key}", file, error))) from None
    try:
        context = ssl.create_default_context(cafile=config.cacertfile)
        if config.certfile is not None:
            context.load_cert_chain(config.certfile, config.keyfile, password="")
    except (ssl.SSLError, ValueError) as error:
        raise RedisRefused(
            f"redis.cacertfile, redis.certfile or redis.keyfile can't be used: {_one_line(error)}"
        ) from None
    return context


def _tls_error(error: BaseException | None) -> str | None:
    """OpenSSL's error, if that is the cause: redis-py wraps it."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of the server is refused: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return (error.reason or str(error)).lower().replace("_", " ")
        error = error.__cause__ or error.__context__
    return None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
