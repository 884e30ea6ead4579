"""The wire format of messages for members of shared subscriptions on another node or slot owner.

    item = bytes of the filter (u16) · number (u32) · flags (u8) · bytes of the run (u32) · filter · run

The number identifies the member there. The run consists of complete PUBLISH packets of one MQTT version.

Deals say which member of each shared subscription a QoS 2 message was assigned to, so that a resend goes to the same
member. The first node that receives the message proposes a member of each group. The owner of the publisher's session
commits that with the message id, and returns the same to any node that asks again. A member takes the message once, by
its id in that group: a node checks the ids that it has seen, a slot the last number of each source.

    deals = for each group: a hash of its filter (8) · number (u32) · bytes of the owner (u16) · owner

The owner is the incarnation of a node with members, or `#N`, a slot. The number identifies the member there. No I/O.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final

from flockmq.mqtt import frame
from flockmq.mqtt.errors import malformed
from flockmq.mqtt.frame import remaining_length, varint
from flockmq.mqtt.message import Publish, packet_id_offset, parse_publish
from flockmq.routing.message_id import ORIGIN, ORIGIN_BYTES, SOURCE_BYTES, session_source

SHARED: Final = 0x80
"""Flag in the MQTT version of forwarded data: its chunks are items."""
HOPPED: Final = 1
PLAIN: Final = 2
"""Flags: the item was passed on; its packets are QoS 0 without properties."""
HOPS_SHIFT: Final = 2
"""The bits above count how many times it was passed on; the first release has only the flag."""

_HEADER: Final = Struct(">HIBI")
_HASH_BYTES: Final = 8
_DEAL: Final = Struct(">8sIH")


class SharedItem:
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


def unwrap(chunk: bytes) -> list[SharedItem]:
    """Raises PacketError."""
    return unwrap_named(0, chunk, [])


def unwrap_named(version: int, chunk: bytes, names: list[bytes]) -> list[SharedItem]:
    """Unwrap items. If `version` says that each has an id, appends the ids to `names`. Raises PacketError."""
    items: list[SharedItem] = []
    at = 0
    name_bytes = ORIGIN_BYTES if version & ORIGIN else 0
    while at < len(chunk):
        if name_bytes:
            names.append(chunk[at : at + name_bytes])
            at += name_bytes
        filter_at = at + _HEADER.size
        if filter_at > len(chunk):
            raise malformed("a shared delivery that is cut short")
        filter_bytes, number, flags, run_bytes = _HEADER.unpack_from(chunk, at)
        run_at = filter_at + filter_bytes
        at = run_at + run_bytes
        if at > len(chunk):
            raise malformed("a shared delivery that is cut short")
        items.append(SharedItem(chunk[filter_at:run_at], number, flags, chunk[run_at:at]))
    return items


def packets_of(run: bytes) -> list[bytes]:
    """The packets of a run. Raises PacketError if it isn't complete packets."""
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
    """A version 5 PUBLISH of QoS 1 or 2 without the subscription identifiers, which are first in its properties."""
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


class Deal:
    __slots__ = ("number", "owner")

    def __init__(self, owner: str, number: int) -> None:
        self.owner = owner
        self.number = number


def encoded_deal(share_filter: bytes, owner: str, number: int) -> bytes:
    name = owner.encode()
    return _DEAL.pack(_hash(share_filter), number, len(name)) + name


def find_deal(deals: bytes, share_filter: bytes) -> Deal | None:
    """The member for this group; None: none was proposed."""
    if not deals:
        return None
    wanted = _hash(share_filter)
    at = 0
    while at + _DEAL.size <= len(deals):
        group, number, owner_bytes = _DEAL.unpack_from(deals, at)
        owner_at = at + _DEAL.size
        at = owner_at + owner_bytes
        if group == wanted:
            return Deal(deals[owner_at:at].decode(), number)
    return None


def origin_in(origin: bytes, share_filter: bytes) -> bytes:
    """The message's id in this group, with a source of its own and the same number. So, if a slot also gets the message
    through another filter, it keeps a last number for each.
    """
    digest = blake2b(origin[:SOURCE_BYTES] + share_filter, digest_size=SOURCE_BYTES, person=b"group").digest()
    return session_source(digest) + origin[SOURCE_BYTES : 2 * SOURCE_BYTES]


def anew(origin: bytes) -> bytes:
    """The id for a message that is assigned again in its group, because the node that had it is gone. Several nodes may
    assign it again; by this id another node recognizes it, so only one of its members gets it.
    """
    return origin_in(origin, b"anew")


def _hash(share_filter: bytes) -> bytes:
    return blake2b(share_filter, digest_size=_HASH_BYTES).digest()
