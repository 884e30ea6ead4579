"""Redis is killed, emptied, full or without its functions: nothing is lost, and the log goes on."""

import asyncio
from typing import Any

import pytest

from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisLink
from flockmq.rlog.entry import StreamId
from flockmq.rlog.generation import Life
from flockmq.rlog.reading import log_key
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import (
    CLUSTER,
    NODES,
    RETAINED,
    ROUTE,
    SHARDS,
    SLOTS,
    NodeInfo,
)
from integration.rlog.steps import CountedPort, agree, core_of, retained, route, start_tails, stop_tails


async def test_nothing_is_lost_when_redis_is_killed_and_comes_back(nodes, valkey) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)

    async def write(numbers: range) -> None:
        for number in numbers:
            await replicant.write(ROUTE, [route(replicant, number)])

    await write(range(50))
    during = asyncio.create_task(write(range(50, 250)))
    await core.write(ROUTE, [route(core, 0)])
    valkey.kill()
    await asyncio.to_thread(valkey.restart)
    await during
    await agree(ROUTE, core, replicant)
    assert {key for (key, _), _ in core.tables.routes.items()} == {b"f/%d" % n for n in range(250)}
    assert core.applied(ROUTE).generation == 2
    assert port.bootstraps == len(SHARDS), "only the first: everybody tailed on"


async def test_an_empty_redis_is_seeded_from_the_core_s_tables(nodes, valkey) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    await replicant.write(ROUTE, [route(replicant, n) for n in range(100)])
    await agree(ROUTE, core, replicant)
    valkey.kill()
    await asyncio.to_thread(valkey.restart, empty=True)
    await replicant.write(ROUTE, [route(replicant, 100)])
    await agree(ROUTE, core, replicant)
    assert len(core.tables.routes) == 101
    assert core.applied(ROUTE).generation == 2
    assert port.bootstraps == len(SHARDS), "it stood exactly where the new log begins"


async def test_what_a_writer_had_and_no_core_is_written_again(nodes, valkey) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    await replicant.write(ROUTE, [route(replicant, n) for n in range(100)])
    await agree(ROUTE, core, replicant)
    await stop_tails(core)
    for number in range(100, 110):
        await replicant.write(ROUTE, [route(replicant, number)])
    assert len(core.tables.routes) == 100
    valkey.kill()
    await asyncio.to_thread(valkey.restart, empty=True)
    start_tails(core)
    while len(core.tables.routes) != 110:  # noqa: ASYNC110 - the replicant writes them by itself
        await asyncio.sleep(0.01)
    await agree(ROUTE, core, replicant)
    assert replicant.refused is None
    await replicant.write(ROUTE, [route(replicant, 110)])


async def test_a_generation_promised_to_a_core_that_went_away_is_begun_by_another(nodes) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    report = await core_of(core).report(ROUTE, 9)
    assert (report.granted, report.promised, report.position) == (True, 9, core.applied(ROUTE))
    assert not (await core_of(core).report(ROUTE, 9)).granted
    await core.write(ROUTE, [route(core, 2)])
    assert core.applied(ROUTE).generation == 10
    await core.stop()
    again = await nodes.core()
    assert (await core_of(again).report(ROUTE, 0)).promised == 10


async def test_a_core_s_snapshot_seeds_an_empty_redis(nodes, valkey) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, n) for n in range(100)])
    await core.stop()
    valkey.kill()
    await asyncio.to_thread(valkey.restart, empty=True)
    again = await nodes.core()
    assert len(again.tables.routes) == 100
    assert again.tables.routes.nodes(b"f/1") == {core.incarnation}
    await again.write(ROUTE, [route(again, 1)])
    assert again.tables.routes.nodes(b"f/1") == {core.incarnation, again.incarnation}


BUSY = """
local function now() local time = redis.call('TIME'); return time[1] * 1000 + time[2] / 1000 end
local ends = now() + ARGV[1]
while now() < ends do end
"""


