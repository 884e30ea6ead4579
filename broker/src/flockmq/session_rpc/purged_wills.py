"""The wills of clean sessions whose nodes were purged. They are published one slot in each iteration of the event loop,
because a node may have had very many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from flockmq.session_rpc.clean_session_wills import PendingWill


class PurgedWills:
    """`add` them, and `publish` until cancelled."""

    def __init__(self) -> None:
        self._waiting: list[Iterator[list[PendingWill]]] = []
        self._has_any = asyncio.Event()

    def add(self, wills: Iterator[list[PendingWill]]) -> None:
        """Those of one node, slot by slot."""
        self._waiting.append(wills)
        self._has_any.set()

    async def publish(self, on_will: Callable[[PendingWill], None]) -> None:
        while True:
            await self._has_any.wait()
            self._has_any.clear()
            while self._waiting:
                for wills in self._waiting.pop(0):
                    for will in wills:
                        on_will(will)
                    await asyncio.sleep(0)
