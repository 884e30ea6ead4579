"""A node knows when its tables are older than what it acknowledges promises."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flockmq.redis.link import RedisLink
from flockmq.rlog.reading import ReadSize
from flockmq.rlog.schema import ROUTE, ROUTES

from .conftest import Node, Nodes, until


def is_stale(node: Node) -> bool:
    return node.cluster.staleness.is_stale


async def settle(*nodes: Node) -> None:
    """All are fresh."""
    await until(lambda: not any(map(is_stale, nodes)))


async def test_a_node_that_reads_the_log_no_more_is_stale_from_the_next_entry_on(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, replicant = await nodes.start("core-0", "core"), await nodes.start("replicant-0", "replicant")
    await settle(core, replicant)
    reads, may_read = asyncio.Event(), asyncio.Event()
    read_once = replicant.rlog._replica._read_once

    async def read_when_it_may(link: RedisLink, of: Sequence[str], read_size: ReadSize) -> None:
        reads.set()
        await may_read.wait()
        await read_once(link, of, read_size)

    with monkeypatch.context() as patched:
        patched.setattr(replicant.rlog._replica, "_read_once", read_when_it_may)
        await reads.wait()
        await core.rlog.write(ROUTE, [ROUTES.put((b"a", core.incarnation), None)])
        await until(lambda: is_stale(replicant) and not is_stale(core))
        may_read.set()
        await until(lambda: not is_stale(replicant) and bool(replicant.rlog.tables.routes.nodes(b"a")))


async def test_a_node_without_a_core_is_stale_until_there_is_one(nodes: Nodes) -> None:
    core, replicant = await nodes.start("core-0", "core"), await nodes.start("replicant-0", "replicant")
    await settle(core, replicant)
    await nodes.crash(core)
    await until(lambda: is_stale(replicant))
    await nodes.start("core-0", "core")
    await settle(replicant)


async def test_a_core_alone_of_three_is_stale_and_its_word_counts_for_nothing(nodes: Nodes) -> None:
    cores = [await nodes.start(f"core-{number}", "core") for number in range(3)]
    replicant = await nodes.start("replicant-0", "replicant")
    await settle(*cores, replicant)
    await nodes.crash(cores[1])
    await nodes.crash(cores[2])
    await until(lambda: is_stale(cores[0]) and is_stale(replicant))
