"""Links to Redis of any kind: one server, a primary with sentinels, a cluster.

A link is one connection to the current server. It looks up which server that is at each connect (topology.py), so a
failover is just a lost connection. The connection is also closed if the server turns out to be the wrong one (a demoted
primary, a node that gave a hash slot away) or can't serve now (it is loading, or its cluster is down).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from flockmq import bounds
from flockmq.redis.connection import Argument, RedisConfig, RedisConnection, Reply, unreachable
from flockmq.redis.errors import RedisUnreachable, StorageUnavailable
from flockmq.redis.topology import SlotMap, open_primary, slot_map
from flockmq.redis.url import RedisServer

__all__ = ["Argument", "RedisConfig", "RedisLink", "RedisLinks", "Reply"]

_WRONG_SERVER: Final = (AskError, TryAgainError, ClusterDownError, ReadOnlyError, NoPermissionError)
"""In redis-py MOVED is a subclass of ASK, and MASTERDOWN of CLUSTERDOWN."""
_SET_BARRIER: Final = "#!lua flags=allow-oom\nredis.call('SET', KEYS[1], '')"
"""It may write when Redis is full, so that writes which a full Redis accepted can be acknowledged."""


class RedisLink:
    """A connection for one caller at a time. After any error it is closed, and the next command opens it again.
    `by_hand`: only `connect` opens it, for owners that must prepare a new connection first.

    `key` is any key with the hash tag that the link is for. In a cluster it selects the master.
    """

    def __init__(self, config: RedisConfig, key: str = "", *, by_hand: bool = False) -> None:
        self.config = config
        self.key = key
        self._by_hand = by_hand
        self._connection: RedisConnection | None = None
        self._server: RedisServer | None = None
        self._moved_to: RedisServer | None = None
        self._lock = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    @property
    def connection(self) -> RedisConnection | None:
        """The current one, for `pipeline`."""
        return self._connection

    @property
    def address(self) -> str:
        """For messages."""
        return str(self._server or self.config.address)

    async def connect(self, server: RedisServer | None = None) -> None:
        """Connect to `server`, or else to the current one. Raises RedisUnreachable."""
        await self.close()
        self._server, self._connection = await self._open(server)

    async def call(self, *command: Argument, timeout_s: float = bounds.LOG_REPLY_MAX_S) -> Reply:
        """Send one command; connect first if necessary. Raises RedisUnreachable, or ResponseError if the command is
        refused."""
        reply = (await self.pipeline([command], timeout_s))[0]
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    async def pipeline(
        self,
        commands: Sequence[Sequence[Argument]],
        timeout_s: float = bounds.LOG_REPLY_MAX_S,
        *,
        on: RedisConnection | None = None,
        apart: bool = False,
    ) -> list[Reply | ResponseError]:
        """Send all commands in one round trip. `on`: only on this connection, for callers that go on with a cursor: a
        server that was restarted, or another one, doesn't know it. `timeout_s`: of silence; a long reply may arrive
        slowly. `apart`: a command whose hash slot is just being moved (`is_moving`) is refused alone. Raises
        RedisUnreachable; then it is unknown which were executed."""
        async with self._lock:
            if on is not None and self._connection is not on:
                raise RedisUnreachable(f"Redis at {self.address}: the connection was lost")
            if self._connection is None:
                if self._by_hand:
                    raise RedisUnreachable(f"Redis at {self.address}: the connection was lost")
                await self.connect()
            connection, server = self._connection, self._server
            assert connection is not None
            assert server is not None
            try:
                replies = await connection.exchange(commands, timeout_s)
                for reply in replies:
                    if isinstance(reply, ResponseError) and _is_over(reply) and not (apart and is_moving(reply)):
                        raise reply
            except (RedisError, OSError, TimeoutError) as error:
                if isinstance(error, MovedError) and error.host:
                    self._moved_to = RedisServer(error.host, error.port)
                await self.close()
                raise unreachable(server, error) from None
            except BaseException:
                await self.close()
                raise
            return replies

    async def write(
        self,
        commands: Sequence[Sequence[Argument]],
        timeout_s: float = bounds.LOG_REPLY_MAX_S,
        *,
        repeats_write: bool = False,
        apart: bool = False,
    ) -> list[Reply | ResponseError]:
        """`pipeline` for writes that are acknowledged to a client or node. It returns when `min_replicas` replicas have
        these writes and all earlier ones. So the answer to a repeat that wrote nothing counts as well. `repeats_write`:
        each accepted command writes something, even as a repeat, so no extra write is needed. `apart`: as in
        `pipeline`. Raises StorageUnavailable if too few replicas have the writes in time: the commands were executed,
        and may be sent again."""
        wanted = self.config.min_replicas
        if not wanted:
            return await self.pipeline(commands, timeout_s, apart=apart)
        wait_s = self.config.wait_timeout_s
        # WAIT is about the last write of this connection, and a repeat may write nothing. So always write something.
        barrier: list[Sequence[Argument]] = [("WAIT", wanted, int(wait_s * 1000))]
        if not repeats_write:
            barrier.insert(0, ("EVAL", _SET_BARRIER, 1, _barrier_key(self.key)))
        replies = await self.pipeline([*commands, *barrier], timeout_s + wait_s, apart=apart)
        for reply in replies[len(commands) :]:
            if isinstance(reply, ResponseError):
                raise StorageUnavailable(f"Redis at {self._server}: {reply}")
        replicas = replies[-1]
        assert isinstance(replicas, int)
        if replicas < wanted:
            if self.config.parsed_url.kind == "sentinel":  # it may be a former primary: ask the sentinels again
                await self.close()
            raise StorageUnavailable(
                f"Redis at {self._server}: {replicas} of the {wanted} replicas that redis.min_replicas asks for had "
                f"the write within {wait_s:g} s"
            )
        return replies[: len(commands)]

    async def replicated(self) -> None:
        """Return when `min_replicas` replicas have all earlier writes of this server. Raises StorageUnavailable."""
        await self.write([])

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _open(self, server: RedisServer | None) -> tuple[RedisServer, RedisConnection]:
        parsed_url = self.config.parsed_url
        moved_to, self._moved_to = self._moved_to, None
        if server is None and parsed_url.kind == "sentinel":
            return await open_primary(self.config)
        if server is None and parsed_url.kind == "cluster":
            server = moved_to or (await slot_map(self.config)).master_of(self.key)
        server = server or parsed_url.servers[0]
        return server, await self.config.open(server)


class RedisLinks:
    """Links by hash tag: one in all, or one to each master of a cluster. Several callers may share them.

    Invariant: an unreachable master delays only callers that ask for its own keys.
    """

    def __init__(self, config: RedisConfig, prepare: Callable[[RedisLink], Awaitable[None]] | None = None) -> None:
        self._config = config
        self._is_cluster = config.parsed_url.kind == "cluster"
        self._prepare = prepare
        self._slots = SlotMap(())
        self._links: dict[RedisServer | None, RedisLink] = {}
        self._connecting: dict[RedisLink, tuple[RedisServer | None, asyncio.Lock]] = {}

    async def of(self, key: str) -> RedisLink:
        """The link to the server that has the key now, connected and prepared. Call it again for each pipeline: after a
        failover or a moved hash slot the old link raises RedisUnreachable, and this returns the new one. Raises
        RedisUnreachable."""
        link = self.find(key)
        if not link.connected:
            await self.look_up()
            link = self.find(key)
            await self.connect(link, key)
        return link

    async def look_up(self) -> None:
        """Ask a cluster which master has which keys now. Raises RedisUnreachable."""
        if self._is_cluster:
            self._slots = await slot_map(self._config)

    def find(self, key: str) -> RedisLink:
        """The link to the server that had the key at the last lookup, connected or not. If no master has the key, the
        link can't be connected."""
        server = self._slots.find(key) if self._is_cluster else None
        link = self._links.get(server)
        if link is None:
            link = self._links[server] = RedisLink(self._config, by_hand=True)
            self._connecting[link] = server, asyncio.Lock()
        return link

    async def connect(self, link: RedisLink, key: str) -> None:
        """Connect and prepare a link that `find` returned for the key. Raises RedisUnreachable."""
        server, lock = self._connecting[link]
        async with lock:
            if link.connected:
                return
            link.key = key
            await link.connect(server)
            try:
                if self._prepare is not None:
                    await self._prepare(link)
            except BaseException:
                await link.close()
                raise

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()
        self._links.clear()
        self._connecting.clear()


def is_moving(error: ResponseError) -> bool:
    """True if the hash slot of a command's keys is just being moved to another master: some are there by now."""
    return isinstance(error, TryAgainError | AskError) and not isinstance(error, MovedError)


def _is_over(error: ResponseError) -> bool:
    """True if the connection must be made anew: another server is the right one now, this one can't serve, or our Lua
    functions are missing or old there."""
    text = str(error)
    return isinstance(error, _WRONG_SERVER) or text.startswith("UNBLOCKED") or text.endswith("Function not found")


def _barrier_key(key: str) -> str:
    """A key on the same server as `key`."""
    start = key.find("{") + 1
    end = key.find("}", start)
    tag = key[start:end] if start and end > start else key
    return f"flockmq:{{{tag}}}:barrier"
