"""Slots: `slot_of` hashes a client id to its slot; `SlotPeer` is a slot as a target of shared deliveries; `SlotMessage`
is a message for slots. No I/O.

A shared delivery goes to a slot as to a node: one target with several members. The dispatcher sends it: it waits while
the slot has no owner, follows the slot when the slot moves, and is accepted when the owner has committed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from mypy_extensions import i64, mypyc_attr

from flockmq.bounds import SLOTS
from flockmq.mqtt.errors import malformed
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Publish, aged, parse_publish
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.sink import FLOWING
from flockmq.routing.targets import NodeTarget, SlotDispatcher

_SLOT_BYTES: Final = 2
_SPREAD: Final = 0x1E3779B1
"""Odd; its product with a CRC fits into 62 bits. Numbered client ids have CRCs with similar upper and lower bits;
without this most fleets of eight clients would have the same owner.
"""


def slot_of(client_id: bytes) -> int:
    """A core owns a range of slots, so the upper bits must be well distributed."""
    checksum: i64 = crc32(client_id)
    return (checksum * _SPREAD & 0xFFFFFFFF) * SLOTS >> 32


@mypyc_attr(acyclic=True)
class SlotPeer(NodeTarget):
    """A slot as a target of shared deliveries. They are prefixed with the slot's number."""

    __slots__ = ("dispatcher", "slot")

    def __init__(self, dispatcher: SlotDispatcher, slot: int) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self.slot = slot

    def slow_way(self, publisher: bytes) -> object | None:
        way = self.dispatcher.way_to(self.slot, publisher)
        return None if way.flow == FLOWING else way

    def put_run(self, version: int, chunk: bytes) -> None:
        self.dispatcher.put_shared_run(self.slot, version, self._addressed(chunk))

    def takes(self, packet_bytes: int) -> bool:
        return self.dispatcher.takes_shared(self.slot, _SLOT_BYTES + packet_bytes)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        return self.dispatcher.put_shared(self.slot, version, self._addressed(packet), on_accepted)

    def put_once(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        return self.dispatcher.put_shared(self.slot, version, self._addressed(packet), on_accepted, origin)

    def put_anew(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """Send it without the id: a slot takes ids in order, and would drop one after a later one as a duplicate."""
        return self.put_acknowledged(version, packet, on_accepted)

    def _addressed(self, chunk: bytes) -> bytes:
        return self.slot.to_bytes(_SLOT_BYTES, "big") + chunk


class SlotPeers:
    """Creates the peer of a slot when it is first needed."""

    def __init__(self, dispatcher: SlotDispatcher) -> None:
        self._dispatcher = dispatcher
        self._peers: dict[int, SlotPeer] = {}

    def peer(self, slot: int) -> SlotPeer:
        known = self._peers.get(slot)
        if known is None:
            known = self._peers[slot] = SlotPeer(self._dispatcher, slot)
        return known


def addressed(packet: bytes) -> tuple[int, bytes]:
    """The slot, and the data for it. Raises PacketError if it is malformed."""
    if len(packet) < _SLOT_BYTES:
        raise malformed("a shared delivery without a slot")
    return int.from_bytes(packet[:_SLOT_BYTES], "big"), packet[_SLOT_BYTES:]


def may_expire(version: int) -> bool:
    """True if data of this version may have a message expiry [section 3.3.2.3.3]."""
    return version & ~SHARED == 5


UNADDRESSED: Final[list[int]] = []
"""The slots of a message from a node of the first release: the receiver determines them itself."""


@mypyc_attr(acyclic=True)
class SlotMessage:
    """One message, or a run of QoS 0 packets, for slots.

    - `source` and `number`: its message id (`routing.message_id`); a run has none: b"" and 0.
    - `publisher`: the client id of a 5.0 publisher, for No Local; else b"".
    - `packet`: one complete PUBLISH, or the run, encoded for MQTT `version` (4 or 5).
    - `slots`: all slots that it is for, including those of other owners.
    """

    __slots__ = ("number", "packet", "publisher", "slots", "source", "version")

    def __init__(
        self, source: bytes, number: int, publisher: bytes, version: int, packet: bytes, slots: list[int] = UNADDRESSED
    ) -> None:
        self.source = source
        self.number = number
        self.publisher = publisher
        self.version = version
        self.packet = packet
        self.slots: list[int] = slots

    def publish(self) -> Publish:
        """Raises PacketError if it is malformed."""
        _, body = remaining_length(self.packet, 1, self.version)
        message = parse_publish(self.packet, 0, body, len(self.packet), self.version)
        message.publisher = self.publisher
        return message

    def aged(self, waited_s: int) -> SlotMessage:
        """The same message after it waited for `waited_s`: its expiry interval is shorter. Raises PacketError."""
        packet = self.packet
        if not may_expire(self.version) or not self.source:
            return self
        if self.version & SHARED:
            slot, chunk = packet[:_SLOT_BYTES], packet[_SLOT_BYTES:]
            (item,) = unwrap(chunk)
            packet = slot + wrap(item.filter, item.number, item.flags, aged(item.run, waited_s))
        else:
            packet = aged(packet, waited_s)
        return SlotMessage(self.source, self.number, self.publisher, self.version, packet, self.slots)
