"""Waiting until the own tables are where the log ended: by fakes of both."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisConfig
from flockmq.rlog.entry import START, StreamId
from flockmq.rlog.read_barrier import ReadBarrier
from flockmq.rlog.schema import ROUTE


class Log:
    """It ends at 1-9, and the tables are somewhere before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.applied = self.log_end = START
        self.ends: list[bytes] = []
        """The next answers."""
        self.asked, self.closed = asyncio.Event(), asyncio.Event()
        self.catch_up = ReadBarrier(
            ROUTE, RedisConfig("redis://127.0.0.1:1"), lambda: self.applied, lambda: self.log_end
        )
        monkeypatch.setattr(self.catch_up._link, "call", self.call)
        monkeypatch.setattr(self.catch_up._link, "close", self.close)

    async def call(self, *command: str | int) -> list[object]:
        self.asked.set()
        return [[self.ends.pop(0) if self.ends else b"1-9", [b"c", b""]]]

    async def close(self) -> None:
        self.closed.set()


@pytest.fixture
async def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


async def test_it_waits_for_the_end_of_the_log(log: Log) -> None:
    waiting = asyncio.ensure_future(log.catch_up.wait())
    await log.asked.wait()
    for sequence in (8, 9):
        assert not waiting.done()
        log.applied = StreamId(1, sequence)
        log.catch_up.moved()
    await asyncio.wait_for(waiting, 10)
    assert not log.catch_up._waiting


@pytest.mark.parametrize("applied", [StreamId(1, 150), StreamId(2, 5)])
async def test_an_end_before_what_is_known_of_the_log_is_a_former_primarys(log: Log, applied: StreamId) -> None:
    """Which was frozen, and answers on a connection that lay idle since. The tables may be at its end, too."""
    log.applied, log.log_end = applied, StreamId(2, 5)
    log.ends[:] = [b"1-150", b"2-6"]
    waiting = asyncio.ensure_future(log.catch_up.wait())
    await asyncio.wait_for(log.closed.wait(), 10)
    assert not waiting.done()
    log.asked.clear()
    await asyncio.wait_for(log.asked.wait(), 10)
    log.applied = StreamId(2, 6)
    log.catch_up.moved()
    await asyncio.wait_for(waiting, 10)


async def test_nothing_is_kept_of_those_who_gave_up(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_WRITE_DEADLINE_S", 0.01)
    for _ in range(3):
        with pytest.raises(StorageUnavailable, match="its end was not reached"):
            await log.catch_up.wait()
    assert not log.catch_up._waiting
