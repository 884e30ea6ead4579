"""The leader trims by what a majority of the configured cores has on disk."""

from __future__ import annotations

import pytest

from flockmq.redis.link import RedisLink
from flockmq.rlog.entry import StreamId
from flockmq.rlog.schema import ROUTE, ROUTES

from .conftest import Node, Nodes, until


async def first_kept(nodes: Nodes) -> StreamId:
    redis = RedisLink(nodes.redis)
    found = await redis.call("XRANGE", "flockmq:{route}:log", "-", "+", "COUNT", 1)
    await redis.close()
    assert isinstance(found, list)
    assert isinstance(found[0], list)
    assert isinstance(found[0][0], bytes)
    return StreamId.parse(found[0][0])


async def test_a_log_is_kept_until_a_majority_has_it_on_disk(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.bounds.LOG_RETENTION_BYTES", 64)
    monkeypatch.setattr("flockmq.bounds.TRIM_EVERY_S", 0.1)
    cores = [await nodes.start(f"core-{number}", "core") for number in range(3)]
    await nodes.settled()
    for number in range(100):
        await cores[0].rlog.write(ROUTE, [ROUTES.put((b"f/%d" % number, cores[0].incarnation), None)])
    (leader,) = [core for core in cores if core.cluster.is_leader]
    place = await on_disk(leader)
    trims: list[StreamId | None] = []
    watch_trims(leader, trims)
    await until(lambda: len(trims) >= 3)
    assert set(trims) == {StreamId(0, 0)}, "one of three has it on disk"
    other = next(core for core in cores if core is not leader)
    kept_from = min(place, await on_disk(other))
    await until(lambda: trims[-1] != StreamId(0, 0))
    assert StreamId(0, 0) < await first_kept(nodes) <= kept_from
    assert (await first_kept(nodes)).sequence > 1


async def on_disk(core: Node) -> StreamId:
    assert core.rlog.core is not None
    return await core.rlog.core.snapshot(ROUTE)


def watch_trims(leader: Node, trims: list[StreamId | None]) -> None:
    core = leader.rlog.core
    assert core is not None
    trim = core.trim

    async def watched(shard: str, durable: StreamId, fence: StreamId) -> StreamId | None:
        kept_from = await trim(shard, durable, fence)
        if shard == ROUTE:
            trims.append(kept_from)
        return kept_from

    core.trim = watched  # type: ignore[method-assign]
