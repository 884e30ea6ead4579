"""Rows of purged owners are freed in the background, whatever becomes of those who are told."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from flockmq.rlog.entry import PURGE, PUT
from flockmq.rlog.schema import ROUTE, ROUTES
from flockmq.rlog.sweeper import Sweeper
from flockmq.rlog.tables import Tables


class Told:
    """What a listener was told is gone; it fails once."""

    def __init__(self) -> None:
        self.gone: set[bytes] = set()
        self.errors: list[Exception] = [ValueError("an index that is wrong")]

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        return None

    def delete(self, key: tuple[bytes, str], old: None) -> None:
        self.gone.add(key[0])
        if len(self.gone) > 900 and self.errors:  # amid the background's work
            raise self.errors.pop()

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        raise AssertionError("nothing is replaced")


async def done(sweeper: Sweeper) -> None:
    while sweeper._task is not None:  # noqa: ASYNC110 - it ends by itself
        await asyncio.sleep(0)


async def test_an_error_does_not_end_the_sweeping_for_good(caplog: pytest.LogCaptureFixture) -> None:
    tables, told = Tables(), Told()
    tables.routes.listeners.append(told)
    filters = [b"f/%d" % number for number in range(1000)]
    shard = tables.shards[ROUTE]
    shard.apply_runs([(ROUTES.number, PUT, "a@1", filters, [b""] * 1000), (0, PURGE, "a@1", [], [])])
    swept: list[int] = []
    sweeper = Sweeper(tables, lambda _: swept.append(len(told.gone)))
    sweeper.sweep_if_needed()
    async with asyncio.timeout(10):
        await done(sweeper)
        assert "ValueError: an index that is wrong" in caplog.text
        sweeper.sweep_if_needed()
        await done(sweeper)
    assert told.gone == set(filters)
    assert swept[-1] == len(filters), "who looks after the last step finds all gone"
    assert not shard.sweep()


async def test_nobody_is_told_of_a_sweep_where_nothing_was_purged() -> None:
    tables = Tables()
    swept: list[str] = []
    sweeper = Sweeper(tables, lambda shard: swept.append(shard.name))
    shard = tables.shards[ROUTE]
    shard.apply_runs([(ROUTES.number, PUT, "a@1", [b"f"], [b""])])
    sweeper.sweep_if_needed()
    assert swept == []
    shard.apply_runs([(0, PURGE, "a@1", [], [])])
    for _ in range(2):
        sweeper.sweep_if_needed()
    assert swept == [ROUTE]
