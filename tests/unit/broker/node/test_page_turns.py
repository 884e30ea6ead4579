"""A few pages are made at once; others wait in order, and not for ever."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.bounds import DIRECTORY_PAGES_TOGETHER_MAX, DIRECTORY_PAGES_WAITING_MAX
from flockmq.management.view import Unavailable
from flockmq.node import page_turns
from flockmq.node.page_turns import PageTurns


class Pages:
    """Pages that are made until `end`."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.end = asyncio.Event()
        self._turns = PageTurns()

    async def page(self, number: int) -> None:
        async with self._turns.turn():
            self.made.append(number)
            await self.end.wait()

    def ask(self, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self.page(number)) for number in range(count)]


async def test_a_few_are_made_at_once_and_the_others_after_them_in_order() -> None:
    pages = Pages()
    asked = pages.ask(20)
    await asyncio.sleep(0)
    assert pages.made == list(range(DIRECTORY_PAGES_TOGETHER_MAX))
    pages.end.set()
    await asyncio.gather(*asked)
    assert pages.made == list(range(20))


async def test_one_too_many_is_refused() -> None:
    pages = Pages()
    asked = pages.ask(DIRECTORY_PAGES_TOGETHER_MAX + DIRECTORY_PAGES_WAITING_MAX)
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many pages"):
        await pages.page(-1)
    pages.end.set()
    await asyncio.gather(*asked)
    await pages.page(-1)


async def test_who_waits_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_turns, "DIRECTORY_PAGE_WAIT_MAX_S", 0.01)
    pages = Pages()
    asked = pages.ask(DIRECTORY_PAGES_TOGETHER_MAX)
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many pages"):
        await pages.page(-1)
    pages.end.set()
    await asyncio.gather(*asked)
