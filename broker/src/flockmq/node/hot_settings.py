"""The settings of this node as they are now: its configuration, and what the log changes in it while nodes run.

    an entry of the log ─▶ look ─▶ the configuration with the document's changes ─▶ the parts whose settings differ

Parts register what they take with `on_change`; nothing reads settings for each message. Invariants:

- A document holds as a whole or not at all. If this node can't apply it, it keeps what it had, and raises the alarm
  `settings/NODE` until it can, or until it isn't a member any more.
- All of it holds before the node takes clients.
- Changes for a zone that this node doesn't have, and those that only a later release knows, are left out; the second
  kind raises the alarm, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from flockmq.bounds import SETTINGS_ALARM_LOOK_S
from flockmq.config.hot import Document, is_hot, split
from flockmq.config.load import Loaded, changed
from flockmq.config.schema import Config
from flockmq.errors import ConfigError
from flockmq.membership.cluster import Cluster
from flockmq.node.alarms import end_alarms_of_former_members
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import AUTH, SettingsRevision

log: Final = logging.getLogger(__name__)

ALARM: Final = "settings/"

T = TypeVar("T")


class Revision(NamedTuple):
    """Number 0 has no row: nothing is changed."""

    number: int
    row: SettingsRevision | None

    @property
    def document(self) -> Document:
        return {} if self.row is None else decoded(self.row.document)


class _Part(NamedTuple, Generic[T]):
    """`of` takes a part's settings out of the configuration, and `apply` gives them to the part."""

    of: Callable[[Config], T]
    apply: Callable[[T], None]


class HotSettings:
    """Create it before the log is read. `loaded` is this node's own configuration."""

    def __init__(self, loaded: Loaded, rlog: Rlog) -> None:
        self.current: Config = loaded.config
        self.revision = 0
        """The revision that holds here."""
        self.unused: list[str] = []
        """The paths of the newest revision that don't concern this node."""
        self.fault = ""
        """Why the newest revision, or a part of it, doesn't hold here."""
        self._loaded = loaded
        self._rlog = rlog
        self._parts: list[_Part[Any]] = []
        self._seen = Revision(0, None)
        rlog.on_entry(AUTH, lambda _: self.look())

    def on_change(self, of: Callable[[Config], T], apply: Callable[[T], None]) -> None:
        """Call `apply` with what `of` returns whenever that is another value. It is called on the event loop, and must
        not block it."""
        self._parts.append(_Part(of, apply))

    def newest(self) -> Revision:
        number, row = max(self._rlog.tables.settings.items(), default=(0, None), key=lambda item: item[0])
        return Revision(number, row)

    def look(self) -> None:
        """Apply the newest revision, if this node hasn't tried it yet."""
        newest = self.newest()
        if newest == self._seen:
            return
        self._seen = newest
        try:
            config, unused = self.checked(newest.document)
            self._apply(config)
        except ConfigError as error:
            self._failed(newest.number, str(error))
        except Exception:
            log.exception("revision %d of the settings can't be applied", newest.number)
            self._failed(newest.number, "a defect; see its log")
        else:
            self.revision, self.unused = newest.number, unused
            later = [path for path in unused if not is_hot(path)]
            self.fault = f"it is of a release that can't change {', '.join(later)} while it runs" if later else ""
            log.info("revision %d of the settings holds", newest.number)

    def checked(self, document: Document) -> tuple[Config, list[str]]:
        """The configuration with these changes, and the paths that don't concern this node. Raises ConfigError."""
        changes, unused = split(self._loaded.config, document)
        return changed(self._loaded, changes), unused

    def _apply(self, config: Config) -> None:
        """All parts, or, if one fails, none."""
        former, applied = self.current, list[_Part[Any]]()
        try:
            for part in self._parts:
                if (settings := part.of(config)) != part.of(former):
                    applied.append(part)
                    part.apply(settings)
        except Exception:
            for part in applied:
                part.apply(part.of(former))
            raise
        self.current = config

    def _failed(self, number: int, why: str) -> None:
        self.fault = why
        log.error("revision %d of the settings isn't applied, revision %d stays: %s", number, self.revision, why)

    # The alarm.

    async def watch(self, cluster: Cluster) -> None:
        """Raise and end the alarm, until cancelled."""
        while True:
            await asyncio.sleep(SETTINGS_ALARM_LOOK_S)
            self.look_at_alarm(cluster)

    def look_at_alarm(self, cluster: Cluster) -> None:
        node = cluster.settings.name
        name, text = ALARM + node, ""
        if self.fault:
            text = f"{node} doesn't apply revision {self._seen.number} of the settings as a whole: {self.fault}"
        alarm = self._rlog.tables.alarms.get(name)
        if text and (alarm is None or alarm.text != text):
            self._rlog.raise_alarm(name, text)
        elif alarm is not None and not text:
            self._rlog.clear_alarm(name)
        if cluster.is_leader:
            end_alarms_of_former_members(ALARM, cluster, self._rlog)


def decoded(document: bytes) -> Document:
    """Raises ConfigError."""
    try:
        return msgspec.json.decode(document, type=Document)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the document in the log can't be read: {error}") from None
