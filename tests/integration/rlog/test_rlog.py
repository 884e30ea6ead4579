"""The log on a real Valkey: writes are kept, once and in order, whatever dies; every node ends in the same tables."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Self

import pytest

from flockmq.redis.errors import RedisUnreachable, StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink
from flockmq.rlog.change import gather
from flockmq.rlog.core import Core
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import StreamId, encode_transaction
from flockmq.rlog.errors import LogFenced, LogFull, LogGap, LogLost, LogRefused
from flockmq.rlog.reading import log_key
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import (
    CLUSTER,
    MESSAGES,
    NODES,
    RETAINED,
    ROUTE,
    ROUTES,
    SHARDS,
    SLOTS,
    NodeInfo,
    RetainedMessage,
)
from flockmq.tasks import VitalTaskFailed


def core_of(node: Rlog) -> Core:
    assert node.core is not None
    return node.core


async def stop_tails(node: Rlog) -> None:
    for tail in node._replica._tails:
        tail.cancel()
    await asyncio.wait(node._replica._tails)


def route(node: Rlog, number: int) -> tuple[int, int, str, bytes, bytes]:
    return ROUTES.put((b"f/%d" % number, node.incarnation), None)


async def agree(shard: str, *nodes: Rlog) -> None:
    await asyncio.gather(*(node.catch_up(shard) for node in nodes))
    assert len({node.applied(shard) for node in nodes}) == 1
    assert len({str(node.tables.shards[shard].digests()) for node in nodes}) == 1


class CountedPort:
    """A core behind a link that can be cut."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.bootstraps = 0
        self.lose_answers = 0
        self.reachable = True

    async def register(self, shard: str, incarnation: str) -> StreamId:
        return await self._reached().register(shard, incarnation)

    async def append(self, shard: str, incarnation: str, first: int, transactions: Sequence[bytes]) -> StreamId:
        answer = await self._reached().append(shard, incarnation, first, transactions)
        if self.lose_answers:
            self.lose_answers -= 1
            raise StorageUnavailable("the link was lost before the answer came")
        return answer

    async def bootstrap(self, shard: str) -> AsyncGenerator[bytes]:
        self.bootstraps += 1
        async for frame in self._reached().bootstrap(shard):
            yield frame

    def _reached(self) -> Core:
        if not self.reachable:
            raise StorageUnavailable("no core can be reached")
        return self.core


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


async def test_a_write_is_in_the_own_tables_when_it_returns_and_in_all_others_soon(nodes) -> None:
    core = await nodes.core()
    first, second = await nodes.replicant(core_of(core), "r1"), await nodes.replicant(core_of(core), "r2")
    places = await asyncio.gather(*(first.write(ROUTE, [route(first, n)]) for n in range(100)))
    assert len(first.tables.routes) == 100
    assert len(set(places)) == 1, "what is written in one turn of the loop is one transaction"
    message = RetainedMessage(b"21", 0, b"", 4)
    await second.write(RETAINED, [MESSAGES.put(b"t", message)])
    assert second.tables.messages.get(b"t") == message
    await agree(ROUTE, core, first, second)
    await agree(RETAINED, core, first, second)
    assert first.tables.routes.nodes(b"f/7") == core.tables.routes.nodes(b"f/7") == {first.incarnation}


async def test_of_a_retained_message_and_a_route_written_at_once_one_sees_the_other(nodes) -> None:
    core = await nodes.core()
    subscriber, publisher = await nodes.replicant(core_of(core), "r1"), await nodes.replicant(core_of(core), "r2")
    message = RetainedMessage(b"21", 0, b"", 4)

    async def subscribe(number: int) -> bool:
        await subscriber.write(ROUTE, [route(subscriber, number)])
        assert subscriber.has_all(RETAINED, when=ROUTE), "one server has both logs, so the answer came with the route"
        return subscriber.tables.messages.get(b"f/%d" % number) is not None

    async def publish(number: int) -> bool:
        await publisher.write(RETAINED, [MESSAGES.put(b"f/%d" % number, message)])
        assert publisher.has_all(ROUTE, when=RETAINED)
        return bool(publisher.tables.routes.nodes(b"f/%d" % number))

    for number in range(200):
        first, second = (subscribe, publish) if number % 2 else (publish, subscribe)
        assert any(await asyncio.gather(first(number), second(number)))
    await publish(200)
    assert await subscribe(200), "what was acknowledged before is seen"


