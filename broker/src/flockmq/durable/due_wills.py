"""Wills of durable sessions that are due, kept until all receivers have accepted them.

When a will is due, the owner moves it from its session, which may end meanwhile, to a separate Redis hash of the slot
(key: the empty client id). It stays there until all receivers have accepted it. Invariant: a will is in its session,
here, or published. If the owner crashes, the next owner publishes it again with the same message id, so receivers drop
the duplicate.

 field               value
 w, message id (16)  when it was due (cluster time in ms, 8), the MQTT version (1), one PUBLISH packet. If AUTHORED is
                     added to the version, the author of the retained message (rlog/retained_authors.py) stands before
                     the packet. If WITH_AUTHORIZATION is added, the stored authorization stands before both, after its
                     length (4)
 m                   empty; a hash with this field is listed in the slot's set of sessions
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Final

from flockmq.durable.commit_queue import CommitState
from flockmq.durable.session_fields import META
from flockmq.durable.slot_writer import SlotWriter
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, parse_publish, waited
from flockmq.rlog.retained_authors import AUTHOR_BYTES
from flockmq.session_rpc.clean_session_wills import Left

HASH: Final = b""
_FIELD: Final = b"w"
_VALUE: Final = Struct(">QB")
AUTHORED: Final = 0x80
WITH_AUTHORIZATION: Final = 0x40
_LENGTH_BYTES: Final = 4

Give = Callable[[Left, Callable[[], None]], None]
"""Publishes a will; calls its second argument when all receivers have it, or nobody will get it."""


class _Due:
    __slots__ = ("field", "value")

    def __init__(self, origin: bytes, value: bytes) -> None:
        self.field = _FIELD + origin
        self.value = value


class DueWills:
    """The due wills of one slot. When the slot is given up nothing more is written: the next owner finds the wills that
    weren't published. `has_authors`: all cores understand authors and stored authorizations.
    """

    def __init__(
        self, writer: SlotWriter, commit_state: CommitState, give: Give, has_authors: Callable[[], bool]
    ) -> None:
        self._writer = writer
        self._commit_state = commit_state
        self._give = give
        self._has_authors = has_authors
        self._due: dict[bytes, _Due] = {}
        self._unread: dict[bytes, bytes] = {}
        """Fields that can't be read; they are kept."""
        self._is_ours = True

    def __len__(self) -> int:
        return len(self._due)

    def publish(self, left: Left, now_s: float) -> None:
        """Store and publish a will that has a message id. The caller removes it from its session after this call."""
        message, authorization, version = left.will.message, b"", left.will.message.version
        author = message.author if message.retain and self._has_authors() else b""
        if author:
            version |= AUTHORED
        if left.will.authorization and self._has_authors():
            version |= WITH_AUTHORIZATION
            authorization = len(left.will.authorization).to_bytes(_LENGTH_BYTES, "big") + left.will.authorization
        value = _VALUE.pack(self._commit_state.wall_ms(now_s), version) + authorization + author + message.packet
        self._take(_Due(message.origin, value), left)

    def restore(self, fields: dict[bytes, bytes], now_s: float) -> None:
        """Publish wills that a former owner stored. Restores all that can be read, then raises ValueError if some
        can't.
        """
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
        authorization_at = author_at = _VALUE.size
        if version & WITH_AUTHORIZATION:
            authorization_at += _LENGTH_BYTES
            author_at = authorization_at + int.from_bytes(value[_VALUE.size : authorization_at], "big")
        packet_at = author_at + (AUTHOR_BYTES if version & AUTHORED else 0)
        packet = value[packet_at:]
        _, body = remaining_length(packet, 1, 0)
        message = parse_publish(packet, 0, body, len(packet), version & ~(AUTHORED | WITH_AUTHORIZATION))
        message.origin, message.author = field[1:], value[author_at:packet_at]
        left = waited(message, (self._commit_state.wall_ms(now_s) - due_ms) // 1000)
        if left is None:
            self._writer.delete(HASH, field)
        else:
            will = Will(left, 0, value[authorization_at:author_at])
            self._take(_Due(message.origin, value), Left(HASH, None, will))

    def write_again(self) -> None:
        """The store lost data."""
        self._writer.drop(HASH)
        for due in self._due.values():
            self._put(due)
        for field, value in self._unread.items():
            self._writer.put(HASH, META, b"")
            self._writer.put(HASH, field, value)

    def let_go(self) -> None:
        self._is_ours = False
        self._due.clear()

    def _take(self, due: _Due, left: Left) -> None:
        self._due[due.field] = due
        self._put(due)
        self._give(left, partial(self._accepted, due))

    def _put(self, due: _Due) -> None:
        self._writer.put(HASH, META, b"")
        self._writer.put(HASH, due.field, due.value)

    def _accepted(self, due: _Due) -> None:
        if not self._is_ours or self._due.get(due.field) is not due:
            return
        del self._due[due.field]
        if self._due or self._unread:
            self._writer.delete(HASH, due.field)
        else:
            self._writer.drop(HASH)
