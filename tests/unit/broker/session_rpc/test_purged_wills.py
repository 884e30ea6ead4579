"""The wills of purged nodes are published bit by bit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from flockmq.session_rpc.purged_wills import PurgedWills


async def test_each_slots_wills_are_published_in_an_iteration_of_their_own() -> None:
    published: asyncio.Queue[Any] = asyncio.Queue()
    taken: list[str] = []

    def wills_of(node: str, slots: int) -> Iterator[list[Any]]:
        for slot in range(slots):
            taken.append(f"{node}{slot}")
            yield [f"{node}{slot}/1", f"{node}{slot}/2"]

    wills = PurgedWills()
    wills.add(wills_of("a", 2))
    wills.add(wills_of("b", 1))
    publishing = asyncio.ensure_future(wills.publish(published.put_nowait))
    assert [await published.get() for _ in range(2)] == ["a0/1", "a0/2"]
    assert taken == ["a0"]
    assert [await published.get() for _ in range(4)] == ["a1/1", "a1/2", "b0/1", "b0/2"]
    wills.add(wills_of("c", 1))
    assert await published.get() == "c0/1"
    publishing.cancel()
