"""Lets requests begin a few at a time, so that clients of the management port don't delay MQTT clients.

A request takes up to some milliseconds of the event loop, and there can be hundreds at once. Others have their turn
between them.

Invariants: at most MANAGEMENT_BEGUN_TOGETHER_MAX requests begin in an iteration of the event loop, in order, while no
more than MANAGEMENT_PACED_MAX wait. A request that takes long delays no other, because only the beginning is counted.
None is refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from flockmq.bounds import MANAGEMENT_BEGUN_TOGETHER_MAX, MANAGEMENT_PACED_MAX


class Pace:
    """One per server."""

    def __init__(self) -> None:
        self._waiting: Final[deque[asyncio.Future[None]]] = deque()
        self._begun = 0
        """How many began in this iteration. It is 0 unless `_next_iteration` is scheduled."""

    @web.middleware
    async def paced(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._begun < MANAGEMENT_BEGUN_TOGETHER_MAX:
            self._begin()
        elif len(self._waiting) < MANAGEMENT_PACED_MAX:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        return await handler(request)

    def _begin(self) -> None:
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._next_iteration)
        self._begun += 1

    def _next_iteration(self) -> None:
        self._begun = 0
        while self._waiting and self._begun < MANAGEMENT_BEGUN_TOGETHER_MAX:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begin()
