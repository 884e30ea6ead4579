"""Snapshots on the disk of a core: when they are written, what they are good for, and corrupt ones."""

import asyncio
from pathlib import Path

import pytest

from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisLink
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogLost
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import ROUTE, keys_of
from integration.rlog.steps import CountedPort, agree, core_of, route, trimmed_below


async def test_trimming_waits_for_the_snapshot_and_the_retention_window(nodes, monkeypatch) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    await core_of(core).snapshot(ROUTE)
    assert await core_of(core).trim(ROUTE, core.applied(ROUTE), StreamId(1, 1)) is None
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    for number in range(20):
        await core.write(ROUTE, [route(core, number)])
    durable = core_of(core).durable(ROUTE)
    assert await core_of(core).trim(ROUTE, core.applied(ROUTE), StreamId(1, 1)) == durable
    assert await core_of(core).trim(ROUTE, StreamId(1, 1), StreamId(1, 1)) == (1, 1)


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
    with pytest.raises(StorageUnavailable, match="shard route: the tables that were written are wrong"):
        await core_of(core).snapshot(ROUTE)
    assert not path.exists()


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


async def test_a_shard_isnt_begun_anew_without_what_a_broken_snapshot_held(nodes, valkey) -> None:
    """Nothing is written, whatever other snapshots the core has. It begins without what is lost when somebody says
    so."""
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    await core.stop()
    valkey.kill()
    await asyncio.to_thread(valkey.restart, empty=True)
    snapshot = nodes.data_dir("core") / "route.snapshot"
    good = snapshot.read_bytes()
    corrupt(snapshot)
    broken = snapshot.read_bytes()
    unstarted = core_of(Rlog("core@1", valkey.config, disk=Disk(snapshot.parent)))
    await unstarted.load()
    with pytest.raises(StorageUnavailable, match="has no log of it, and the snapshot of core can't be read"):
        await unstarted.register(ROUTE, "core@1")
    await unstarted.stop()
    assert snapshot.read_bytes() == broken
    link = RedisLink(valkey.config)
    assert await link.call("EXISTS", *keys_of(ROUTE)) == 0
    await link.close()
    snapshot.write_bytes(good)
    again = await nodes.core()
    assert len(again.tables.routes) == 1


async def test_a_deleted_snapshot_is_begun_without(nodes, valkey) -> None:
    core = await nodes.core()
    await core.write(ROUTE, [route(core, 1)])
    await core.stop()
    valkey.kill()
    await asyncio.to_thread(valkey.restart, empty=True)
    (nodes.data_dir("core") / "route.snapshot").unlink()
    assert len((await nodes.core()).tables.routes) == 0


async def test_a_lone_core_that_lost_its_snapshot_and_the_log_says_so(nodes, monkeypatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    core = await nodes.core()
    await trimmed_below(core, ROUTE)
    await core.stop()
    (nodes.data_dir("core") / "route.snapshot").unlink()
    with pytest.raises(LogLost, match="shard route: the log in Redis does not continue from 0-0"):
        await nodes.core()
