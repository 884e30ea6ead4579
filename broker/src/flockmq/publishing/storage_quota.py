"""What users have on its way into the log, to be retained or delayed.

What always holds: of a user's no more than a share of its quota is on its way from this node, as long as others write,
too, who don't know of it; the rest waits, in its order, until the log has that. So by what nodes don't know of one
another a user is over its quota by a few shares.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from flockmq.bounds import LOG_WRITE_DEADLINE_S
from flockmq.quotas import Quotas, may_grant


class _OnItsWay:
    """Of one user. `line`: who is to go first, as it is fair."""

    __slots__ = ("count", "line", "size_bytes", "went")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.line: Final = asyncio.Lock()
        self.went: Final = asyncio.Event()


class PendingStorage:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._of: dict[bytes, _OnItsWay] = {}

    @contextlib.asynccontextmanager
    async def take(self, user: bytes, more_bytes: int) -> AsyncIterator[bool]:
        """Whether the log may keep so much more of this user; it counts until the log has it. What takes no more than
        before waits, too, behind what was to be kept earlier."""
        own = self._of.setdefault(user, _OnItsWay())
        own.count += 1
        try:
            if not await self._is_its_turn(user, own, more_bytes):
                yield False
                return
            try:
                yield True
            finally:
                own.size_bytes -= max(0, more_bytes)
                own.went.set()
        finally:
            own.count -= 1
            if not own.count:
                del self._of[user]

    async def _is_its_turn(self, user: bytes, own: _OnItsWay, more_bytes: int) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOG_WRITE_DEADLINE_S), own.line:
                while more_bytes <= 0 or self._quotas.may_store(user, own.size_bytes + more_bytes):
                    if not self._must_wait(own, more_bytes):
                        own.size_bytes += max(0, more_bytes)
                        return True
                    own.went.clear()
                    await own.went.wait()
        return False

    def _must_wait(self, own: _OnItsWay, more_bytes: int) -> bool:
        return self._quotas.tells() and not may_grant(own.size_bytes, more_bytes, self._quotas.limits.retained_bytes)
