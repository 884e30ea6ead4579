"""Wills that are due, of the sessions that run here, until everybody who is to have them has them.

A will that is due leaves its session, which may end or begin anew meanwhile, for a hash of its slot: that of the client
id b"", which no session has. What always holds: a will is in its session, here, or published; the next owner publishes
what it finds, under the same origin, so who has it already takes no second one.

    field               value
    w, origin (16)      when it was due (ms of the cluster's time, 8), the MQTT version (1), one PUBLISH packet; of a
                        retained one AUTHORED is added to the version, and its author (rlog/retained_authors.py) stands
                        before the packet; with WARRANTED why its client might publish it, behind its length (4), before
                        both
    m                   nothing: a hash with this field is listed among the slot's
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Final

from flockmq.durable.commit_queue import Ledger
from flockmq.durable.session_fields import META
from flockmq.durable.slot_writer import Journal
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, parse_publish, waited
from flockmq.rlog.retained_authors import AUTHOR_BYTES
from flockmq.session_rpc.clean_session_wills import Left

HASH: Final = b""
_FIELD: Final = b"w"
_VALUE: Final = Struct(">QB")
AUTHORED: Final = 0x80
WARRANTED: Final = 0x40
_LENGTH_BYTES: Final = 4

Give = Callable[[Left, Callable[[], None]], None]
"""Have a will published; the second is called when everybody has it, or never will."""


class _Due:
    __slots__ = ("field", "value")

    def __init__(self, origin: bytes, value: bytes) -> None:
        self.field = _FIELD + origin
        self.value = value


class DueWills:
    """Of one slot. When it is let go of nothing more is put: the next owner finds what isn't published. `has_authors`:
    all cores understand whom a will is of, and why.
    """

    def __init__(self, journal: Journal, ledger: Ledger, give: Give, has_authors: Callable[[], bool]) -> None:
        self._journal = journal
        self._ledger = ledger
        self._give = give
        self._has_authors = has_authors
        self._due: dict[bytes, _Due] = {}
        self._unread: dict[bytes, bytes] = {}
        """Fields that can't be read: they stay."""
        self._is_ours = True

    def __len__(self) -> int:
        return len(self._due)

    def publish(self, left: Left, now_s: float) -> None:
        """It has an origin. What is put here comes before whatever takes it out of its session."""
        message, warrant, version = left.will.message, b"", left.will.message.version
        author = message.author if message.retain and self._has_authors() else b""
        if author:
            version |= AUTHORED
        if left.will.warrant and self._has_authors():
            version |= WARRANTED
            warrant = len(left.will.warrant).to_bytes(_LENGTH_BYTES, "big") + left.will.warrant
        value = _VALUE.pack(self._ledger.wall_ms(now_s), version) + warrant + author + message.packet
        self._take(_Due(message.origin, value), left)

    def restore(self, fields: dict[bytes, bytes], now_s: float) -> None:
        """What a former owner didn't see accepted. Raises ValueError, when all are here that can be read, if some
        can't."""
        for field, value in fields.items():
            if field == META:
                continue
            try:
                self._restore(field, value, now_s)
            except (ValueError, IndexError, StructError, PacketError):
                self._unread[field] = value
        if self._unread:
            raise ValueError(f"{len(self._unread)} wills that no version of ours wrote")

    def _restore(self, field: bytes, value: bytes, now_s: float) -> None:
        if field[:1] != _FIELD:
            raise ValueError("a field of another form")
        due_ms, version = _VALUE.unpack_from(value, 0)
        warrant_at = author_at = _VALUE.size
        if version & WARRANTED:
            warrant_at += _LENGTH_BYTES
            author_at = warrant_at + int.from_bytes(value[_VALUE.size : warrant_at], "big")
        packet_at = author_at + (AUTHOR_BYTES if version & AUTHORED else 0)
        packet = value[packet_at:]
        _, body = remaining_length(packet, 1, 0)
        message = parse_publish(packet, 0, body, len(packet), version & ~(AUTHORED | WARRANTED))
        message.origin, message.author = field[1:], value[author_at:packet_at]
        left = waited(message, (self._ledger.wall_ms(now_s) - due_ms) // 1000)
        if left is None:
            self._journal.delete(HASH, field)
        else:
            will = Will(left, 0, value[warrant_at:author_at])
            self._take(_Due(message.origin, value), Left(HASH, None, will))

    def write_again(self) -> None:
        """The store lost something."""
        self._journal.drop(HASH)
        for due in self._due.values():
            self._put(due)
        for field, value in self._unread.items():
            self._journal.put(HASH, META, b"")
            self._journal.put(HASH, field, value)

    def let_go(self) -> None:
        self._is_ours = False
        self._due.clear()

    def _take(self, due: _Due, left: Left) -> None:
        self._due[due.field] = due
        self._put(due)
        self._give(left, partial(self._accepted, due))

    def _put(self, due: _Due) -> None:
        self._journal.put(HASH, META, b"")
        self._journal.put(HASH, due.field, due.value)

    def _accepted(self, due: _Due) -> None:
        if not self._is_ours or self._due.get(due.field) is not due:
            return
        del self._due[due.field]
        if self._due or self._unread:
            self._journal.delete(HASH, due.field)
        else:
            self._journal.drop(HASH)
