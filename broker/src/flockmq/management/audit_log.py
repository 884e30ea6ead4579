"""The audit log: who changed what and when through the REST API. It is a table of the cluster's log, with the last
AUDIT_MAX changes.

Invariants:
- Before a change is done, the node writes a line to its own log file.
- Before a change is answered, its row is written, or a warning tells why it isn't.
- A row has a bounded size, whatever names are in the path.
- A refused request has no row, so unauthenticated clients can't push out other rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from flockmq.bounds import AUDIT_ABOUT_MAX_CHARS, AUDIT_DROPPED_TOGETHER_MAX, AUDIT_MAX, AUDIT_PATH_MAX_CHARS
from flockmq.clock import Clock
from flockmq.management.api_keys import Holder
from flockmq.redis.errors import StorageError
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUDIT, AUTH, AuditEntry
from flockmq.rlog.sorted_keys import SortedKeys

log: Final = logging.getLogger(__name__)


class ShownChange(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    who: str
    role: str
    peer: str
    node: str
    method: str
    path: str
    about: str
    status: int


class AuditPage(msgspec.Struct, frozen=True):
    """A page of changes, the latest first. `next` is the value of `after` for the next page, or None on the last
    one."""

    data: list[ShownChange]
    count: int
    next: str | None


class AuditLog:
    """Create it before the log is read. `may_write` tells whether all nodes know this table."""

    def __init__(
        self, node: str, rlog: Rlog, may_write: Callable[[], bool], clock: Clock, token_bytes: Callable[[int], bytes]
    ) -> None:
        self._node = node
        self._rlog = rlog
        self._may_write = may_write
        self._clock = clock
        self._token_bytes = token_bytes
        self._keys: SortedKeys[str] = SortedKeys()
        rlog.on_change(AUDIT.name, self._keys)

    async def note(self, holder: Holder, peer: str, method: str, path: str, about: str, status: int) -> None:
        """Write a row for a change that was done. Returns when the log has it, or when that failed."""
        if not self._may_write():
            return
        now_s, about, path = self._clock.wall(), _cut(about, AUDIT_ABOUT_MAX_CHARS), _cut(path, AUDIT_PATH_MAX_CHARS)
        change = AuditEntry(now_s, holder.name, holder.role, peer, self._node, method, path, about, status)
        key = f"{round(now_s * 1e6):018d}{self._token_bytes(8).hex()}"
        over = min(len(self._keys) + 1 - AUDIT_MAX, AUDIT_DROPPED_TOGETHER_MAX)
        dropped = [AUDIT.delete(oldest) for oldest in self._keys.page(None, max(0, over))]
        try:
            await self._rlog.write(AUTH, [AUDIT.put(key, change), *dropped])
        except StorageError as error:
            log.warning("what %s changed isn't in the audit log: %s", change.who, error)

    def page(self, before: str | None, limit: int) -> AuditPage:
        keys = self._keys.page_back(before, limit)
        rows = [row for key in keys if (row := self._rlog.tables.audit.get(key)) is not None]
        return AuditPage([_shown(row) for row in rows], len(self._keys), keys[-1] if len(keys) == limit else None)


def _shown(row: AuditEntry) -> ShownChange:
    fields = msgspec.structs.asdict(row)
    return ShownChange(at=datetime.fromtimestamp(round(fields.pop("at_s"), 3), UTC), **fields)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