async def test_a_core_notices_an_emptied_redis_also_after_it_was_busy(nodes, valkey, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_WATCH_EVERY_S", 0.01)
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    link = RedisLink(valkey.config)
    await link.call("CONFIG", "SET", "busy-reply-threshold", 10)
    await link.call("EVAL", BUSY, 0, 500)
    await link.call("FLUSHALL")
    async with asyncio.timeout(10):
        while core.applied(ROUTE).generation < 2:  # noqa: ASYNC110 - nobody writes
            await asyncio.sleep(0.01)
    await link.close()


async def test_a_full_redis_is_trimmed_and_purged_and_nodes_come_and_go(nodes, valkey) -> None:
    core = await nodes.core()
    gone = await nodes.replicant(core_of(core), "gone")
    await gone.write(ROUTE, [route(gone, 1)])
    link = RedisLink(valkey.config)
    await link.call("CONFIG", "SET", "maxmemory", "1kb")
    await core_of(core).committer.trim(ROUTE, core.applied(ROUTE), StreamId(1, 1))
    await core_of(core).checkpoint(ROUTE, StreamId(1, 1))
    await core_of(core).purge(gone.incarnation, StreamId(1, 1))
    await core.catch_up(ROUTE)
    assert len(core.tables.routes) == 0
    assert await link.call("XLEN", log_key(ROUTE)) == 3, "the last route, the checkpoint and the purge"
    waiting = core.submit(ROUTE, [route(core, 1)])
    other = await nodes.core("other", core_of(core))
    info = NodeInfo("other", "core", "127.0.0.1", 1, 1, "1")
    await other.write(CLUSTER, [NODES.put(other.incarnation, info), SLOTS.put(1, other.incarnation)])
    assert not waiting.done()
    await link.call("CONFIG", "SET", "maxmemory", "0")
    await link.close()
    await waiting


async def test_a_redis_without_the_functions_is_given_them_anew(nodes, valkey) -> None:
    """Another version's are there, or it was full when the core came."""
    core = await nodes.core()
    link = RedisLink(valkey.config)
    await link.call("FUNCTION", "FLUSH")
    async with asyncio.timeout(5):
        await core.write(ROUTE, [route(core, 1)])
    await link.call("CONFIG", "SET", "maxmemory", "1kb")
    await link.call("FUNCTION", "FLUSH")
    waiting = core.submit(CLUSTER, [SLOTS.put(1, core.incarnation)])
    await asyncio.wait([waiting], timeout=0.5)
    assert not waiting.done(), "a full Redis takes no functions"
    await link.call("CONFIG", "SET", "maxmemory", "0")
    async with asyncio.timeout(5):
        await waiting
    await link.close()


async def test_a_full_redis_that_lost_its_log_is_given_a_new_one(nodes, valkey) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    link = RedisLink(valkey.config)
    await link.call("CONFIG", "SET", "maxmemory", "1kb")
    await link.call("FLUSHALL")
    await link.close()
    await core.write(CLUSTER, [SLOTS.put(1, core.incarnation)])
    async with asyncio.timeout(10):
        while core.applied(ROUTE).generation < 2:  # noqa: ASYNC110 - nobody writes to it
            await asyncio.sleep(0.01)


async def entries_read(core: Rlog, after: StreamId) -> list[StreamId]:
    reading = core._replica.read(ROUTE, after, core.applied(ROUTE))
    return [entry.stream_id async for entry in reading]


async def test_a_log_that_was_trimmed_or_seeded_anew_is_never_read_with_a_hole(nodes, valkey) -> None:
    core = await nodes.core()
    for number in range(20):
        await core.write(ROUTE, [route(core, number)])
    end = core.applied(ROUTE)
    link = RedisLink(valkey.config)
    await link.call("XTRIM", log_key(ROUTE), "MINID", "1-10")
    assert await entries_read(core, StreamId(1, 9)) == [StreamId(1, n) for n in range(10, end.sequence + 1)]
    with pytest.raises(
        StorageUnavailable, match="route: Redis holds not all of the log from 1-8: the next entry is 1-10"
    ):
        await entries_read(core, StreamId(1, 8))
    await link.call("FLUSHALL")
    await link.close()
    await core.write(ROUTE, [route(core, 1)])
    seeded = await entries_read(core, end)
    assert seeded[0] == (2, 0)
    assert seeded[-1] == core.applied(ROUTE)
    with pytest.raises(StorageUnavailable, match=f"Redis holds not all of the log from 1-9: generation 2 .* {end}"):
        await entries_read(core, StreamId(1, 9))


async def test_what_was_refused_as_its_node_rejoined_is_not_in_the_next_generation(nodes, valkey, monkeypatch) -> None:
    """The core has the append still queued when it finds out that Redis restarted, and then sends it."""
    node = await nodes.core()
    core = core_of(node)
    append, register, settle = core.append, core.register, core._election.settle
    is_in_doubt, is_queued, is_settling, goes_on, is_retired = (asyncio.Event() for _ in range(5))

    async def noted(*arguments: Any) -> StreamId:
        is_queued.set()
        try:
            return await append(*arguments)
        except StorageUnavailable:
            is_queued.clear()
            is_in_doubt.set()
            raise

    async def registered(*arguments: Any) -> StreamId:
        is_retired.set()
        return await register(*arguments)

    async def slow(link: RedisLink, shard: str, run_id: str) -> Life:
        """As where the other cores' reports take a moment."""
        if shard == RETAINED:
            is_settling.set()
            await goes_on.wait()
        return await settle(link, shard, run_id)

    monkeypatch.setattr(core, "append", noted)
    monkeypatch.setattr(core, "register", registered)
    monkeypatch.setattr(core._election, "settle", slow)
    valkey.kill()
    written = node.submit(RETAINED, [retained(b"topic")])
    async with asyncio.timeout(20):
        await is_in_doubt.wait()
        await asyncio.to_thread(valkey.restart)
        await is_settling.wait()
        await is_queued.wait()
        rejoining = asyncio.create_task(node.rejoin("core@00000002"))  # purged in `cluster`, and not yet in `retained`
        await is_retired.wait()
        goes_on.set()
        await asyncio.wait([written])
        await rejoining
        await node.write(RETAINED, [retained(b"later")])
    assert (node.tables.messages.get(b"topic") is None) == (written.exception() is not None)
