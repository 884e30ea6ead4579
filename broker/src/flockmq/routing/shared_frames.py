"""What travels to another node, or to a slot's owner, for a member of a shared subscription there.

    item = bytes of the filter (u16) · number (u32) · flags (u8) · bytes of the run (u32) · filter · run

The number says which member there; the run is whole PUBLISH packets of one MQTT version.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from flockmq.mqtt import frame
from flockmq.mqtt.errors import malformed
from flockmq.mqtt.frame import remaining_length, varint
from flockmq.mqtt.message import Publish, packet_id_offset, parse_publish
from flockmq.routing.message_id import ORIGIN, ORIGIN_BYTES

SHARED: Final = 0x80
"""Added to the MQTT version of what is forwarded: its chunks are items."""
HOPPED: Final = 1
PLAIN: Final = 2
"""Flags: it was passed on; its packets are of QoS 0 and have no properties."""
HOPS_SHIFT: Final = 2
"""How often it was passed on stands above these; the first release knows that it was, alone."""

_HEADER: Final = Struct(">HIBI")


class Item:
    __slots__ = ("filter", "flags", "number", "run")

    def __init__(self, share_filter: bytes, number: int, flags: int, run: bytes) -> None:
        self.filter = share_filter
        self.number = number
        self.flags = flags
        self.run = run


def wrap(share_filter: bytes, number: int, flags: int, run: bytes) -> bytes:
    return _HEADER.pack(len(share_filter), number, flags, len(run)) + share_filter + run


def wrapped_bytes(share_filter: bytes, run: bytes) -> int:
    return _HEADER.size + len(share_filter) + len(run)


def unwrap(chunk: bytes) -> list[Item]:
    """Raises PacketError."""
    return unwrap_named(0, chunk, [])


def unwrap_named(version: int, chunk: bytes, names: list[bytes]) -> list[Item]:
    """`names` gets the ids before the items, where `version` says that there are. Raises PacketError."""
    items: list[Item] = []
    at = 0
    name_bytes = ORIGIN_BYTES if version & ORIGIN else 0
    while at < len(chunk):
        if name_bytes:
            names.append(chunk[at : at + name_bytes])
            at += name_bytes
        filter_at = at + _HEADER.size
        if filter_at > len(chunk):
            raise malformed("a shared delivery that is cut")
        filter_bytes, number, flags, run_bytes = _HEADER.unpack_from(chunk, at)
        run_at = filter_at + filter_bytes
        at = run_at + run_bytes
        if at > len(chunk):
            raise malformed("a shared delivery that is cut")
        items.append(Item(chunk[filter_at:run_at], number, flags, chunk[run_at:at]))
    return items


def packets_of(run: bytes) -> list[bytes]:
    """The packets of a run, each as its bytes. Raises PacketError for what isn't whole packets."""
    packets: list[bytes] = []
    at = 0
    while at < len(run):
        length, body = remaining_length(run, at + 1, 0)
        if length == frame.INCOMPLETE or body + length > len(run):
            raise malformed("a shared delivery whose packets aren't whole")
        packets.append(run[at : body + length])
        at = body + length
    return packets


def message_of(packet: bytes, version: int) -> Publish:
    """Raises PacketError."""
    length, body = remaining_length(packet, 1, 0)
    if length == frame.INCOMPLETE or body + length != len(packet) or packet[0] >> 4 != frame.PUBLISH:
        raise malformed("a shared delivery that isn't one whole PUBLISH")
    return parse_publish(packet, 0, body, len(packet), version)


def without_identifiers(packet: bytes) -> bytes:
    """A version 5 PUBLISH of QoS ≥ 1 without the subscription identifiers that stand first in its properties."""
    properties_at = packet_id_offset(packet) + 2
    length, first = remaining_length(packet, properties_at, 0)
    at = first
    while at < first + length and packet[at] == 0x0B:
        _, at = remaining_length(packet, at + 1, 0)
    if at == first:
        return packet
    _, body = remaining_length(packet, 1, 0)
    rest = packet[body:properties_at] + varint(first + length - at) + packet[at:]
    return packet[:1] + varint(len(rest)) + rest
