"""Changes the settings while nodes run: checks a change, and writes it to the log as the next revision.

    the newest document ─▶ with the patch ─▶ checked as each node will ─▶ written ─▶ was it the first of its number?

Each node applies a revision when it reads it (hot_settings.py). If another node wrote a revision of the same number
first, this one has no effect, and the change is made again to the document of that one, unless it names the revision
that it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from flockmq.auth.admin import Missing
from flockmq.bounds import SETTINGS_MAX_BYTES, SETTINGS_RACES_MAX, SETTINGS_REVISIONS_MAX
from flockmq.clock import Clock
from flockmq.config.hot import Document, check_patch, difference, merged, shown
from flockmq.errors import ConfigError
from flockmq.management.answers import RequestRefused
from flockmq.management.settings_rows import RevisionRow, SettingsShown, SettingsView
from flockmq.node.hot_settings import HotSettings, Revision, decoded
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, SETTINGS, SettingsRevision

_encode: Final = msgspec.json.Encoder(order="sorted").encode


class SettingsAdmin(SettingsView):
    """One per node. `may_write` tells whether all nodes know this table; `clock` gives the cluster's time."""

    def __init__(self, hot: HotSettings, rlog: Rlog, may_write: Callable[[], bool], clock: Clock) -> None:
        self._hot = hot
        self._rlog = rlog
        self._may_write = may_write
        self._clock = clock

    def shown(self) -> SettingsShown:
        newest = self._hot.newest()
        return SettingsShown(
            revision=newest.number,
            at=None if newest.row is None else _time(newest.row.at_s),
            by=None if newest.row is None else newest.row.by,
            document=newest.document,
            settings=shown(self._hot.current),
            unused=self._hot.unused,
            fault=self._hot.fault,
        )

    def history(self) -> Sequence[RevisionRow]:
        rows = sorted(self._rlog.tables.settings.items(), key=lambda item: item[0], reverse=True)
        return [
            RevisionRow(
                revision=number,
                at=_time(row.at_s),
                by=row.by,
                patch=decoded(row.patch),
                document=decoded(row.document),
            )
            for number, row in rows[:SETTINGS_REVISIONS_MAX]
        ]

    async def change(self, patch: object, by: str, expected: int | None) -> SettingsShown:
        try:
            check_patch(patch)
        except ConfigError as error:
            raise RequestRefused(400, str(error)) from None
        assert isinstance(patch, dict)
        return await self._write(lambda newest: merged(newest.document, patch), by, expected)

    async def restore(self, revision: int, by: str, expected: int | None) -> SettingsShown:
        row = self._rlog.tables.settings.get(revision)
        if row is None and revision != 0:
            raise Missing(f"there is no revision {revision}; take one of /api/v1/settings/history, or 0, the empty one")
        document = {} if row is None else decoded(row.document)
        return await self._write(lambda _: document, by, expected)

    async def _write(self, changed: Callable[[Revision], Document], by: str, expected: int | None) -> SettingsShown:
        """Write what `changed` makes of the newest revision. Raises RequestRefused, StorageError."""
        if not self._may_write():
            why = "some nodes know of no settings in the log yet; try again when all of them are upgraded"
            raise RequestRefused(503, f"{why}, and cluster.version_settle is over")
        for _ in range(SETTINGS_RACES_MAX):
            await self._rlog.catch_up(AUTH)
            newest = self._hot.newest()
            if expected not in (None, newest.number):
                raise RequestRefused(
                    412, f"the settings are at revision {newest.number}, not {expected}: look at them again"
                )
            document = changed(newest)
            patch = difference(newest.document, document)
            if not patch or await self._is_written(newest.number + 1, document, patch, by):
                self._hot.look()
                return self.shown()
        raise RequestRefused(409, "others changed the settings at the same time, again and again; try again")

    async def _is_written(self, number: int, document: Document, patch: Document, by: str) -> bool:
        """Whether this is the revision of that number now. Raises RequestRefused, StorageError."""
        raw = _encode(document)
        if len(raw) > SETTINGS_MAX_BYTES:
            raise RequestRefused(413, f"the changes would have {len(raw)} bytes; {SETTINGS_MAX_BYTES} is the most")
        try:
            self._hot.checked(document)
        except ConfigError as error:
            raise RequestRefused(400, str(error)) from None
        row = SettingsRevision(raw, _encode(patch), by, self._clock.wall())
        numbers = [number for number, _ in self._rlog.tables.settings.items()]
        old = [SETTINGS.delete(former) for former in numbers if former <= number - SETTINGS_REVISIONS_MAX]
        await self._rlog.write(AUTH, [SETTINGS.put(number, row), *old])
        return self._rlog.tables.settings.get(number) == row


def _time(at_s: float) -> datetime:
    return datetime.fromtimestamp(round(at_s, 3), UTC)
