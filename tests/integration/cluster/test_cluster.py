"""Members come, talk, go and die."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from flockmq import bounds
from flockmq.clock import SYSTEM
from flockmq.membership.cluster import Cluster
from flockmq.membership.event_batches import COLUMNS, EventBuffer
from flockmq.membership.link_keys import LinkKeys
from flockmq.membership.membership_settings import LocalStatus, MembershipSettings
from flockmq.membership.report_events import COMMITTED, STREAM_FULL, EventExport
from flockmq.redis.errors import StorageUnavailable
from flockmq.redis.link import RedisConfig, RedisLink, RedisLinks
from flockmq.rlog.entry import StreamId
from flockmq.rlog.schema import ROUTE, ROUTES, SHARDS
from flockmq.routing.slots import slot_of

from .conftest import KEY, Node, Nodes, until

Purge = Callable[[str, str, StreamId], Awaitable[None]]


def export() -> EventExport:
    return EventExport(EventBuffer("core-0", "core-0@1"), lambda: None, SYSTEM.monotonic)


def lag_of(number: int, shard: str) -> tuple[object, ...]:
    return (number, shard, *[0] * (len(COLUMNS["lag"]) - 2))


def leaders(node: Node) -> list[str]:
    """Of the nodes that are ready."""
    heard = {incarnation: node.cluster.status_of(incarnation) for incarnation in node.cluster.nodes_table}
    return [incarnation for incarnation, status in heard.items() if status and status.ready and status.leads]


async def test_members_know_each_other_and_one_leads(nodes: Nodes) -> None:
    started = [await nodes.start("core-0", "core"), await nodes.start("core-1", "core")]
    started.append(await nodes.start("replicant-0", "replicant"))
    await nodes.settled()
    for node in started:
        await until(lambda node=node: len(leaders(node)) == 1)
    members = started[0].cluster.nodes_table.values()
    assert sorted((info.name, info.role, info.mqtt_port) for info in members) == [
        ("core-0", "core", 1883),
        ("core-1", "core", 1883),
        ("replicant-0", "replicant", 1883),
    ]
    owners = started[2].cluster.slots.owners
    assert {owners.count(started[0].incarnation), owners.count(started[1].incarnation)} == {512}


async def test_a_replicant_writes_and_reads_its_write_through_a_core(nodes: Nodes) -> None:
    await nodes.start("core-0", "core")
    replicant = await nodes.start("replicant-0", "replicant")
    await replicant.rlog.write(ROUTE, [ROUTES.put((b"a/+", replicant.incarnation), None)])
    assert (b"a/+", replicant.incarnation) in {key for key, _ in replicant.rlog.tables.named("routes").items()}


async def test_a_replicant_goes_on_with_another_core(nodes: Nodes) -> None:
    cores = [await nodes.start("core-0", "core"), await nodes.start("core-1", "core")]
    replicant = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    await nodes.crash(cores[0])
    await replicant.rlog.write(ROUTE, [ROUTES.put((b"b", replicant.incarnation), None)])
    await nodes.crash(replicant)
    await until(lambda: set(cores[1].cluster.nodes_table) == {cores[1].incarnation})


async def test_a_dead_nodes_rows_are_purged_and_its_slots_move(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    replicant = await nodes.start("replicant-0", "replicant")
    await replicant.rlog.write(ROUTE, [ROUTES.put((b"a", replicant.incarnation), None)])
    await nodes.settled()
    before = list(cores[0].cluster.slots.owners)
    await nodes.crash(replicant)
    await nodes.crash(cores[2])
    await nodes.settled()
    await until(lambda: not list(cores[0].rlog.tables.named("routes").items()))
    stayed = {slot for slot, owner in enumerate(before) if owner != cores[2].incarnation}
    assert all(cores[0].cluster.slots.owners[slot] == before[slot] for slot in stayed)


async def test_a_purge_that_failed_half_way_is_finished(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row among the members is gone then, but not its others, nor what it still writes."""
    monkeypatch.setattr(bounds, "MEMBER_UNHEARD_MAX_S", 0.5)
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    replicant = await nodes.start("replicant-0", "replicant")
    await replicant.rlog.write(ROUTE, [ROUTES.put((b"a", replicant.incarnation), None)])
    await nodes.settled()
    failed: list[str] = []
    for core in cores:
        assert core.rlog.core is not None
        purge = core.rlog.core.committer.purge

        async def fails(shard: str, incarnation: str, fence: StreamId, purge: Purge = purge) -> None:
            if shard == ROUTE and not failed:
                failed.append(incarnation)
                raise StorageUnavailable("too few replicas answered in time")
            await purge(shard, incarnation, fence)

        monkeypatch.setattr(core.rlog.core.committer, "purge", fails)
    await nodes.crash(replicant)
    await until(lambda: all(not list(core.rlog.tables.named("routes").items()) for core in cores))
    assert failed == [replicant.incarnation]
    sequences = [core.rlog.tables.shards[shard].sequences for core in cores for shard in SHARDS]
    await until(lambda: not any(replicant.incarnation in known for known in sequences))


