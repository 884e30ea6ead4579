"""The owner's copies of wills of clean sessions. Such a session ends with its node; then the owner publishes its will
[MQTT-3.1.2-8]. No I/O.

The node publishes the will when the connection ends. The owner does so if the node was purged, or didn't confirm a KICK
in time. Both use the same message id, so receivers drop a second copy. Invariant: at most OWNER_WILLS_MAX wills with at
most OWNER_WILLS_MAX_BYTES are kept, one user's with at most OWNER_WILLS_OF_USER_MAX_BYTES; others are dropped and
counted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from flockmq import bounds
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, parse_publish
from flockmq.rlog.retained_order import author_of
from flockmq.routing.message_id import derived_origin
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages

log: Final = logging.getLogger(__name__)

_ONE_BYTES: Final = 400
"""Memory for one will in addition to its packet."""


def will_origin(nonce: bytes) -> bytes:
    """The message id of a connection's will, from the nonce of its CONNECT; the same at every node."""
    return derived_origin(nonce, b"will")


def will_of(row: messages.WillRow) -> Will:
    """Raises PacketError."""
    _, body = remaining_length(row.packet, 1, row.version)
    message = parse_publish(row.packet, 0, body, len(row.packet), row.version)
    return Will(message, row.delay_s, row.authorization)


class PendingWill(NamedTuple):
    """A will to publish, with the client id and user that left it. b"" and None: only the will's stored authorization
    knows.
    """

    client_id: bytes
    user: bytes | None
    will: Will


def left_by(client_id: bytes, token: int, nonce: bytes, row: messages.WillRow, user: bytes | None) -> PendingWill:
    """The will of a clean session that has ended; so its delay is over. Raises PacketError."""
    will = will_of(row)
    will.message.origin = will_origin(nonce)
    will.message.author = author_of(client_id, token, is_will=True)
    return PendingWill(client_id, user, will)


class _KeptWill(NamedTuple):
    client_id: bytes
    incarnation: str
    token: int
    nonce: bytes
    will: messages.WillRow
    user: bytes | None

    def size_bytes(self) -> int:
        return _ONE_BYTES + len(self.client_id) + len(self.will.packet) + len(self.will.authorization)

    def left(self) -> PendingWill:
        """Raises PacketError."""
        return left_by(self.client_id, self.token, self.nonce, self.will, self.user)


class CleanSessionWills:
    """The wills that one core keeps, as the owner of the client ids."""

    def __init__(self) -> None:
        self.dropped = 0
        """Number of wills that found no room."""
        self.waiting_bytes = 0
        self._count = 0
        self._bytes_of: dict[bytes, int] = {}
        """What wills of each user take, where clients have users."""
        self._slots: dict[int, dict[int, _KeptWill]] = {}
        """Slot → token → will."""

    def __len__(self) -> int:
        return self._count

    def keep(self, client_id: bytes, incarnation: str, token: int, request: messages.SessionRequest) -> None:
        """The connection exists: keep its will, if it has one."""
        slot = slot_of(client_id)
        self.drop(slot, token)
        if request.will is None:
            return
        kept = _KeptWill(client_id, incarnation, token, request.nonce, request.will, request.user)
        if not self._has_room(kept):
            self.dropped += 1
            return
        self._slots.setdefault(slot, {})[token] = kept
        self._counted(kept, 1)

    def _has_room(self, will: _KeptWill) -> bool:
        size, of_user = will.size_bytes(), 0 if will.user is None else self._bytes_of.get(will.user, 0)
        return (
            self._count < bounds.OWNER_WILLS_MAX
            and self.waiting_bytes + size <= bounds.OWNER_WILLS_MAX_BYTES
            and of_user + size <= bounds.OWNER_WILLS_OF_USER_MAX_BYTES
        )

    def _counted(self, will: _KeptWill, times: int) -> None:
        size = times * will.size_bytes()
        self._count += times
        self.waiting_bytes += size
        if will.user is not None:
            of_user = self._bytes_of.get(will.user, 0) + size
            if of_user:
                self._bytes_of[will.user] = of_user
            else:
                del self._bytes_of[will.user]

    def drop(self, slot: int, token: int) -> None:
        """The node reports that the connection ended. The node publishes its will, if necessary."""
        self._take(slot, token)

    def take(self, slot: int, token: int, but_of: bytes = b"") -> PendingWill | None:
        """Remove and return the will to publish, because its node is gone. `but_of`: nonce of a CONNECT whose will is
        not published.
        """
        kept = self._take(slot, token)
        if kept is None or (but_of and kept.nonce == but_of):
            return None
        try:
            return kept.left()
        except PacketError as error:
            log.error("%s sent an invalid will: %s", kept.incarnation, error)
            return None

    def let_go(self, slot: int) -> None:
        """The nodes register their connections at the slot's next owner."""
        for token in list(self._slots.get(slot, ())):
            self._take(slot, token)

    def node_gone(self, incarnation: str) -> Iterator[list[PendingWill]]:
        """The wills to publish after a node was purged, one slot in each step."""
        for slot in list(self._slots):
            tokens = [token for token, one in self._slots.get(slot, {}).items() if one.incarnation == incarnation]
            taken = [self.take(slot, token) for token in tokens]
            yield [left for left in taken if left is not None]

    def _take(self, slot: int, token: int) -> _KeptWill | None:
        of_slot = self._slots.get(slot, {})
        kept = of_slot.pop(token, None)
        if kept is not None:
            self._counted(kept, -1)
            if not of_slot:
                del self._slots[slot]
        return kept
