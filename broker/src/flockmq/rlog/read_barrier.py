"""Seeing all that was written before now: ask Redis where a shard's log ends, wait until the own tables are there.

Those who ask while a question is under way share the next one, so any number of them costs one question a round trip.
Reads only, so a replicant may. An end before what was known of the log when it was asked for is a former primary's, to
which a connection that lay idle may lead: another connection is asked.
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


class CatchUp:
    """One shard's. `applied` gives the place that the tables are at, `head` the furthest that was heard of."""

    def __init__(
        self, shard: str, config: RedisConfig, applied: Callable[[], StreamId], head: Callable[[], StreamId]
    ) -> None:
        self._shard = shard
        self._link = RedisLink(config, log_key(shard))
        self._applied = applied
        self._head = head
        self._asking: asyncio.Task[StreamId] | None = None
        self._next: asyncio.Task[StreamId] | None = None
        self._waiting: dict[asyncio.Future[None], StreamId] = {}

    async def wait(self) -> None:
        """Returns when the tables have all that was in the log when it was called. Raises StorageUnavailable."""
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
        """The tables applied something."""
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
        """One that is asked after now: the one under way was asked before, so it may miss what was written since."""
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
            head = self._head()
            try:
                reply = await self._link.call("XREVRANGE", log_key(self._shard), "+", "-", "COUNT", 1)
                end = next((entry.stream_id for entry in entries_of(reply)), START)
                if end >= head:
                    return end
                await self._link.close()
            except ResponseError as error:
                raise StorageUnavailable(f"shard {self._shard}: Redis refuses XREVRANGE: {error}") from None
            except RedisUnreachable:  # a connection that a restart of Redis left behind, or Redis is still away
                pass
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, bounds.LOG_RETRY_MAX_S)
