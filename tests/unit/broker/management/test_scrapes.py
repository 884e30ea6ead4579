"""What /metrics shows is made for all that ask, a while apart."""

from __future__ import annotations

import asyncio

import pytest

from flockmq.bounds import METRICS_MADE_EVERY_S
from flockmq.management.scrapes import Scrapes
from simulation.loop import Process, SimulatedLoop


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop()


class Made:
    """How often it was, and when."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def __call__(self) -> bytes:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) == 3:
            raise KeyError("no such metric")
        return str(len(self.at)).encode()


def test_it_is_made_once_for_all_that_ask(loop: SimulatedLoop) -> None:
    made = Made()

    async def ask() -> None:
        scrapes = Scrapes(made)
        assert await asyncio.gather(*(scrapes.text() for _ in range(100))) == [b"1"] * 100
        assert await asyncio.gather(*(scrapes.text() for _ in range(100))) == [b"2"] * 100, "what it was isn't kept"

    loop.run(ask(), Process("node"))
    assert made.at[1] - made.at[0] == pytest.approx(METRICS_MADE_EVERY_S)


def test_who_goes_while_it_waits_takes_it_from_nobody(loop: SimulatedLoop) -> None:
    async def ask() -> None:
        scrapes = Scrapes(Made())
        one, other = asyncio.ensure_future(scrapes.text()), asyncio.ensure_future(scrapes.text())
        await asyncio.sleep(0)
        one.cancel()
        assert await other == b"1"

    loop.run(ask(), Process("node"))


def test_what_fails_fails_for_those_who_asked_alone(loop: SimulatedLoop) -> None:
    async def ask() -> None:
        scrapes = Scrapes(Made())
        await scrapes.text()
        await scrapes.text()
        with pytest.raises(KeyError):
            await scrapes.text()
        assert await scrapes.text() == b"4"

    loop.run(ask(), Process("node"))
