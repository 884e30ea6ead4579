"""A node knows when its tables are older than what it acknowledges promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flockmq.rlog.redis import RedisLink
from flockmq.rlog.shards import ROUTE, ROUTES

from .conftest import Node, Nodes, until


class Changes:
    """What a node was told about its tables."""

    def __init__(self, node: Node) -> None:
        self._said: asyncio.Queue[bool] = asyncio.Queue()
        node.cluster.freshness.on_change = self._said.put_nowait

    async def next(self) -> bool:
        async with asyncio.timeout(20):
            return await self._said.get()


async def settle(*nodes: Node) -> None:
    """All are fresh."""
    await until(lambda: not any(node.cluster.freshness.is_stale for node in nodes))


async def test_a_node_that_reads_the_log_no_more_is_stale_from_the_next_entry_on(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, edge = await nodes.start("core-0", "core"), await nodes.start("edge-0", "replicant")
    await settle(core, edge)
    changes = Changes(edge)
    reads, may_read = asyncio.Event(), asyncio.Event()
    read_once = edge.rlog._replica._read_once

    async def read_when_it_may(link: RedisLink, of: Sequence[str]) -> None:
        reads.set()
        await may_read.wait()
        await read_once(link, of)

    with monkeypatch.context() as patched:
        patched.setattr(edge.rlog._replica, "_read_once", read_when_it_may)
        await reads.wait()
        await core.rlog.write(ROUTE, [ROUTES.put((b"a", core.incarnation), None)])
        assert await changes.next()
        assert not core.cluster.freshness.is_stale
        may_read.set()
        assert not await changes.next()
        assert (b"a", core.incarnation) in {key for key, _ in edge.rlog.tables.routes.items()}


async def test_a_node_without_a_core_is_stale_until_there_is_one(nodes: Nodes) -> None:
    core, edge = await nodes.start("core-0", "core"), await nodes.start("edge-0", "replicant")
    await settle(core, edge)
    changes = Changes(edge)
    await nodes.crash(core)
    assert await changes.next()
    await nodes.start("core-0", "core")
    assert not await changes.next()


async def test_a_core_alone_of_three_is_stale_and_its_word_counts_for_nothing(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{number}", "core") for number in range(3)]
    edge = await nodes.start("edge-0", "replicant")
    await settle(*cores, edge)
    await nodes.crash(cores[1])
    await nodes.crash(cores[2])
    await until(lambda: cores[0].cluster.freshness.is_stale and edge.cluster.freshness.is_stale)
