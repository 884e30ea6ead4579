"""Members of shared subscriptions whose sessions last, as whoever deals out messages sees them: a slot has so many.

A slot stands among the nodes that have members. The dispatcher brings its shared deliveries: they wait for a slot that
has no owner, go on when it moves, and are accepted when its owner has committed them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

from mypy_extensions import i64, mypyc_attr

from flockmq.bounds import SLOTS
from flockmq.mqtt.errors import malformed
from flockmq.mqtt.message import aged
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.sink import Sink
from flockmq.routing.targets import NodeTarget, SlotDispatcher

_SLOT_BYTES: Final = 2
_SPREAD: Final = 0x1E3779B1
"""Odd, and its product with a CRC fits into 62 bits. Client ids that are numbered have CRCs that are alike in their
upper and in their lower bits; by those alone most fleets of eight would have one owner."""


def slot_of(client_id: bytes) -> int:
    """A core has a range of slots, so it is the upper bits that must be spread."""
    checksum: i64 = crc32(client_id)
    return (checksum * _SPREAD & 0xFFFFFFFF) * SLOTS >> 32


@mypyc_attr(acyclic=True)
class SlotPeer(NodeTarget):
    """What is dealt out to it stands behind the slot's number."""

    __slots__ = ("dispatcher", "slot")

    def __init__(self, turn: list[Sink], dispatcher: SlotDispatcher, slot: int) -> None:
        super().__init__(turn, 5)
        self.dispatcher = dispatcher
        self.slot = slot

    def way(self, publisher: bytes) -> Sink:
        return self.dispatcher.way_to(self.slot, publisher)

    def put_run(self, version: int, chunk: bytes) -> None:
        self.dispatcher.put_shared_run(self.slot, version, self._addressed(chunk))

    def takes(self, packet_bytes: int) -> bool:
        return self.dispatcher.takes_shared(self.slot, _SLOT_BYTES + packet_bytes)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        return self.dispatcher.put_shared(self.slot, version, self._addressed(packet), on_accepted)

    def put_once(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        return self.dispatcher.put_shared(self.slot, version, self._addressed(packet), on_accepted, origin)

    def _addressed(self, chunk: bytes) -> bytes:
        return self.slot.to_bytes(_SLOT_BYTES, "big") + chunk


class SlotPeers:
    """Each slot's, once it is asked for."""

    def __init__(self, turn: list[Sink], dispatcher: SlotDispatcher) -> None:
        self._turn = turn
        self._dispatcher = dispatcher
        self._peers: dict[int, SlotPeer] = {}

    def peer(self, slot: int) -> SlotPeer:
        known = self._peers.get(slot)
        if known is None:
            known = self._peers[slot] = SlotPeer(self._turn, self._dispatcher, slot)
        return known


def addressed(packet: bytes) -> tuple[int, bytes]:
    """The slot, and what is for it. Raises PacketError for what no node of ours sends."""
    if len(packet) < _SLOT_BYTES:
        raise malformed("a shared delivery without a slot")
    return int.from_bytes(packet[:_SLOT_BYTES], "big"), packet[_SLOT_BYTES:]


def grows_old(version: int) -> bool:
    """What goes under this version may have an expiry [section 3.3.2.3.3]."""
    return version & ~SHARED == 5


def aged_packet(version: int, packet: bytes, waited_s: int) -> bytes:
    """What a message for a slot carries, after it waited so long: a PUBLISH, or a shared delivery of one. Raises
    PacketError.
    """
    if not grows_old(version):
        return packet
    if not version & SHARED:
        return aged(packet, waited_s)
    (item,) = unwrap(packet[_SLOT_BYTES:])
    return packet[:_SLOT_BYTES] + wrap(item.filter, item.number, item.flags, aged(item.run, waited_s))
