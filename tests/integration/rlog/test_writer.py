"""A node's writes: once and in order, whatever core takes them, and bounded while none does."""

import asyncio

import pytest

from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogFull
from flockmq.rlog.schema import (
    ROUTE,
    ROUTES,
)
from flockmq.tasks import VitalTaskFailed
from integration.rlog.steps import CountedPort, agree, core_of, route


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
