"""Stores wills in one Redis hash of the slot (key: the empty client id):

- *Due* wills. The owner moves a due will here from its session, because the session may end. The will stays here until
  all receivers have accepted it.
- *Held* wills, of clients that a draining node sent to other nodes. The session may be clean or durable. The will stays
  here until the client reconnects, or until the will is due.
- The message ids of *cancelled* wills: they were held, and their clients reconnected. The draining node may report the
  eviction again, to this owner or to the next one, when the client has left in order.

If the owner crashes, the next owner publishes the due wills again with the same message ids, so receivers drop the
duplicates. Invariants: a will is in its session, in this hash, or published; at most one will per client id is held; a
cancelled will isn't held again for WILL_HELD_S, unless the CONNECT that cancelled it was refused.

 field               value
 w, message id (16)  when it is due (cluster time in ms, 8), the MQTT version (1), one PUBLISH packet. If AUTHORED is
                     added to the version, the author of the retained message (rlog/retained_order.py) stands before
                     the packet. If WITH_AUTHORIZATION is added, the stored authorization stands before both, after its
                     length (4). If HELD is added, the client id stands before all three, after its length (2). Of a
                     cancelled will: `_CANCELLED`
 m                   empty; a hash with this field is listed in the slot's set of sessions
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from struct import Struct
from struct import error as StructError
from typing import Final

from flockmq.bounds import WILL_HELD_S, WILLS_HELD_MAX_BYTES
from flockmq.durable.commit_queue import CommitState
from flockmq.durable.pending_writes import SlotWriter
from flockmq.durable.session_fields import META
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, parse_publish, waited
from flockmq.rlog.retained_order import AUTHOR_BYTES
from flockmq.session_rpc.clean_session_wills import PendingWill

HASH: Final = b""
_FIELD: Final = b"w"
_VALUE: Final = Struct(">QB")
AUTHORED: Final = 0x80
WITH_AUTHORIZATION: Final = 0x40
HELD: Final = 0x20
_FLAGS: Final = AUTHORED | WITH_AUTHORIZATION | HELD
_NO_VERSION: Final = 0
_CANCELLED: Final = _VALUE.pack(0, _NO_VERSION)
_LENGTH_BYTES: Final = 4
_ID_LENGTH_BYTES: Final = 2
_ONE_BYTES: Final = 500
"""Memory for one held will in addition to its stored value."""
_CANCELLED_BYTES: Final = 200
"""Memory for the message id of one cancelled will."""

Give = Callable[[PendingWill, Callable[[], None]], None]
"""Publishes a will; calls its second argument when all receivers have it, or nobody will get it."""


class _Due:
    __slots__ = ("field", "value")

    def __init__(self, origin: bytes, value: bytes) -> None:
        self.field = _FIELD + origin
        self.value = value


class _Held:
    """A will that is held back until `due_s`."""

    __slots__ = ("due", "due_s", "left")

    def __init__(self, due: _Due, left: PendingWill, due_s: float) -> None:
        self.due = due
        self.left = left
        self.due_s = due_s

    def size_bytes(self) -> int:
        return _ONE_BYTES + len(self.due.value)


class HeldBytes:
    """How many wills all slots of one core hold back, how many are cancelled, and the memory of both."""

    def __init__(self) -> None:
        self.count = 0
        self.cancelled = 0
        self.bytes = 0

    def add(self, held: _Held, sign: int) -> None:
        self.count += sign
        self.bytes += sign * held.size_bytes()

    def add_cancelled(self, number: int) -> None:
        self.cancelled += number
        self.bytes += number * _CANCELLED_BYTES

    def have_room(self, size_bytes: int) -> bool:
        return self.bytes + size_bytes <= WILLS_HELD_MAX_BYTES


class DueWills:
    """The due wills of one slot. When the slot is given up nothing more is written: the next owner finds the wills that
    weren't published. `has_authors`: all cores understand authors and stored authorizations.
    """

    def __init__(
        self,
        writer: SlotWriter,
        commit_state: CommitState,
        give: Give,
        has_authors: Callable[[], bool],
        held_bytes: HeldBytes,
    ) -> None:
        self._writer = writer
        self._commit_state = commit_state
        self._give = give
        self._has_authors = has_authors
        self._held_bytes = held_bytes
        self._held: dict[bytes, _Held] = {}
        """By client id."""
        self._cancelled: dict[bytes, float] = {}
        """Field → until when it is kept; the oldest first."""
        self._due: dict[bytes, _Due] = {}
        self._unread: dict[bytes, bytes] = {}
        """Fields that can't be read; they are kept."""
        self._is_ours = True

    def __len__(self) -> int:
        return len(self._due)

    def publish(self, left: PendingWill, now_s: float) -> None:
        """Store and publish a will that has a message id. The caller removes it from its session after this call."""
        self._take(_Due(left.will.message.origin, self._value(left, now_s, b"")), left)

    def hold(self, left: PendingWill, due_s: float, now_s: float) -> None:
        """Publish a will at `due_s`, unless its client reconnects before. Publish it now if too many bytes are held."""
        field = _FIELD + left.will.message.origin
        if field in self._due or field in self._cancelled or self._holds(left.client_id, field):
            return  # The node reported it again.
        self.came_back(left.client_id, now_s)
        held = _Held(_Due(left.will.message.origin, self._value(left, due_s, left.client_id)), left, due_s)
        if not self._held_bytes.have_room(held.size_bytes()):
            self.publish(left, now_s)
            return
        self._keep(held)
        self._put(held.due)

    def came_back(self, client_id: bytes, now_s: float) -> tuple[PendingWill, float] | None:
        """The client has reconnected: cancel the will that is held back for it. Returns it, and when it was due."""
        held = self._held.get(client_id)
        if held is None:
            return None
        self.cancel(client_id, held.left.will.message.origin, now_s)
        return held.left, held.due_s

    def cancel(self, client_id: bytes, origin: bytes, now_s: float) -> None:
        """The client has reconnected: if the eviction of its earlier connection is reported again, its will isn't held
        back.
        """
        field = _FIELD + origin
        if field in self._due:
            return
        if self._holds(client_id, field):
            self._take_held(client_id)
        if self._held_bytes.have_room(_CANCELLED_BYTES):
            self._remember_cancelled(field, now_s)
            self._put(_Due(origin, _CANCELLED))
        else:
            self._delete(field)

    def stayed_away(self, left: PendingWill, due_s: float, now_s: float) -> None:
        """The CONNECT that cancelled this will was refused: hold it back again."""
        self._forget_cancelled(_FIELD + left.will.message.origin)
        self.hold(left, due_s, now_s)

    def tick(self, now_s: float, is_connected: Callable[[bytes], bool]) -> None:
        """Publish held wills that are due, and forget cancelled ones that nobody reports any more."""
        for client_id in [client_id for client_id, held in self._held.items() if held.due_s <= now_s]:
            held = self._take_held(client_id)
            if is_connected(client_id):  # The client reconnected while the slot had another owner.
                self._delete(held.due.field)
            else:
                self.publish(held.left, now_s)
        for field, _ in list(takewhile(lambda kept: kept[1] <= now_s, self._cancelled.items())):
            self._forget_cancelled(field)
            self._delete(field)

    def _value(self, left: PendingWill, due_s: float, held_for: bytes) -> bytes:
        message, who, authorization, version = left.will.message, b"", b"", left.will.message.version
        author = message.author if message.retain and self._has_authors() else b""
        if author:
            version |= AUTHORED
        if left.will.authorization and self._has_authors():
            version |= WITH_AUTHORIZATION
            authorization = len(left.will.authorization).to_bytes(_LENGTH_BYTES, "big") + left.will.authorization
        if held_for:
            version |= HELD
            who = len(held_for).to_bytes(_ID_LENGTH_BYTES, "big") + held_for
        return _VALUE.pack(self._commit_state.wall_ms(due_s), version) + who + authorization + author + message.packet

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
            raise ValueError(f"{len(self._unread)} wills that no version of FlockMQ wrote")

    def _restore(self, field: bytes, value: bytes, now_s: float) -> None:
        if field[:1] != _FIELD:
            raise ValueError("unknown field")
        if value == _CANCELLED:
            self._remember_cancelled(field, now_s)
            return
        due_ms, version = _VALUE.unpack_from(value, 0)
        at, client_id = _VALUE.size, HASH
        if version & HELD:
            id_at = at + _ID_LENGTH_BYTES
            at = id_at + int.from_bytes(value[at:id_at], "big")
            client_id = value[id_at:at]
        authorization_at = author_at = at
        if version & WITH_AUTHORIZATION:
            authorization_at += _LENGTH_BYTES
            author_at = authorization_at + int.from_bytes(value[at:authorization_at], "big")
        packet_at = author_at + (AUTHOR_BYTES if version & AUTHORED else 0)
        packet = value[packet_at:]
        _, body = remaining_length(packet, 1, 0)
        message = parse_publish(packet, 0, body, len(packet), version & ~_FLAGS)
        message.origin, message.author = field[1:], value[author_at:packet_at]
        due, authorization = _Due(message.origin, value), value[authorization_at:author_at]
        if client_id:
            due_s = self._commit_state.monotonic_s(due_ms)
            self._keep(_Held(due, PendingWill(client_id, None, Will(message, 0, authorization)), due_s))
            return
        left = waited(message, (self._commit_state.wall_ms(now_s) - due_ms) // 1000)
        if left is None:
            self._writer.delete(HASH, field)
        else:
            self._take(due, PendingWill(HASH, None, Will(left, 0, authorization)))

    def write_again(self) -> None:
        """The store lost data."""
        self._writer.drop(HASH)
        for due in (*self._due.values(), *(held.due for held in self._held.values())):
            self._put(due)
        for field in self._cancelled:
            self._put(_Due(field[len(_FIELD) :], _CANCELLED))
        for field, value in self._unread.items():
            self._writer.put(HASH, META, b"")
            self._writer.put(HASH, field, value)

    def let_go(self) -> None:
        self._is_ours = False
        self._due.clear()
        for client_id in list(self._held):
            self._take_held(client_id)
        for field in list(self._cancelled):
            self._forget_cancelled(field)

    def _take(self, due: _Due, left: PendingWill) -> None:
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
        self._delete(due.field)

    def _delete(self, field: bytes) -> None:
        if self._due or self._held or self._cancelled or self._unread:
            self._writer.delete(HASH, field)
        else:
            self._writer.drop(HASH)

    def _keep(self, held: _Held) -> None:
        self._held[held.left.client_id] = held
        self._held_bytes.add(held, 1)

    def _holds(self, client_id: bytes, field: bytes) -> bool:
        held = self._held.get(client_id)
        return held is not None and held.due.field == field

    def _take_held(self, client_id: bytes) -> _Held:
        held = self._held.pop(client_id)
        self._held_bytes.add(held, -1)
        return held

    def _remember_cancelled(self, field: bytes, now_s: float) -> None:
        if field not in self._cancelled:
            self._cancelled[field] = now_s + WILL_HELD_S
            self._held_bytes.add_cancelled(1)

    def _forget_cancelled(self, field: bytes) -> None:
        if self._cancelled.pop(field, None) is not None:
            self._held_bytes.add_cancelled(-1)
