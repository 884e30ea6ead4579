"""Limits the bytes of one user's retained and delayed messages in writes that the log hasn't confirmed yet.

Other nodes write for the same user without knowing of these. So this node has at most one share of the quota
unconfirmed, as long as other nodes write, too; the rest waits in order. A user can exceed the quota by a few shares at
most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from flockmq.bounds import LOG_WRITE_DEADLINE_S
from flockmq.quotas import Quotas, may_grant


class _Unconfirmed:
    """The unconfirmed writes of one user. `line`: a fair lock that keeps the order."""

    __slots__ = ("count", "finished", "line", "size_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0
        self.line: Final = asyncio.Lock()
        self.finished: Final = asyncio.Event()


class StorageQuota:
    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._of: dict[bytes, _Unconfirmed] = {}

    @contextlib.asynccontextmanager
    async def take(self, user: bytes, more_bytes: int) -> AsyncIterator[bool]:
        """Wait for the user's turn. True if the log may store `more_bytes` more; they count until the log has confirmed
        the write. A write that needs no more bytes than before waits for earlier ones, too."""
        own = self._of.setdefault(user, _Unconfirmed())
        own.count += 1
        try:
            if not await self._is_its_turn(user, own, more_bytes):
                yield False
                return
            try:
                yield True
            finally:
                own.size_bytes -= max(0, more_bytes)
                own.finished.set()
        finally:
            own.count -= 1
            if not own.count:
                del self._of[user]

    def grant(self, user: bytes, more_bytes: int) -> bool | None:
        """As `take`, without waiting; then call `confirmed`. None: it must wait."""
        own = self._of.get(user) or _Unconfirmed()
        if own.line.locked():
            return None
        if more_bytes > 0 and not self._quotas.may_store(user, own.size_bytes + more_bytes):
            return False
        if self._must_wait(user, own, more_bytes):
            return None
        self._of[user] = own
        own.count += 1
        own.size_bytes += max(0, more_bytes)
        return True

    def confirmed(self, user: bytes, more_bytes: int) -> None:
        """The log has a write that was granted, or never gets it."""
        own = self._of[user]
        own.size_bytes -= max(0, more_bytes)
        own.finished.set()
        own.count -= 1
        if not own.count:
            del self._of[user]

    async def _is_its_turn(self, user: bytes, own: _Unconfirmed, more_bytes: int) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOG_WRITE_DEADLINE_S), own.line:
                while more_bytes <= 0 or self._quotas.may_store(user, own.size_bytes + more_bytes):
                    if not self._must_wait(user, own, more_bytes):
                        own.size_bytes += max(0, more_bytes)
                        return True
                    own.finished.clear()
                    await own.finished.wait()
        return False

    def _must_wait(self, user: bytes, own: _Unconfirmed, more_bytes: int) -> bool:
        return self._quotas.must_report() and not may_grant(
            own.size_bytes, more_bytes, self._quotas.limits_of(user).retained_bytes
        )