async def test_a_repeated_append_is_answered_with_the_id_it_got_before(nodes) -> None:
    core = core_of(await nodes.core())
    await core.register(ROUTE, "w@1")
    transactions = [
        encode_transaction("w@1", n, gather([ROUTES.put((b"f/%d" % n, "w@1"), None)]).runs) for n in (1, 2, 3)
    ]
    one = await core.append(ROUTE, "w@1", 1, transactions[:2])
    assert await core.append(ROUTE, "w@1", 1, transactions[:2]) == one
    assert await core.append(ROUTE, "w@1", 2, transactions[1:2]) == one
    both = await core.append(ROUTE, "w@1", 2, transactions[1:])
    assert both == one._replace(sequence=one.sequence + 1), "only the third is new"
    assert await core.append(ROUTE, "w@1", 1, transactions) == both


async def test_a_number_too_far_is_refused_with_the_one_expected(nodes) -> None:
    core = core_of(await nodes.core())
    await core.register(ROUTE, "w@1")
    with pytest.raises(LogGap) as gap:
        await core.append(ROUTE, "w@1", 5, [encode_transaction("w@1", 5, [])])
    assert gap.value.expected == 1


async def test_a_purged_node_s_late_write_and_its_return_are_refused(nodes) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(core_of(core))
    await replicant.write(ROUTE, [route(replicant, 1)])
    await core.write(ROUTE, [route(core, 1)])
    await core_of(core).purge(replicant.incarnation, 1)
    await core_of(core).purge(replicant.incarnation, 1)
    with pytest.raises(LogRefused, match=replicant.incarnation):
        await replicant.write(ROUTE, [route(replicant, 2)])
    assert isinstance(replicant.refused, LogRefused)
    with pytest.raises(LogRefused, match=replicant.incarnation):
        await core_of(core).register(ROUTE, replicant.incarnation)
    await agree(ROUTE, core, replicant)
    assert core.tables.routes.nodes(b"f/1") == {core.incarnation}
    assert len(core.tables.routes) == 1


async def test_of_an_incarnation_that_one_shard_refuses_no_other_goes_on_being_registered(nodes, monkeypatch) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(port := CountedPort(core_of(core)))
    purged = "replicant@00000002"
    await core_of(core).committer.purge(ROUTE, purged, StreamId(1, 1))
    registered: list[str] = []

    async def register(shard: str, incarnation: str) -> StreamId:
        if shard != ROUTE:
            await asyncio.sleep(0.1)
        registered.append(shard)
        return await core_of(core).register(shard, incarnation)

    monkeypatch.setattr(port, "register", register)
    with pytest.raises(LogRefused, match=f"{purged} is purged in the log"):
        await replicant.rejoin(purged)
    await asyncio.sleep(0.2)
    assert registered == [ROUTE]
    await replicant.rejoin("replicant@00000003")
    await replicant.write(ROUTE, [route(replicant, 1)])


async def test_a_leader_that_was_deposed_does_no_harm(nodes) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(core_of(core))
    await core_of(core).checkpoint(ROUTE, 7)
    await core.catch_up(ROUTE)
    for deed in (
        core_of(core).committer.purge(ROUTE, replicant.incarnation, StreamId(1, 6)),
        core_of(core).committer.trim(ROUTE, core.applied(ROUTE), StreamId(1, 6)),
        core_of(core).committer.checkpoint(ROUTE, StreamId(1, 6)),
    ):
        with pytest.raises(LogFenced, match="shard route: another core leads by now: its fence is 1-7"):
            await deed
    await core_of(core).committer.checkpoint(ROUTE, StreamId(2, 1))
    await replicant.write(ROUTE, [route(replicant, 1)])
    await agree(ROUTE, core, replicant)


async def test_a_checkpoint_is_the_same_place_for_everybody_and_needless_while_nothing_changes(nodes) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(core_of(core))
    await replicant.write(ROUTE, [route(replicant, 1)])
    await core_of(core).checkpoint(ROUTE, 1)
    await agree(ROUTE, core, replicant)
    checked = core.checkpoint(ROUTE)
    assert checked is not None
    assert checked == replicant.checkpoint(ROUTE)
    assert checked.position == core.applied(ROUTE)
    await core_of(core).checkpoint(ROUTE, 1)
    await core.catch_up(ROUTE)
    assert checked.position == core.applied(ROUTE)


async def test_a_write_whose_answer_is_lost_is_applied_once(nodes) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    await core.catch_up(ROUTE)
    before = core.applied(ROUTE)
    port.lose_answers = 1
    await replicant.write(ROUTE, [route(replicant, 1)])
    await replicant.write(ROUTE, [route(replicant, 2)])
    await agree(ROUTE, core, replicant)
    assert core.applied(ROUTE).sequence == before.sequence + 2


