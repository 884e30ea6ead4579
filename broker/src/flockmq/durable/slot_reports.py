"""Reports about slots for operators: log lines, and an alarm while data of a slot can't be read."""

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
        """Event → slots it happened to."""

    def happened(self, what: str, slot: int) -> None:
        """Log one line for all slots to which the same happens in this event-loop iteration."""
        if not self._happened:
            self._host.soon(self._log)
        self._happened.setdefault(what, []).append(slot)

    def _log(self) -> None:
        happened, self._happened = self._happened, {}
        for what, slots in happened.items():
            log.warning("%d slots of sessions, the first of them %d: %s", len(slots), slots[0], what)

    def slot_unreadable(self, slot: OwnedSlot, why: str) -> None:
        """The slot itself can't be read; `why` "": it can be read again."""
        if why != slot.read_error:
            if why:
                log.error("slot %d of sessions can't be read; it is looked at again: %s", slot.number, why)
            slot.read_error = why
            self.look(slot)

    def look(self, slot: OwnedSlot) -> None:
        """Raise or clear the slot's alarm."""
        self._host.alarm(slot.number, slot.alarm_text())
