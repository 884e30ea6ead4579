"""A linearizable read, as Raft's ReadIndex: ask Redis where a shard's log ends, then wait until this node's tables are
there.

Callers that wait at the same time share one query to Redis. It is a read, so replicants may do it too. If Redis answers
with an end before the position that this node already knows, the connection leads to an old primary: it is closed, and
the query is sent on a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.redis.errors import RedisUnreachable, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.reading import entries_of, log_key


class ReadBarrier:
    """The barrier of one shard. `applied` returns the position of this node's tables, `log_end` the furthest known
    position."""

    def __init__(
        self, shard: str, config: RedisConfig, applied: Callable[[], StreamId], log_end: Callable[[], StreamId]
    ) -> None:
        self._shard = shard
        self._link = RedisLink(config, log_key(shard))
        self._applied = applied
        self._log_end = log_end
        self._asking: asyncio.Task[StreamId] | None = None
        self._next: asyncio.Task[StreamId] | None = None
        self._waiting: dict[asyncio.Future[None], StreamId] = {}

    async def wait(self) -> None:
        """Return when the tables have everything that was in the log when it was called. Raises StorageUnavailable."""
        try:
            async with asyncio.timeout(bounds.LOG_WRITE_DEADLINE_S):
                end = await asyncio.shield(self._question())
                if self._applied() < end:
                    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting[reached] = end
                    try:
                        await reached
                    finally:
                        self._waiting.pop(reached, None)
        except TimeoutError:
            raise StorageUnavailable(
                f"shard {self._shard}: its end was not reached within {bounds.LOG_WRITE_DEADLINE_S:g} s"
            ) from None

    def moved(self) -> None:
        """This node's tables have applied something: wake the callers whose position is reached."""
        if not self._waiting:
            return
        applied = self._applied()
        for reached, end in self._waiting.items():
            if end <= applied and not reached.done():
                reached.set_result(None)

    async def stop(self) -> None:
        for task in (self._asking, self._next):
            if task is not None:
                task.cancel()
        await self._link.close()

    def _question(self) -> asyncio.Task[StreamId]:
        """A query that starts after this call. A query that is under way doesn't do: it may miss the latest writes."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
            return self._asking
        if self._next is None or self._next.done():
            self._next = asyncio.ensure_future(self._ask_after(self._asking))
        return self._next

    async def _ask_after(self, earlier: asyncio.Task[StreamId]) -> StreamId:
        await asyncio.wait([earlier])
        self._asking, self._next = self._next, None
        return await self._ask()

    async def _ask(self) -> StreamId:
        retry_s = bounds.LOG_RETRY_MIN_S
        while True:
            log_end = self._log_end()
            try:
                reply = await self._link.call("XREVRANGE", log_key(self._shard), "+", "-", "COUNT", 1)
                end = next((entry.stream_id for entry in entries_of(reply)), START)
                if end >= log_end:
                    return end
                await self._link.close()
            except ResponseError as error:
                raise StorageUnavailable(f"shard {self._shard}: Redis refuses XREVRANGE: {error}") from None
            except RedisUnreachable:  # a connection from before a restart of Redis, or Redis is still unreachable
                pass
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
