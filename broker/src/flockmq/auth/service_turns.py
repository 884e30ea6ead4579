"""Turns at a service, so that nobody keeps others from being answered, however slow the service is. Whose requests they
are says `who`: the address of a client that connects, the user of a connected one.

Invariants:
- At most `at_once` requests are under way. Those who wait take turns; requests of one go in order.
- At most `room` requests wait. Beyond that, the last one of whoever has the most is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator


class Overloaded(Exception):
    """Too many requests wait."""


class ServiceTurns:
    def __init__(self, at_once: int, room: int) -> None:
        self._free = at_once
        self._room = room
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Whose last turn is longest ago is first."""
        self.waiting = 0

    @contextlib.asynccontextmanager
    async def turn(self, who: str, within_s: float) -> AsyncIterator[None]:
        """Raises Overloaded, and TimeoutError if there is no turn within this time."""
        await self._take(who, within_s)
        try:
            yield
        finally:
            self._give_back()

    async def _take(self, who: str, within_s: float) -> None:
        if self._free:
            self._free -= 1
            return
        self._make_room(who)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(turn)
        self.waiting += 1
        try:
            async with asyncio.timeout(within_s):
                await turn
        except (asyncio.CancelledError, TimeoutError):
            if turn.cancelled():
                self._forget(who, turn)
            elif turn.exception() is None:  # it had its turn in the same moment
                self._give_back()
            raise

    def _make_room(self, who: str) -> None:
        if self.waiting < self._room:
            return
        fullest = max(self._waiting, key=lambda one: len(self._waiting[one]))
        if len(self._waiting[fullest]) <= len(self._waiting.get(who, ())) + 1:
            raise Overloaded
        last = self._waiting[fullest][-1]
        self._forget(fullest, last)
        if not last.done():
            last.set_exception(Overloaded())

    def _forget(self, who: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(who, deque())
        if turn not in turns:  # it was cancelled, and dropped before its caller noticed
            return
        turns.remove(turn)
        self.waiting -= 1
        if not turns:
            del self._waiting[who]

    def _give_back(self) -> None:
        while self._waiting:
            who, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            self.waiting -= 1
            if turns:
                self._waiting[who] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
