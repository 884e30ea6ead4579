"""Wills of sessions that are at the nodes of their connections, kept by the owners of their client ids: such a session
ends with its node, and its will is to be published then, too [MQTT-3.1.2-8].

Whoever publishes such a will gives it the same origin: the node when the connection ends, or the owner when the node
was purged, or is waited for in vain. So who has it takes no second one. What always holds: there are no more of them
than HOME_WILLS_MAX, nor of more than HOME_WILLS_MAX_BYTES; others aren't kept, and counted. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from flockmq import bounds
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, parse_publish
from flockmq.rlog.retained_authors import author_of
from flockmq.routing.message_id import derived_origin
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages

log: Final = logging.getLogger(__name__)

_ONE_BYTES: Final = 400
"""What each takes beside its packet."""


def will_origin(nonce: bytes) -> bytes:
    """Of the will of a connection, by the nonce of its opening; wherever it is published."""
    return derived_origin(nonce, b"will")


def will_of(row: messages.WillRow) -> Will:
    """Raises PacketError."""
    _, body = remaining_length(row.packet, 1, row.version)
    message = parse_publish(row.packet, 0, body, len(row.packet), row.version)
    return Will(message, row.delay_s, row.authorization)


class Left(NamedTuple):
    """What a client left behind, and whose client id it is; b"" and None where the will's authorization alone may say
    so."""

    client_id: bytes
    user: bytes | None
    will: Will


def left_by(client_id: bytes, token: int, nonce: bytes, row: messages.WillRow, user: bytes | None) -> Left:
    """By a connection whose session ended with it, so no delay is left. Raises PacketError."""
    will = will_of(row)
    will.message.origin = will_origin(nonce)
    will.message.author = author_of(client_id, token, is_will=True)
    return Left(client_id, user, will)


class _Guest(NamedTuple):
    client_id: bytes
    incarnation: str
    token: int
    nonce: bytes
    will: messages.WillRow
    user: bytes | None

    def size_bytes(self) -> int:
        return _ONE_BYTES + len(self.client_id) + len(self.will.packet) + len(self.will.authorization)

    def left(self) -> Left:
        """Raises PacketError."""
        return left_by(self.client_id, self.token, self.nonce, self.will, self.user)


class CleanSessionWills:
    """Of one core."""

    def __init__(self) -> None:
        self.dropped = 0
        """Wills that found no room."""
        self.waiting_bytes = 0
        self._count = 0
        self._slots: dict[int, dict[int, _Guest]] = {}
        """Slot → token → whose will it is."""

    def __len__(self) -> int:
        return self._count

    def keep(self, client_id: bytes, incarnation: str, token: int, opening: messages.Opening) -> None:
        """The connection is there; it may have no will."""
        slot = slot_of(client_id)
        self.drop(slot, token)
        if opening.will is None:
            return
        guest = _Guest(client_id, incarnation, token, opening.nonce, opening.will, opening.user)
        size = guest.size_bytes()
        if self._count >= bounds.HOME_WILLS_MAX or self.waiting_bytes + size > bounds.HOME_WILLS_MAX_BYTES:
            self.dropped += 1
            return
        self._slots.setdefault(slot, {})[token] = guest
        self._count += 1
        self.waiting_bytes += size

    def drop(self, slot: int, token: int) -> None:
        """Its node says that the connection is gone: whether its will is published is the node's to know."""
        self._take(slot, token)

    def take(self, slot: int, token: int, but_of: bytes = b"") -> Left | None:
        """What is to be published: nobody hears of its node any more. `but_of`: the nonce of an opening whose will
        isn't."""
        guest = self._take(slot, token)
        if guest is None or (but_of and guest.nonce == but_of):
            return None
        try:
            return guest.left()
        except PacketError as error:
            log.error("what %s said is no will: %s", guest.incarnation, error)
            return None

    def let_go(self, slot: int) -> None:
        """Nodes tell the slot's next owner what they have."""
        for token in list(self._slots.get(slot, ())):
            self._take(slot, token)

    def node_gone(self, incarnation: str) -> Iterator[list[Left]]:
        """What is to be published, a slot a step."""
        for slot in list(self._slots):
            tokens = [token for token, one in self._slots.get(slot, {}).items() if one.incarnation == incarnation]
            taken = [self.take(slot, token) for token in tokens]
            yield [left for left in taken if left is not None]

    def _take(self, slot: int, token: int) -> _Guest | None:
        of_slot = self._slots.get(slot, {})
        guest = of_slot.pop(token, None)
        if guest is not None:
            self._count -= 1
            self.waiting_bytes -= guest.size_bytes()
            if not of_slot:
                del self._slots[slot]
        return guest
