"""Waits until Redis can't lose any more what this node's tables have: until enough cores have it that every later
generation of the log has it (generation.py).

A writer writes again what Redis lost, but behind what others have written by then. So whoever must know that the log's
order stays asks here. It costs a question to the cores, which mostly have it by then. Callers that wait at the same
time share one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from flockmq import bounds, tasks
from flockmq.redis.errors import StorageError, StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogStopping
from flockmq.rlog.generation import needed_to_keep
from flockmq.rlog.ports import VotePort

log = logging.getLogger(__name__)


class LossBarrier:
    """The barrier of one shard. `applied` returns the position of this node's tables; `counts`: whether this node is a
    core whose tables count."""

    def __init__(
        self, shard: str, votes: VotePort, applied: Callable[[], StreamId], counts: Callable[[], bool]
    ) -> None:
        self._shard = shard
        self._votes = votes
        self._applied = applied
        self._counts = counts
        self._waiting: list[asyncio.Future[StreamId]] = []
        self._since = 0.0
        """Since when the first of them waits."""
        self._asking: asyncio.Task[None] | None = None

    def wait(self) -> asyncio.Future[StreamId]:
        """The future gets a position up to which nothing is lost, once that includes what the tables have now; or
        StorageUnavailable. If they had lost that by then, the position is of what they went on with."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            self._since = loop.time()
        done: asyncio.Future[StreamId] = loop.create_future()
        self._waiting.append(done)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
        return done

    async def stop(self) -> None:
        await tasks.end(self._asking)
        self._answer(self._waiting, LogStopping("this node is stopping"))

    async def _ask(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            answer: StreamId | StorageError = LogStopping("this node is stopping")
            try:
                async with asyncio.timeout_at(self._since + bounds.LOG_WRITE_DEADLINE_S):
                    answer = await self._reached()
            except TimeoutError:
                answer = StorageUnavailable(
                    f"shard {self._shard}: too few cores had it within {bounds.LOG_WRITE_DEADLINE_S:g} s"
                )
            except Exception as error:  # otherwise its callers would wait for good
                log.exception("shard %s: cores can't be asked how far they are", self._shard)
                answer = StorageUnavailable(f"this node failed: {error!r}")
            finally:
                self._answer(waiting, answer)

    async def _reached(self) -> StreamId:
        position, retry_s = self._applied(), bounds.LOG_RETRY_MIN_S
        while True:
            needed = needed_to_keep(self._votes.cores) - self._counts()
            reached = await self._votes.have_reached(self._shard, position, needed)
            if position.generation != self._applied().generation:
                position = self._applied()
            elif reached:
                return position
            else:
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, bounds.LINK_LOOK_S)

    @staticmethod
    def _answer(waiting: list[asyncio.Future[StreamId]], answer: StreamId | StorageError) -> None:
        for done in waiting:
            if done.done():
                continue
            if isinstance(answer, StorageError):
                done.set_exception(answer)
            else:
                done.set_result(answer)