async def test_writes_wait_for_a_core_and_go_on_in_order_through_another(nodes) -> None:
    first, second = await nodes.core("c1"), await nodes.core("c2")
    port = CountedPort(core_of(first))
    replicant = await nodes.replicant(port)
    port.reachable = False
    writes = []
    for number in range(20):
        writes.append(replicant.submit(ROUTE, [route(replicant, number)]))
        await asyncio.sleep(0)
    port.core, port.reachable = core_of(second), True
    places = await asyncio.gather(*writes)
    assert places == sorted(places)
    await agree(ROUTE, first, second, replicant)
    assert len(first.tables.routes) == 20


async def test_a_write_that_no_core_takes_ends_at_the_deadline(nodes, monkeypatch) -> None:
    core = await nodes.core()
    port = CountedPort(core_of(core))
    replicant = await nodes.replicant(port)
    monkeypatch.setattr("flockmq.bounds.LOG_WRITE_DEADLINE_S", 0.05)
    port.reachable = False
    with pytest.raises(StorageUnavailable, match="shard route: not written within"):
        await replicant.write(ROUTE, [route(replicant, 1)])
    port.reachable = True
    monkeypatch.undo()
    await replicant.write(ROUTE, [ROUTES.delete((b"f/1", replicant.incarnation))])
    assert len(replicant.tables.routes) == 0, "the inverse write is ordered behind it"


async def test_a_writer_that_fails_of_a_defect_is_the_end_of_its_node(nodes, monkeypatch) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(port := CountedPort(core_of(core)))
    told = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.set_result(context["exception"]))

    async def append(*_: object) -> StreamId:
        raise ValueError("an odd answer")

    monkeypatch.setattr(port, "append", append)
    writing = asyncio.ensure_future(replicant.write(ROUTE, [route(replicant, 1)]))
    failed = await asyncio.wait_for(told, 10)
    assert isinstance(failed, VitalTaskFailed)
    assert str(failed) == "rlog-writer-route"
    writing.cancel()


async def test_writes_beyond_the_bounds_are_refused_before_they_are_kept(nodes, monkeypatch) -> None:
    core = await nodes.core()
    monkeypatch.setattr("flockmq.bounds.LOG_PENDING_MAX_BYTES", 100)
    done = [core.submit(ROUTE, [ROUTES.put((b"x" * 60, core.incarnation), None)]) for _ in range(2)]
    with pytest.raises(LogFull, match="bytes of writes wait"):
        await done[1]
    await done[0]
    ROUTES.max_rows = 1
    try:
        with pytest.raises(LogFull, match="table routes holds 1 rows"):
            await core.write(ROUTE, [route(core, 1)])
        await core.write(ROUTE, [ROUTES.delete((b"x" * 60, core.incarnation))])
    finally:
        ROUTES.max_rows = 10_000_000


async def test_a_burst_is_refused_by_what_is_written_and_not_yet_applied(nodes, monkeypatch) -> None:
    core = await nodes.core()
    ROUTES.max_rows = 10
    try:
        done = [core.submit(ROUTE, [route(core, n), route(core, n + 100)]) for n in range(20)]
        results = await asyncio.gather(*done, return_exceptions=True)
        assert [isinstance(result, LogFull) for result in results] == [False] * 5 + [True] * 15
        assert len(core.tables.routes) == 10
        await core.write(ROUTE, [ROUTES.delete((b"f/0", core.incarnation))])
        await core.write(ROUTE, [route(core, 50)])
    finally:
        ROUTES.max_rows = 10_000_000


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
    core._replica._start_tails()
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


async def trimmed_below(core: Rlog, shard: str) -> None:
    """What trim does when a retention window of entries is behind a snapshot."""
    for number in range(100):
        await core.write(shard, [route(core, number)])
    await core_of(core).snapshot(shard)
    kept_from = await core_of(core).trim(shard, core.applied(shard), 1)
    assert kept_from is not None


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
    replicant._replica._start_tails()
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
    core._replica._start_tails()
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


async def test_trimming_waits_for_the_snapshot_and_the_retention_window(nodes, monkeypatch) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    await core_of(core).snapshot(ROUTE)
    assert await core_of(core).trim(ROUTE, core.applied(ROUTE), 1) is None
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    for number in range(20):
        await core.write(ROUTE, [route(core, number)])
    durable = core_of(core).durable(ROUTE)
    assert await core_of(core).trim(ROUTE, core.applied(ROUTE), 1) == durable
    assert await core_of(core).trim(ROUTE, StreamId(1, 1), 1) == (1, 1)


async def test_snapshots_of_a_shard_are_written_one_at_a_time(nodes) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, n) for n in range(1000)])
    places = await asyncio.gather(*(core_of(core).snapshot(ROUTE) for _ in range(3)))
    assert set(places) == {core.applied(ROUTE)}


