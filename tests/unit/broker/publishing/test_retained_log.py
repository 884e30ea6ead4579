"""Retained messages that expired leave the log as fast as it takes them, slice by slice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import cast

import pytest

from flockmq.clock import SYSTEM
from flockmq.publishing import retained_log
from flockmq.publishing.retained_feed import RetainedFeed
from flockmq.publishing.retained_log import RetainedLog
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import RetainedMessage
from flockmq.rlog.write_reasons import WriteReasons


class Log:
    """Drops what it is given when `write` is called; `slices` has how many were in each transaction."""

    def __init__(self, retained: RetainedFeed) -> None:
        self.tables = self.messages = self
        self.slices: list[int] = []
        self._retained = retained
        self._written = asyncio.Event()
        self._waiting: list[tuple[list[bytes], asyncio.Future[StreamId]]] = []

    def drop(self, topic: bytes) -> bytes:
        return topic

    def submit(self, shard: str, topics: list[bytes]) -> asyncio.Future[StreamId]:
        done: asyncio.Future[StreamId] = asyncio.get_running_loop().create_future()
        self.slices.append(len(topics))
        self._waiting.append((topics, done))
        self._written.set()
        return done

    async def write(self, error: Exception | None = None) -> None:
        """What waits for it: one transaction."""
        async with asyncio.timeout(10):
            await self._written.wait()
        self._written.clear()
        ((topics, done),) = self._waiting
        self._waiting.clear()
        if error is not None:
            done.set_exception(error)
            return
        for topic in topics:
            self._retained.delete(topic, row(1))
        done.set_result(StreamId(1, 1))

    async def is_quiet(self) -> bool:
        await asyncio.sleep(0.05)
        return not self._waiting


class Unlimited:
    """Nobody has a quota."""

    def whose(self, user: bytes | None) -> bytes | None:
        return None

    def storing(self, user: bytes | None, more_bytes: int) -> contextlib.AbstractAsyncContextManager[bool]:
        return contextlib.nullcontext(True)


def row(expires_ms: int) -> RetainedMessage:
    return RetainedMessage(b"x", 0, b"", 5, expires_ms)


def filled(expired: int, others: int) -> RetainedFeed:
    retained, later_ms = RetainedFeed(), SYSTEM.wall_ms() + 3_600_000
    for number in range(expired + others):
        retained.put(b"r/%d" % number, row(1 if number < expired else later_ms), None)
    return retained


@contextlib.contextmanager
def watched(retained: RetainedFeed, leads: Iterable[bool] = ()) -> Iterator[Log]:
    log, still = Log(retained), iter(leads)
    part = RetainedLog(
        cast(Rlog, log),
        retained,
        lambda: next(still, True),
        WriteReasons(SYSTEM).of,
        SYSTEM,
        lambda: True,
        lambda size_bytes: False,
        Unlimited(),
    )
    watching = asyncio.ensure_future(part.watch_expired())
    yield log
    watching.cancel()


@pytest.fixture(autouse=True)
def _bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_log, "RETAINED_EXPIRED_SLICE", 10)
    monkeypatch.setattr(retained_log, "RETAINED_EXPIRED_MAX", 30)


async def test_all_that_expired_leaves_at_once_a_slice_at_a_time() -> None:
    with watched(retained := filled(expired=65, others=5)) as log:
        for _ in range(7):
            await log.write()
        assert await log.is_quiet()
    assert log.slices == [10, 10, 10, 10, 10, 10, 5]
    assert len(retained.expiring) == 5


async def test_what_came_in_the_place_of_what_expired_stays() -> None:
    with watched(retained := filled(expired=25, others=0)) as log:
        await log.write()
        retained.put(b"r/24", row(SYSTEM.wall_ms() + 3_600_000), row(1))
        retained.put(b"r/23", row(0), row(1))
        await log.write()
        await log.write()
        assert await log.is_quiet()
    assert log.slices == [10, 10, 3]
    assert list(retained.expiring) == [b"r/24"]


async def test_while_the_log_takes_nothing_it_is_not_tried_on_at_once() -> None:
    with watched(retained := filled(expired=65, others=0)) as log:
        await log.write()
        await log.write(StorageUnavailable("nobody takes it"))
        assert await log.is_quiet()
    assert len(retained.expiring) == 55


async def test_who_leads_no_more_goes_no_further() -> None:
    with watched(filled(expired=65, others=0), leads=[True, True, False]) as log:
        await log.write()
        await log.write()
        assert await log.is_quiet()
    assert log.slices == [10, 10]


async def test_who_does_not_lead_leaves_it_to_the_leader() -> None:
    with watched(filled(expired=65, others=0), leads=[False]) as log:
        assert await log.is_quiet()
    assert log.slices == []
