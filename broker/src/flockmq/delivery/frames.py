"""The frames of a cluster link that carry messages. `membership.frames` has the others, and the frame header.

    FORWARD   body = MQTT version (u8) · a run of whole PUBLISH packets
    NUMBERED  body = number (u64) · MQTT version (u8) · a run of whole PUBLISH packets
              (with 0x80 added to the version: shared deliveries, `routing.shared_frames`)
    DELIVERY  body = packets for clients of sessions that run on the sender, `session_rpc.messages.deliveries`
    BATCH     body = number (u64; 0: runs of QoS 0) · epoch (u64) · messages for sessions that run on the receiver, each
              source (8 bytes) · number (u64) · bytes of the publisher (u16) · MQTT version (u8) · bytes of the packet
              (u32) · publisher · packet
    ADDRESSED the same, but each message names its slots; not for runs of QoS 0. body = number (u64) · epoch (u64) ·
              bytes of the addresses (u32) · addresses · messages; an address is the number of slots (u16) · each
              (u16), or, of more than 64, 0xFFFF · a bit for each slot (128 bytes, the lowest first)

Packets are in them unencoded: no msgpack, no copy of the payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct as Layout
from struct import pack, unpack_from
from typing import Final

from flockmq.bounds import SLOTS
from flockmq.membership.frames import FrameError
from flockmq.routing.slots import UNADDRESSED, SlotMessage

FORWARD: Final = 1
NUMBERED: Final = 2
DELIVERY: Final = 5
BATCH: Final = 6
ADDRESSED: Final = 8
"""Since cluster version 2."""

_FORWARD: Final = Layout(">IBB")
_NUMBERED: Final = Layout(">IBQB")
_NUMBERED_BODY: Final = Layout(">QB")
_BATCH: Final = Layout(">IBQQ")
_BATCH_BODY: Final = Layout(">QQ")
_ADDRESSED: Final = Layout(">IBQQI")
_ADDRESSED_BODY: Final = Layout(">QQI")
_MESSAGE: Final = Layout(">8sQHBI")
_COUNT: Final = Layout(">H")
_ONE: Final = Layout(">HH")
_MANY: Final = 0xFFFF
_FEW_MAX: Final = 64
_ALL_BYTES: Final = SLOTS // 8


def forward_header(version: int, chunk_bytes: int) -> bytes:
    """The header before the chunks of a FORWARD frame."""
    return _FORWARD.pack(chunk_bytes + 1, FORWARD, version)


def numbered_header(number: int, version: int, chunk_bytes: int) -> bytes:
    """The header before the chunks of a NUMBERED frame."""
    return _NUMBERED.pack(chunk_bytes + 9, NUMBERED, number, version)


def batch_frame(number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> list[bytes]:
    """A whole BATCH frame, packets by reference. `size_bytes`: the sum of `delivery.batch_queue.size_of` of the
    messages."""
    parts = [_BATCH.pack(_BATCH_BODY.size + size_bytes, BATCH, number, epoch)]
    return _with_messages(parts, messages)


def addressed_frame(number: int, epoch: int, messages: Sequence[SlotMessage], size_bytes: int) -> list[bytes]:
    """A whole ADDRESSED frame, in the same way."""
    addresses = b"".join([_address(message.slots) for message in messages])
    body_bytes = _ADDRESSED_BODY.size + len(addresses) + size_bytes
    parts = [_ADDRESSED.pack(body_bytes, ADDRESSED, number, epoch, len(addresses)) + addresses]
    return _with_messages(parts, messages)


def _address(slots: list[int]) -> bytes:
    if len(slots) == 1:
        return _ONE.pack(1, slots[0])
    if len(slots) <= _FEW_MAX:
        return pack(f">{len(slots) + 1}H", len(slots), *slots)
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return _COUNT.pack(_MANY) + bits.to_bytes(_ALL_BYTES, "little")


def _with_messages(parts: list[bytes], messages: Sequence[SlotMessage]) -> list[bytes]:
    for message in messages:
        publisher, packet = message.publisher, message.packet
        head = _MESSAGE.pack(message.source, message.number, len(publisher), message.version, len(packet))
        parts.append(head + publisher)
        parts.append(packet)
    return parts


def parse_forward(body: bytes) -> tuple[int, bytes]:
    """(version, chunk). Raises FrameError."""
    if len(body) < 1:
        raise FrameError("a FORWARD frame without a version")
    return body[0], body[1:]


def parse_numbered(body: bytes) -> tuple[int, int, bytes]:
    """(number, version, chunk). Raises FrameError."""
    if len(body) < 9:
        raise FrameError(f"a NUMBERED frame of {len(body)} bytes")
    number, version = _NUMBERED_BODY.unpack_from(body)
    return number, version, body[9:]


def parse_batch(body: bytes) -> tuple[int, int, list[SlotMessage]]:
    """(number, epoch, messages). Raises FrameError."""
    if len(body) < _BATCH_BODY.size:
        raise FrameError(f"a BATCH frame of {len(body)} bytes")
    number, epoch = _BATCH_BODY.unpack_from(body)
    return number, epoch, _messages(body, _BATCH_BODY.size, repeat(UNADDRESSED))


def parse_addressed(body: bytes) -> tuple[int, int, list[SlotMessage]]:
    """(number, epoch, messages). Raises FrameError."""
    if len(body) < _ADDRESSED_BODY.size:
        raise FrameError(f"an ADDRESSED frame of {len(body)} bytes")
    number, epoch, addresses_bytes = _ADDRESSED_BODY.unpack_from(body)
    at, end = _ADDRESSED_BODY.size, _ADDRESSED_BODY.size + addresses_bytes
    if number == 0 or end > len(body):
        raise FrameError("an ADDRESSED frame without a number, or that ends within its addresses")
    addresses = list(_addresses(body, at, end))
    messages = _messages(body, end, iter(addresses))
    if len(messages) != len(addresses):
        raise FrameError(f"an ADDRESSED frame of {len(messages)} messages and {len(addresses)} addresses")
    return number, epoch, messages


def _addresses(body: bytes, at: int, end: int) -> Iterator[list[int]]:
    while at < end:
        slots_at = at + _COUNT.size
        count = _COUNT.unpack_from(body, at)[0] if slots_at <= end else 0
        at = slots_at + (_ALL_BYTES if count == _MANY else count * _COUNT.size)
        if count == 0 or at > end:
            raise FrameError("an ADDRESSED frame with an address of no slot, or that ends within one")
        if count == _MANY:
            bits = int.from_bytes(body[slots_at:at], "little")
            yield [slot for slot in range(SLOTS) if bits >> slot & 1]
        else:
            yield list(unpack_from(f">{count}H", body, slots_at))


def _messages(body: bytes, at: int, addresses: Iterator[list[int]]) -> list[SlotMessage]:
    messages: list[SlotMessage] = []
    end = len(body)
    while at < end:
        publisher_at = at + _MESSAGE.size
        if publisher_at > end:
            raise FrameError("a BATCH frame that ends within a message's head")
        source, message_number, publisher_bytes, version, packet_bytes = _MESSAGE.unpack_from(body, at)
        packet_at = publisher_at + publisher_bytes
        at = packet_at + packet_bytes
        if at > end:
            raise FrameError("a BATCH frame that ends within a message")
        if (slots := next(addresses, None)) is None:
            raise FrameError("an ADDRESSED frame with a message that has no address")
        publisher, packet = body[publisher_at:packet_at], body[packet_at:at]
        messages.append(SlotMessage(source, message_number, publisher, version, packet, slots))
    return messages
