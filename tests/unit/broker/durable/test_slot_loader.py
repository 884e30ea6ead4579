"""Slots of one server are loaded by themselves, by a fake of the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, cast

import pytest

from flockmq import bounds
from flockmq.durable.slot_loader import SlotLoader
from flockmq.durable.slot_reader import SlotContents
from flockmq.redis.errors import StorageUnavailable

MOVING = 3


class Store:
    """Slots at one server, which moves the hash slot of one of them."""

    def __init__(self) -> None:
        self.is_moving = True
        self.asked: list[list[int]] = []
        self.blank = dict.fromkeys((MOVING, 4, 5), "1-1 a")
        self.told: list[list[int]] = []
        self.loader = SlotLoader(cast(Any, self), self.blank.copy, self._take_over, self._done, lambda: 0.0)

    async def apart(self, slots: Iterable[int]) -> list[list[int]]:
        return [list(slots)]

    async def take_all(self, fences: Mapping[int, str]) -> AsyncGenerator[tuple[int, SlotContents]]:
        self.asked.append(list(fences))
        for slot in fences:
            if slot != MOVING or not self.is_moving:
                yield slot, SlotContents()
        if MOVING in fences and self.is_moving:
            raise StorageUnavailable("it is being moved")

    async def _take_over(self, number: int, fence: str, taken: object) -> None:
        del self.blank[number]

    def _done(self) -> None:
        self.told.append(list(self.blank))


async def test_what_could_be_loaded_goes_on_before_the_rest_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MIN_S", 3600.0)
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 3600.0)
    store = Store()
    store.loader.look()
    async with asyncio.timeout(10):
        while not store.told:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)
    assert store.told == [[MOVING]]
    await store.loader.stop()


async def test_what_is_being_moved_is_tried_again_by_itself() -> None:
    store = Store()
    store.loader.look()
    async with asyncio.timeout(10):
        while len(store.asked) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        store.is_moving = False
        while store.blank:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert store.asked[0] == [MOVING, 4, 5]
    assert {tuple(slots) for slots in store.asked[1:]} == {(MOVING,)}
    await store.loader.stop()
