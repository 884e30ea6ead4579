"""A node that gets its tables from a core: while others write, and where the log was trimmed or can't be read."""

import asyncio
from typing import Self

import pytest

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.schema import (
    ROUTE,
    ROUTES,
    SHARDS,
)
from integration.rlog.steps import CountedPort, agree, core_of, route, start_tails, stop_tails, trimmed_below


class Filters:
    """A listener that keeps the filters of a routes table."""

    def __init__(self) -> None:
        self.keys: set[tuple[bytes, str]] = set()

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        self.keys.add(key)

    def delete(self, key: tuple[bytes, str], old: None) -> None:
        self.keys.remove(key)

    def fresh(self) -> Self:
        return type(self)()

    def swap(self, fresh: Self) -> None:
        self.keys = fresh.keys


async def test_a_node_bootstraps_while_others_write(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_SLICE_MAX_BYTES", 256)
    core = await nodes.core()
    await core.write(ROUTE, [route(core, n) for n in range(5000)])
    stop = asyncio.Event()

    async def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            key = (b"f/%d" % (number * 7 % 6000), core.incarnation)
            await core.write(ROUTE, [ROUTES.put(key, None) if number % 2 else ROUTES.delete(key)])

    writing = asyncio.create_task(churn())
    port = CountedPort(core_of(core))
    replicants = [await nodes.replicant(port, f"r{n}") for n in range(3)]
    stop.set()
    await writing
    assert port.bootstraps == 3 * len(SHARDS)
    await agree(ROUTE, core, *replicants)


async def test_a_node_that_the_log_was_trimmed_past_bootstraps(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 256)
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    filters = Filters()
    replicant.on_change("routes", filters)
    await replicant.write(ROUTE, [route(replicant, 1)])
    await stop_tails(replicant)
    await trimmed_below(core, ROUTE)
    start_tails(replicant)
    await agree(ROUTE, core, replicant)
    assert port.bootstraps == len(SHARDS) + 1
    assert filters.keys == {key for key, _ in core.tables.routes.items()}
    await replicant.write(ROUTE, [route(replicant, 2)])


async def test_a_core_that_hears_nothing_from_redis_gives_nobody_its_tables(nodes, valkey, monkeypatch) -> None:
    core = await nodes.core()

    async def tables() -> list[bytes]:
        return [frame async for frame in core_of(core).bootstrap(ROUTE)]

    assert await tables()
    await stop_tails(core)
    assert await tables()
    monkeypatch.setattr("flockmq.bounds.LOG_UNHEARD_MAX_S", 0.0)
    with pytest.raises(StorageUnavailable, match="this core has no shard 'route' in step with the log"):
        await tables()
    monkeypatch.undo()
    start_tails(core)
    await core.catch_up(ROUTE)
    assert await tables()


async def test_a_core_that_only_waits_for_the_next_entry_hears_from_redis(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_READ_BLOCK_S", 0.2)
    monkeypatch.setattr("flockmq.bounds.LOG_UNHEARD_MAX_S", 1.0)
    core = await nodes.core()
    await asyncio.sleep(1.5)
    assert all(core._replica.in_step(shard) for shard in SHARDS)


class Clumsy(Filters):
    """Fails at the first rows that it is told of, however its table is filled."""

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__()
        self.errors = errors

    def put(self, key: tuple[bytes, str], value: None, old: None) -> None:
        if self.errors:
            raise self.errors.pop()
        super().put(key, value, old)

    def fresh(self) -> Self:
        return type(self)(self.errors)


async def test_a_node_outlives_an_error_while_it_applies_the_log_or_a_bootstrap(nodes, caplog) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    clumsy = Clumsy([ValueError("the bootstrap's"), ValueError("the entry's")])
    replicant.on_change("routes", clumsy)
    await core.write(ROUTE, [route(core, 1)])
    async with asyncio.timeout(10):
        while clumsy.errors or not clumsy.keys:  # noqa: ASYNC110 - it bootstraps by itself
            await asyncio.sleep(0.01)
        await core.write(ROUTE, [route(core, 2)])
        await agree(ROUTE, core, replicant)
    assert clumsy.keys == {key for key, _ in core.tables.routes.items()}
    assert "ValueError: the entry's" in caplog.text
    assert "ValueError: the bootstrap's" in caplog.text


async def test_a_node_reads_on_after_an_error_while_it_reads(nodes, monkeypatch, caplog) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(core_of(core))
    errors: list[Exception] = [ValueError("what came isn't what was asked for")]

    def note(*_: object) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(replicant._replica._log_ends, "note", note)
    await core.write(ROUTE, [route(core, 1)])
    async with asyncio.timeout(10):
        await agree(ROUTE, core, replicant)
    assert "ValueError: what came isn't what was asked for" in caplog.text
