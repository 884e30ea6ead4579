"""Which of the pages of clients and sessions that were asked of this node are made now, and which wait.

A page is made in slices, one an iteration of the event loop. With hundreds of pages at once an iteration would have
hundreds of slices.

Invariant: DIRECTORY_PAGES_TOGETHER_MAX pages at once, DIRECTORY_PAGES_WAITING_MAX that wait, in the order in which they
were asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from flockmq.bounds import DIRECTORY_PAGE_WAIT_MAX_S, DIRECTORY_PAGES_TOGETHER_MAX, DIRECTORY_PAGES_WAITING_MAX
from flockmq.management.view import Unavailable

TOO_MANY = "too many pages of clients and sessions are asked for at once"


class PageTurns:
    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(DIRECTORY_PAGES_TOGETHER_MAX)
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it inside the block. Raises Unavailable."""
        if self._waiting >= DIRECTORY_PAGES_WAITING_MAX:
            raise Unavailable(TOO_MANY)
        self._waiting += 1
        try:
            async with asyncio.timeout(DIRECTORY_PAGE_WAIT_MAX_S):
                await self._turns.acquire()
        except TimeoutError:
            raise Unavailable(TOO_MANY) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()
