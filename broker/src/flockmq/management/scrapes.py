"""The text of /metrics, which costs milliseconds of the event loop and is everybody's to ask for.

What always holds: it is made METRICS_MADE_EVERY_S apart, for all that have asked by then: so it is never older than the
question, and however many ask, it takes a small share of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from flockmq.bounds import METRICS_MADE_EVERY_S


class Scrapes:
    """One per server. `make` gives the text."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make: Final = make
        self._next: asyncio.Future[bytes] | None = None
        self._may_be_made_at = 0.0

    async def text(self) -> bytes:
        """Raises what `make` raises."""
        if self._next is None:
            loop = asyncio.get_running_loop()
            self._next = loop.create_future()
            loop.call_at(max(self._may_be_made_at, loop.time()), self._answer, self._next)
        return await asyncio.shield(self._next)

    def _answer(self, asked: asyncio.Future[bytes]) -> None:
        self._next = None
        try:
            asked.set_result(self._make())
        except Exception as error:
            asked.set_exception(error)
        self._may_be_made_at = asyncio.get_running_loop().time() + METRICS_MADE_EVERY_S