async def test_another_core_leads_when_the_leader_dies(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    await nodes.settled()
    (leader,) = [core for core in cores if core.cluster.is_leader]
    await nodes.crash(leader)
    await until(lambda: any(core.cluster.is_leader for core in nodes.running))
    await nodes.settled()
    assert sum(core.cluster.is_leader for core in nodes.running) == 1


async def test_a_draining_core_gives_its_slots_away_even_if_it_leads(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    await nodes.settled()
    (leader,) = [core for core in cores if core.cluster.is_leader]
    leader.cluster.local_status = lambda: LocalStatus(0, 0, True, True)
    others = {core.incarnation for core in cores if core is not leader}
    for core in cores:
        await until(lambda core=core: set(core.cluster.slots.owners) == others)  # type: ignore[misc]
    assert leader.cluster.is_leader


async def test_one_core_of_three_leads_nobody_and_purges_nobody_until_there_are_two(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{n}", "core") for n in range(3)]
    replicant = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    for core in cores[1:]:
        await nodes.crash(core)
    survivor = cores[0]
    await until(lambda: survivor.cluster.fencing.is_fenced and replicant.cluster.fencing.is_fenced)
    await until(lambda: {core.incarnation for core in cores[1:]} <= set(survivor.cluster.heartbeats.unreachable(1e12)))
    assert not survivor.cluster.is_leader
    assert set(survivor.cluster.nodes_table) == {replicant.incarnation, *(core.incarnation for core in cores)}
    slots = survivor.cluster.slots.owners
    mine = next(key for n in range(1000) if slots[slot_of(key := b"client-%d" % n)] == survivor.incarnation)
    connecting = asyncio.ensure_future(survivor.clients.connect(mine))
    await asyncio.sleep(0)
    assert not survivor.clients.held  # its owner is here, and answers at once
    await nodes.start("core-1", "core")
    await nodes.settled()
    await until(lambda: not survivor.cluster.fencing.is_fenced and not replicant.cluster.fencing.is_fenced)
    assert await connecting == survivor.clients.held[mine]


async def test_a_node_that_leaves_is_purged_at_once_and_a_restarted_one_replaces_itself(nodes: Nodes) -> None:
    core = await nodes.start("core-0", "core")
    replicant = await nodes.start("replicant-0", "replicant")
    await nodes.settled()
    first = replicant.incarnation
    await nodes.crash(replicant)
    again = await nodes.start("replicant-0", "replicant")
    await until(lambda: first not in core.cluster.nodes_table)
    await nodes.stop(again)
    await until(lambda: set(core.cluster.nodes_table) == {core.incarnation})


async def test_a_purged_node_hears_of_it(nodes: Nodes) -> None:
    core = await nodes.start("core-0", "core")
    replicant = await nodes.start("replicant-0", "replicant")
    purged = asyncio.Event()
    replicant.cluster.on_purged = purged.set
    assert core.rlog.core is not None
    await core.rlog.core.purge(replicant.incarnation, StreamId(1, 1_000))
    await asyncio.wait_for(purged.wait(), 20)


async def test_a_node_with_another_key_stays_out_and_both_sides_say_so(
    nodes: Nodes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    core = await nodes.start("core-0", "core")
    wrong = "another key, as long as the first"
    stranger = Cluster(
        MembershipSettings("replicant-9", "replicant", "127.0.0.1", 0, "0", LinkKeys(wrong), None, (core.address,)), []
    )
    with caplog.at_level(logging.WARNING):
        await stranger.start()
        await until(lambda: sum("cluster key" in record.getMessage() for record in caplog.records) == 2)
    await stranger.stop()
    text = caplog.text
    assert f"no cluster link to 127.0.0.1:{core.address[1]}" in text
    assert "refused 1 cluster link(s), the last from 127.0.0.1:" in text
    assert wrong not in text
    assert KEY not in text
    assert not core.cluster.mesh.links()


@pytest.mark.parametrize("first", [0, 2000])
async def test_event_streams_are_capped_by_bytes(
    valkey: RedisConfig, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Whatever Redis says by a sample of the oldest entries, which may be small."""
    monkeypatch.setattr(bounds, "EVENTS_STREAM_MAX_BYTES", 1_000_000)
    monkeypatch.setattr(bounds, "EVENTS_LOOK_BYTES", 100_000)
    relay = export()
    relay.redis = RedisLinks(valkey)
    link = await relay.redis.of("flockmq:events:lag")
    for _ in range(first):
        await link.call("XADD", "flockmq:events:lag", "*", "events", "small")
    for n in range(500):
        relay.buffer.add("lag", [lag_of(n, "x" * 10_000)])
        await relay.flush()
        if n % 50 == 49:
            kept = await link.call("MEMORY", "USAGE", "flockmq:events:lag", "SAMPLES", 0)
            assert isinstance(kept, int)
            assert kept < 1_000_000 + 100_000 + 20_000
    last = await link.call("XREVRANGE", "flockmq:events:lag", "+", "-", "COUNT", 1)
    await relay.redis.close()
    assert isinstance(last, list)
    assert msgspec.msgpack.decode(last[0][1][1])["number"] == 499
    assert kept > 500_000
    assert relay.lost_bytes[STREAM_FULL] + kept >= 500 * 10_000


async def test_what_another_core_left_in_an_event_stream_is_looked_at_first(
    valkey: RedisConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay, other = export(), export()
    relay.redis = other.redis = RedisLinks(valkey)
    link = await relay.redis.of("flockmq:events:lag")
    for n in range(100):
        relay.buffer.add("lag", [lag_of(n, "x" * 10_000)])
        await relay.flush()
    monkeypatch.setattr(bounds, "EVENTS_STREAM_MAX_BYTES", 100_000)
    other.buffer.add("lag", [lag_of(0, "one more")])
    await other.flush()
    kept = await link.call("MEMORY", "USAGE", "flockmq:events:lag", "SAMPLES", 0)
    await relay.redis.close()
    assert isinstance(kept, int)
    assert kept < 120_000


async def test_what_is_stored_elsewhere_is_trimmed_and_nothing_else(valkey: RedisConfig) -> None:
    relay = export()
    relay.redis = RedisLinks(valkey)
    link = await relay.redis.of("flockmq:events:lag")
    for n in range(3):
        relay.buffer.add("lag", [lag_of(n, "route")])
        await relay.flush()
    await relay.trim_stored(relay.redis)
    assert await link.call("XLEN", "flockmq:events:lag") == 3
    entries = await link.call("XRANGE", "flockmq:events:lag", "-", "+")
    assert isinstance(entries, list)
    await link.call("HSET", COMMITTED, "lag", entries[1][0], "nodes", "nonsense")
    await relay.trim_stored(relay.redis)
    kept = await link.call("XRANGE", "flockmq:events:lag", "-", "+")
    await relay.redis.close()
    assert kept == entries[1:], "the last one that is stored stays, and tells where the stream is"
    assert relay.lost_bytes[STREAM_FULL] == 0


async def test_events_of_every_node_reach_redis(nodes: Nodes) -> None:
    core = await nodes.start("core-0", "core")
    replicant = await nodes.start("replicant-0", "replicant")
    core.cluster.events.buffer.add("lag", [lag_of(1, "route")])
    replicant.cluster.events.buffer.add("lag", [lag_of(2, "route")])
    redis = RedisLink(nodes.redis)
    try:
        while await redis.call("XLEN", "flockmq:events:lag") != 2:  # noqa: ASYNC110 - Redis has the event
            await asyncio.sleep(0.01)
    finally:
        await redis.close()
