"""What operators are told of slots: lines in the log, and an alarm while a slot has sessions that can't be read."""

from __future__ import annotations

import logging
from typing import Final

from flockmq.durable.ports import HostPort
from flockmq.durable.slot import OwnedSlot

log: Final = logging.getLogger(__name__)


class SlotReports:
    """One per core."""

    def __init__(self, host: HostPort) -> None:
        self._host = host
        self._happened: dict[str, list[int]] = {}
        """What happened → to which slots."""

    def happened(self, what: str, slot: int) -> None:
        """Log one line for all slots to which the same happens in this turn."""
        if not self._happened:
            self._host.soon(self._log)
        self._happened.setdefault(what, []).append(slot)

    def _log(self) -> None:
        happened, self._happened = self._happened, {}
        for what, slots in happened.items():
            log.warning("%d slots of sessions, the first of them %d: %s", len(slots), slots[0], what)

    def spoilt(self, slot: OwnedSlot, why: str) -> None:
        """The slot itself can't be read; "": it can be again."""
        if why != slot.spoilt:
            if why:
                log.error("slot %d of sessions can't be read; it is looked at again: %s", slot.number, why)
            slot.spoilt = why
            self.look(slot)

    def look(self, slot: OwnedSlot) -> None:
        """Raise the slot's alarm, or end it."""
        self._host.alarm(slot.number, slot.unreadable())
