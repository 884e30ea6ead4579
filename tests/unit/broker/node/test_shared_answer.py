"""However many ask the same at once, other nodes are asked now and then; nobody gets an answer from before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from flockmq.node import shared_answer
from flockmq.node.cluster_overview import ALL_DETAILS, LOGS, ClusterOverview
from flockmq.node.shared_answer import SharedAnswer


async def test_unauthenticated_requests_are_no_requests_of_other_nodes_each() -> None:
    asked: list[str] = []

    async def ask(core: str, method: str, body: bytes) -> bytes:
        asked.append(method)
        await asyncio.sleep(0.01)
        return msgspec.msgpack.encode([] if method == LOGS else {})

    cluster = SimpleNamespace(
        is_core=False,
        incarnation="replicant-1@1",
        core_port=SimpleNamespace(core="core-1@1"),
        nodes_table={},
        status_of=lambda incarnation: None,
        on_request=lambda method, handler: None,
        ask=ask,
    )
    overview = ClusterOverview(cast(Any, cluster), cast(Any, None))
    waiting = [asyncio.ensure_future(get()) for _ in range(300) for get in (overview.logs, overview.details)]
    await asyncio.sleep(0.005)
    waiting += [asyncio.ensure_future(get()) for _ in range(300) for get in (overview.logs, overview.details)]
    assert not any(await asyncio.gather(*waiting))
    assert sorted(asked) == sorted(2 * [LOGS, ALL_DETAILS])


async def test_an_answer_is_asked_for_after_its_caller_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_answer, "OVERVIEW_ASKED_EVERY_S", 0.01)
    asked = 0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        mine = asked
        await asyncio.sleep(0.03)
        if mine == 2:
            raise OSError("the second")
        return mine

    shared = SharedAnswer(ask)
    first, gone = asyncio.ensure_future(shared.get()), asyncio.ensure_future(shared.get())
    await asyncio.sleep(0.001)
    gone.cancel()
    second = asyncio.ensure_future(shared.get())
    await asyncio.sleep(0.015)
    assert asked == 2, "it doesn't wait for the first answer"
    assert await first == 1
    with pytest.raises(OSError, match="the second"):
        await second
    assert await shared.get() == 3
