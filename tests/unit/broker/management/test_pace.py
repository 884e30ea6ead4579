"""A few requests begin in an iteration of the event loop, in order, and one that takes long delays no other."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from aiohttp import web

from flockmq.bounds import MANAGEMENT_BEGUN_TOGETHER_MAX, MANAGEMENT_PACED_MAX
from flockmq.management.pace import Pace


class Requests:
    """Requests that a pace lets begin. `begun` has their numbers, with the iteration in which each began."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.iteration = 0
        self._paced: Any = Pace().paced

    def ask(self, number: int, takes: asyncio.Event | None = None) -> asyncio.Task[web.StreamResponse]:
        async def handler(request: web.Request) -> web.StreamResponse:
            self.begun.append((self.iteration, number))
            if takes is not None:
                await takes.wait()
            return web.Response()

        return asyncio.create_task(self._paced(cast(web.Request, None), handler))

    async def iterate(self) -> None:
        self.iteration += 1
        await asyncio.sleep(0)


async def test_a_few_begin_in_an_iteration_in_the_order_in_which_they_came() -> None:
    requests = Requests()
    asked = [requests.ask(number) for number in range(20)]
    while len(requests.begun) < 20:
        await requests.iterate()
    assert [number for _, number in requests.begun] == list(range(20))
    iterations = [iteration for iteration, _ in requests.begun]
    assert max(iterations.count(one) for one in iterations) == MANAGEMENT_BEGUN_TOGETHER_MAX
    assert max(iterations) <= 2 + 20 // MANAGEMENT_BEGUN_TOGETHER_MAX
    await asyncio.gather(*asked)


async def test_requests_that_take_long_delay_no_other() -> None:
    requests, end = Requests(), asyncio.Event()
    slow = [requests.ask(number, end) for number in range(10)]
    await requests.ask(10)
    assert len(requests.begun) == 11
    end.set()
    await asyncio.gather(*slow)


async def test_one_that_is_cancelled_takes_no_turn() -> None:
    requests = Requests()
    asked = [requests.ask(number) for number in range(10)]
    await requests.iterate()
    for task in asked[2:9]:
        task.cancel()
    await asked[9]
    assert [number for _, number in requests.begun] == [0, 1, 9]


@pytest.mark.parametrize("more", [1, 50])
async def test_where_very_many_wait_none_is_refused(more: int) -> None:
    requests = Requests()
    for number in range(MANAGEMENT_BEGUN_TOGETHER_MAX + MANAGEMENT_PACED_MAX + more):
        requests.ask(number)
    await requests.iterate()
    await requests.iterate()
    assert len(requests.begun) >= more + MANAGEMENT_BEGUN_TOGETHER_MAX
    while len(requests.begun) < MANAGEMENT_BEGUN_TOGETHER_MAX + MANAGEMENT_PACED_MAX + more:
        await requests.iterate()
