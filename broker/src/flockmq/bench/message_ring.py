"""A publisher's messages: a ring that is encoded once, so that publishing is one `send` of a slice.

Each payload begins with the publisher's number and the message's place in the ring. So a lost, repeated, late or
changed message is recognized on arrival. The ring holds at least two windows, so the place identifies the message.
Numbers are written with the letters A to P, because some brokers treat other characters in topics specially, and
because no letter is the first byte of a packet that a subscriber gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flockmq.mqtt import encode, frame

PUBLISHER_LETTERS: Final = 3
PLACE_LETTERS: Final = 5
PAYLOAD_MIN_BYTES: Final = PUBLISHER_LETTERS + PLACE_LETTERS
PUBLISHERS_MAX: Final = 16**PUBLISHER_LETTERS
PLACES_MAX: Final = 16**PLACE_LETTERS
PACKET_IDS_MAX: Final = 65_535
RING_MAX_BYTES: Final = 64 * 1024 * 1024

TO_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"ABCDEFGHIJKLMNOP")
TO_DIGITS: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOP", b"0123456789abcdef")


def letters(number: int, count: int) -> bytes:
    """`number` as `count` letters."""
    return f"{number:0{count}x}".encode().translate(TO_LETTERS)


def number(text: bytes) -> int:
    """The number that `letters` encoded. Raises ValueError."""
    return int(text.translate(TO_DIGITS), 16)


@dataclass(frozen=True, slots=True)
class MessageRing:
    """`count` messages of equal size: as they are written, and as they arrive with packet id 0."""

    count: int
    written: bytes
    written_bytes: int
    """Size of one message, with its link's framing."""
    arriving: bytes
    arriving_bytes: int
    packet_id_offset: int
    payload_offset: int


def places(window: int, topics: int, qos: int) -> int:
    """The number of messages in a ring: at least two windows, full rounds of the topics, at most the number of packet
    ids.
    """
    rounds = max(1, -(-2 * window // topics))
    count = topics * rounds
    if qos and count > PACKET_IDS_MAX:
        count = PACKET_IDS_MAX // topics * topics
    return count


def build(
    publisher: int, topics: list[bytes], count: int, qos: int, payload_bytes: int, framed: Callable[[bytes], bytes]
) -> MessageRing:
    """The ring of one publisher, which uses its topics in turn; all topics have the same length."""
    filler = b"x" * (payload_bytes - PAYLOAD_MIN_BYTES)
    whose = letters(publisher, PUBLISHER_LETTERS)
    written, arriving = [], []
    for place in range(count):
        topic, payload = topics[place % len(topics)], whose + letters(place, PLACE_LETTERS) + filler
        packet = encode.publish(frame.V311, topic, payload, qos=qos)
        arriving.append(packet)
        if qos:
            packet = encode.publish(frame.V311, topic, payload, qos=qos, packet_id=place + 1)
        written.append(framed(packet))
    size = len(arriving[0])
    payload_offset = size - payload_bytes
    return MessageRing(
        count=count,
        written=b"".join(written),
        written_bytes=len(written[0]),
        arriving=b"".join(arriving),
        arriving_bytes=size,
        packet_id_offset=payload_offset - 2,
        payload_offset=payload_offset,
    )
