"""One question for all that ask the same at about the same time, so that who asks very often makes no more work for
other nodes.

Invariants: an answer is asked for after its caller came, at most every OVERVIEW_ASKED_EVERY_S. So nobody waits for what
another one asked before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from flockmq.bounds import OVERVIEW_ASKED_EVERY_S

T = TypeVar("T")


class SharedAnswer(Generic[T]):
    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask: Final = ask
        self._next: asyncio.Future[T] | None = None
        self._may_be_asked_at = 0.0

    async def get(self) -> T:
        """Raises what the question raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._asked())
        return await asyncio.shield(self._next)

    async def _asked(self) -> T:
        now = asyncio.get_running_loop().time
        await asyncio.sleep(max(0.0, self._may_be_asked_at - now()))
        self._next = None
        self._may_be_asked_at = now() + OVERVIEW_ASKED_EVERY_S
        return await self._ask()
