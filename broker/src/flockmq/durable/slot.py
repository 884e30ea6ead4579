"""The state of one slot that this core owns, and reports about its data that can't be read. No I/O."""

from __future__ import annotations

import logging
from typing import Final

from flockmq.delivery.slot_acceptance import Deduplicator
from flockmq.durable.due_wills import HASH as WILLS
from flockmq.durable.due_wills import DueWills
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.ports import HostPort
from flockmq.durable.session_fields import USER


class OwnedSlot:
    """`gained_at`: the slot became ours at this log position or before it. `fence`: the owner's name in the
    store. `is_lost`: another core took the slot, and our table will say so soon. `clients`: clients whose sessions
    are here. `unread`: clients whose sessions can't be restored, and why. `unread_users`: their users, if these can
    be read. `was_emptied`: Redis lost data of the slot while it was being loaded. `read_error`: why the slot itself
    can't be read; it is tried again after `looked_at_s`.
    """

    __slots__ = (
        "clients",
        "fence",
        "gained_at",
        "is_lost",
        "loaded",
        "looked_at_s",
        "lost_s",
        "marks",
        "number",
        "read_error",
        "unread",
        "unread_users",
        "was_emptied",
        "wills",
        "writer",
    )  # fmt: skip

    def __init__(self, number: int, gained_at: int, fence: str, writer: SlotWriter, wills: DueWills) -> None:
        self.number = number
        self.gained_at = gained_at
        self.fence = fence
        self.writer = writer
        self.wills = wills
        self.marks = Deduplicator()
        self.clients: dict[bytes, None] = {}
        self.unread: dict[bytes, str] = {}
        self.unread_users: dict[bytes, bytes] = {}
        self.read_error = ""
        self.looked_at_s = 0.0
        self.loaded = False
        self.is_lost = False
        self.lost_s = 0.0
        self.was_emptied = False

    def is_blank(self) -> bool:
        return not self.loaded and not self.is_lost

    def cannot_read(self, client_id: bytes, fields: dict[bytes, bytes], why: str) -> None:
        """A session can't be read. It stays in Redis unchanged."""
        self.unread[client_id] = why
        if USER in fields:
            self.unread_users[client_id] = fields[USER]

    def may_drop_unread(self, client_id: bytes, user: bytes | None) -> bool:
        """True if the session belongs to this user, or client ids aren't bound to users (`user` is None). If its user
        can't be read, no user may drop it.
        """
        return user is None or self.unread_users.get(client_id) == user

    def drop_unread(self, client_id: bytes) -> bool:
        """Delete an unreadable session, because its client or an operator asked for it. Returns False if
        there is none.
        """
        if self.unread.pop(client_id, None) is None:
            return False
        self.unread_users.pop(client_id, None)
        self.writer.drop(client_id)
        return True

    def alarm_text(self) -> str:
        """The alarm text for the operator; "": everything can be read."""
        if self.read_error:
            return f"slot {self.number} of sessions can't be read, its clients wait: {self.read_error}"
        if not self.unread:
            return ""
        client_id, why = next(iter(self.unread.items()))
        what = repr(client_id.decode(errors="backslashreplace")) if client_id != WILLS else "a will"
        number = len(self.unread)
        if number == 1:
            return f"a session of slot {self.number} can't be read, and is kept: {what} ({why})"
        text = f"{number} sessions of slot {self.number} can't be read, and are kept"
        return f"{text}: {what} ({why}), and {number - 1} more"

    def lose(self, now_s: float) -> None:
        self.loaded = False
        self.is_lost = True
        self.lost_s = now_s


log: Final = logging.getLogger(__name__)


class SlotReports:
    """Reports about slots for operators: log lines, and an alarm while data of a slot can't be read. One per core."""

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
                log.error("slot %d of sessions can't be read; it is tried again: %s", slot.number, why)
            slot.read_error = why
            self.look(slot)

    def look(self, slot: OwnedSlot) -> None:
        """Raise or clear the slot's alarm."""
        self._host.alarm(slot.number, slot.alarm_text())
