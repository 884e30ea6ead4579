"""The one order of the log: each write once, none of a node that was purged, none by a leader that was deposed."""

import asyncio

import pytest

from flockmq.rlog.change import gather
from flockmq.rlog.committer import Committer
from flockmq.rlog.entry import StreamId, encode_transaction
from flockmq.rlog.errors import LogFenced, LogGap, LogRefused
from flockmq.rlog.schema import RETAINED, ROUTE, ROUTES
from integration.rlog.steps import CountedPort, agree, core_of, reaches, retained, route


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
    await core_of(core).purge(replicant.incarnation, StreamId(1, 1))
    await core_of(core).purge(replicant.incarnation, StreamId(1, 1))
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
    await core_of(core).checkpoint(ROUTE, StreamId(1, 7))
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


@pytest.mark.parametrize("step", ["_settle", "_command", "_resolve"])
async def test_after_an_unexpected_error_all_appends_are_committed(nodes, monkeypatch, step) -> None:
    core = await nodes.core()
    committer = core_of(core).committer
    ends: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: ends.append(context))
    failed = fails_once(monkeypatch, committer, step)
    writes = [core.submit(shard, ops) for shard, ops in ((ROUTE, [route(core, 1)]), (RETAINED, [retained(b"t")]))]
    await asyncio.gather(*writes)
    assert failed.is_set()
    assert committer.queued_bytes == 0
    assert not ends


async def test_after_an_unexpected_error_a_restart_of_redis_is_found_out(nodes, valkey, monkeypatch) -> None:
    core = await nodes.core()
    failed = fails_once(monkeypatch, core_of(core).committer, "_check_life")
    async with asyncio.timeout(20):
        await failed.wait()
        valkey.kill()
        await asyncio.to_thread(valkey.restart)
        await reaches(core, ROUTE, StreamId(2, 0))


def fails_once(monkeypatch: pytest.MonkeyPatch, committer: Committer, step: str) -> asyncio.Event:
    """The event: it failed."""
    works, failed = getattr(committer, step), asyncio.Event()

    def fail(*_: object) -> None:
        failed.set()
        monkeypatch.setattr(committer, step, works)
        raise ValueError("unexpected")

    monkeypatch.setattr(committer, step, fail)
    return failed


async def test_a_checkpoint_is_the_same_place_for_everybody_and_needless_while_nothing_changes(nodes) -> None:
    core = await nodes.core()
    replicant = await nodes.replicant(core_of(core))
    await replicant.write(ROUTE, [route(replicant, 1)])
    await core_of(core).checkpoint(ROUTE, StreamId(1, 1))
    await agree(ROUTE, core, replicant)
    checked = core.checkpoint(ROUTE)
    assert checked is not None
    assert checked == replicant.checkpoint(ROUTE)
    assert checked.position == core.applied(ROUTE)
    await core_of(core).checkpoint(ROUTE, StreamId(1, 1))
    await core.catch_up(ROUTE)
    assert checked.position == core.applied(ROUTE)
