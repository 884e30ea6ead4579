"""Coming back after a purge, where the log is away meanwhile, or the node is purged once more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, MagicMock

import pytest

from flockmq.membership.readiness import Readiness
from flockmq.node import rejoin as rejoining
from flockmq.node.node import Node
from flockmq.node.rejoin import come_back, come_in, rejoin
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import Op
from flockmq.rlog.errors import LogRefused
from flockmq.rlog.schema import ROUTES


class Purged:
    """A node without clients, `claims` of which are for nobody here; what it writes may fail first."""

    def __init__(self, *, joins: list[Exception | None]) -> None:
        self.exclusive = MagicMock(rename=MagicMock(side_effect=[[(b"door", b"c")], [], []]))
        self.cluster = SimpleNamespace(
            take_new_incarnation=AsyncMock(side_effect=["a@00000001", "a@00000002", "a@00000003"]),
            join=AsyncMock(side_effect=joins),
            readiness=Readiness(),
        )
        self.rlog = SimpleNamespace(rejoin=AsyncMock(), write=AsyncMock())
        self.session_rpc = MagicMock()
        filters = MagicMock(exclusive=self.exclusive)
        routes = MagicMock(filters=filters, rename=self.exclusive.rename)
        self.node = cast(
            Node,
            MagicMock(
                engine=SimpleNamespace(connections=[]),
                cluster=self.cluster,
                rlog=self.rlog,
                routes=routes,
                session_rpc=self.session_rpc,
            ),
        )


async def test_a_node_that_comes_back_waits_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoining, "LOG_RETRY_MAX_S", 0.0)
    purged = Purged(joins=[StorageUnavailable("Redis is away"), StorageUnavailable("Redis is away"), None])
    await rejoin(purged.node)
    assert purged.cluster.join.await_count == 3
    purged.cluster.take_new_incarnation.assert_awaited_once()
    purged.session_rpc.rename.assert_called_once_with("a@00000001")


async def test_owners_know_who_they_are_before_they_may_be_given_slots() -> None:
    purged = Purged(joins=[None])
    purged.cluster.join.side_effect = lambda: purged.session_rpc.rename.assert_called_once_with("a@00000001")
    await rejoin(purged.node)
    purged.cluster.join.assert_awaited_once()


async def test_a_node_that_is_purged_before_it_is_back_comes_back_as_yet_another() -> None:
    purged = Purged(joins=[LogRefused("a@00000001 is purged in the log"), None])
    await come_back(asyncio.Event(), purged.node)
    assert purged.cluster.take_new_incarnation.await_count == 2
    assert [call.args for call in purged.session_rpc.rename.call_args_list] == [("a@00000001",), ("a@00000002",)]


async def test_no_exclusive_claim_is_forgotten_by_a_node_that_is_purged_before_it_is_back() -> None:
    purged = Purged(joins=[LogRefused("a@00000001 is purged in the log"), None])
    await come_back(asyncio.Event(), purged.node)
    assert [call.args[:2] for call in purged.exclusive.claim.call_args_list] == [(b"door", b"c")]


async def test_a_route_that_is_given_up_while_it_can_not_be_written_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rejoining, "LOG_RETRY_MAX_S", 0.0)
    me, wanted = "a@00000001", {b"kept", b"given/up"}
    written: list[object] = []

    async def write(ops: Sequence[Op]) -> None:
        if b"given/up" in wanted:
            wanted.discard(b"given/up")
            raise StorageUnavailable("Redis is away")
        written.extend(key for _, _, _, key, _ in ops)

    router, turns = SimpleNamespace(has_local=wanted.__contains__), SimpleNamespace(submit=write)
    cluster, routes = SimpleNamespace(incarnation=me), SimpleNamespace(turns=turns)
    node = cast(Node, SimpleNamespace(cluster=cluster, router=router, routes=routes))
    await rejoining._until_logged(partial(rejoining._write_wanted, node, sorted(wanted)))
    assert written == [ROUTES.put((b"kept", me), None)[3]]


async def test_a_node_that_starts_waits_for_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rejoining, "LOG_RETRY_MAX_S", 0.0)
    starting = Purged(joins=[StorageUnavailable("Redis is away"), None])
    await come_in(asyncio.Event(), starting.node, is_refused=False)
    assert starting.cluster.join.await_count == 2
    starting.cluster.take_new_incarnation.assert_not_awaited()


async def test_a_node_that_is_purged_before_it_was_a_member_comes_in_as_another() -> None:
    starting = Purged(joins=[LogRefused("a@00000000 is purged in the log"), None])
    await come_in(asyncio.Event(), starting.node, is_refused=False)
    starting.rlog.rejoin.assert_awaited_once_with("a@00000001")


async def test_a_node_that_the_log_takes_nothing_from_does_not_try() -> None:
    starting = Purged(joins=[None])
    await come_in(asyncio.Event(), starting.node, is_refused=True)
    starting.rlog.rejoin.assert_awaited_once_with("a@00000001")
    starting.cluster.join.assert_awaited_once()