async def test_no_snapshot_stays_of_tables_that_are_wrong(nodes) -> None:
    """A core that starts again before they are replaced would count with them."""
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    await core_of(core).snapshot(ROUTE)
    path = nodes.data_dir("core") / "route.snapshot"
    assert path.exists()
    core_of(core).distrust(ROUTE)
    assert not path.exists()
    with pytest.raises(StorageUnavailable, match="shard route is about to be replaced"):
        await core_of(core).snapshot(ROUTE)
    assert not path.exists()


async def test_a_full_redis_is_trimmed_and_purged_and_nodes_come_and_go(nodes, valkey) -> None:
    core = await nodes.core()
    gone = await nodes.replicant(core_of(core), "gone")
    await gone.write(ROUTE, [route(gone, 1)])
    link = RedisLink(valkey.config)
    await link.call("CONFIG", "SET", "maxmemory", "1kb")
    await core_of(core).committer.trim(ROUTE, core.applied(ROUTE), StreamId(1, 1))
    await core_of(core).checkpoint(ROUTE, 1)
    await core_of(core).purge(gone.incarnation, 1)
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


async def test_a_restarted_core_goes_on_from_its_snapshot(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    core = await nodes.core()
    await trimmed_below(core, ROUTE)
    await core.stop()
    again = await nodes.core()
    assert len(again.tables.routes) == 100
    await again.write(ROUTE, [route(again, 1)])


def corrupt(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


async def test_a_corrupt_snapshot_is_named_and_replaced_by_the_log_or_another_core(nodes, monkeypatch, caplog) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    core, other = await nodes.core("c1"), await nodes.core("c2")
    await trimmed_below(core, ROUTE)
    await agree(ROUTE, core, other)
    await core.stop()
    snapshot = nodes.data_dir("c1") / "route.snapshot"
    corrupt(snapshot)
    port = CountedPort(core_of(other))
    again = await nodes.core("c1", port)
    assert f"snapshot of shard route is refused: {snapshot}: frame" in caplog.text
    assert port.bootstraps == 1
    await agree(ROUTE, again, other)


async def test_a_lone_core_that_lost_its_snapshot_and_the_log_says_so(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    core = await nodes.core()
    await trimmed_below(core, ROUTE)
    await core.stop()
    (nodes.data_dir("core") / "route.snapshot").unlink()
    with pytest.raises(LogLost, match="shard route: the log in Redis does not continue from 0-0"):
        await nodes.core()


async def test_a_replicant_needs_no_more_than_to_read_the_logs(nodes, valkey) -> None:
    core = await nodes.core()
    admin = RedisLink(valkey.config)
    rights = ("~flockmq:{*}:log", "-@all", "+xread", "+xrange", "+xrevrange")
    await admin.call("ACL", "SETUSER", "reader", "on", ">secret", *rights)
    await admin.close()
    reader = RedisConfig(f"redis://reader@127.0.0.1:{valkey.port}", password="secret")
    replicant = await nodes.replicant(core_of(core), config=reader)
    await replicant.write(ROUTE, [route(replicant, 1)])
    await agree(ROUTE, core, replicant)


async def test_redis_away_is_one_line_without_the_password(nodes, valkey) -> None:
    valkey.kill()
    config = RedisConfig(f"redis://:hunter2@127.0.0.1:{valkey.port}")
    node = Rlog("r@1", config, disk=Disk(nodes.data_dir("r")))
    with pytest.raises(RedisUnreachable, match=f"^Redis at 127.0.0.1:{valkey.port}: ") as error:
        await node.start()
    assert "hunter2" not in str(error.value)
    await node.stop()


async def test_a_wrong_password_is_said_so(nodes, valkey) -> None:
    admin = RedisLink(valkey.config)
    await admin.call("CONFIG", "SET", "requirepass", "right")
    await admin.close()
    for config in (RedisConfig(valkey.config.url, password="wrong"), valkey.config):
        link = RedisLink(config)
        with pytest.raises(RedisUnreachable, match="password"):
            await link.call("XLEN", "x")
        await link.close()


async def test_lag_counts_from_a_head_that_another_node_told(nodes) -> None:
    core = await nodes.core()
    applied = core.applied(ROUTE)
    assert core.lag(ROUTE) == (0, 0.0)
    core.note_log_end(ROUTE, applied._replace(sequence=applied.sequence + 3))
    entries, ms = core.lag(ROUTE)
    assert entries == 3
    assert ms >= 0
    assert core.log_end(ROUTE).sequence == applied.sequence + 3
    for number in range(3):
        await core.write(ROUTE, [route(core, number)])
    assert core.lag(ROUTE) == (0, 0.0)
