"""The alarms `sessions-unreadable/SLOT`: the slot's owner raises one for sessions that it can't read.

Invariants: an alarm that can't be written while the log is unavailable is written later. An alarm of a former owner is
cleared once the new owner has loaded all sessions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flockmq.rlog.rlog import Rlog

_UNREADABLE: Final = "sessions-unreadable/"


class SlotAlarms:
    """`runs_here` tells whether this node owns a slot and has loaded it."""

    def __init__(self, rlog: Rlog, runs_here: Callable[[int], bool]) -> None:
        self._rlog = rlog
        self._runs_here = runs_here
        self._texts: dict[int, str] = {}
        """Slot → text of its alarm."""

    def say(self, slot: int, text: str, *, is_ours: bool = True) -> None:
        """As `durable.ports.HostPort.alarm`."""
        if text:
            self._texts[slot] = text
        else:
            self._texts.pop(slot, None)
        if is_ours:
            self._look_at(slot)

    def look(self) -> None:
        names = [name for name, _ in self._rlog.tables.alarms.items() if name.startswith(_UNREADABLE)]
        said = [int(digits) for name in names if (digits := name.removeprefix(_UNREADABLE)).isdigit()]
        for slot in dict.fromkeys((*said, *self._texts)):
            if slot in self._texts or self._runs_here(slot):
                self._look_at(slot)

    def _look_at(self, slot: int) -> None:
        name, text = f"{_UNREADABLE}{slot}", self._texts.get(slot, "")
        stands = self._rlog.tables.alarms.get(name)
        if text and (stands is None or stands.text != text):
            self._rlog.raise_alarm(name, text)
        elif not text and stands is not None:
            self._rlog.clear_alarm(name)
