"""The fixed header (MQTT 5.0 section 2.1): packet types, flags, Remaining Length.

Splits a stream of bytes into packets: `check_flags(first byte)`, then `remaining_length` from the next byte. Neither
copies, and an incomplete header is no error.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt.errors import malformed

CONNECT: Final = 1
CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBSCRIBE: Final = 8
SUBACK: Final = 9
UNSUBSCRIBE: Final = 10
UNSUBACK: Final = 11
PINGREQ: Final = 12
PINGRESP: Final = 13
DISCONNECT: Final = 14
AUTH: Final = 15

V31: Final = 3
V311: Final = 4
V5: Final = 5

VARINT_MAX: Final = 268_435_455  # four bytes of seven bits (section 1.5.5)
INCOMPLETE: Final = -1

# By packet type: the required flags (section 2.1.3), and the statement that requires them.
_FLAGS: Final[list[int]] = [0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0]
_FLAGS_STATEMENT: Final[dict[int, str]] = {
    PUBREL: "MQTT-3.6.1-1",
    SUBSCRIBE: "MQTT-3.8.1-1",
    UNSUBSCRIBE: "MQTT-3.10.1-1",
    DISCONNECT: "MQTT-3.14.1-1",
    AUTH: "MQTT-3.15.1-1",
}


def check_flags(first_byte: int, version: int) -> None:
    """Refuse a reserved packet type, or flags that the version forbids.

    MQTT 3.1 leaves unused flags undefined (and sets DUP on a resent SUBSCRIBE), so there only QoS 3 is refused. For a
    CONNECT, whose version isn't known yet, pass 0.
    """
    packet_type = first_byte >> 4
    flags = first_byte & 0x0F
    if packet_type == PUBLISH:
        if flags & 6 == 6:
            raise malformed("PUBLISH with QoS 3", "MQTT-3.3.1-4")
        if flags & 14 == 8 and version != V31:
            raise malformed("PUBLISH with DUP set at QoS 0", "MQTT-3.3.1-2")
    elif packet_type == 0 or (packet_type == AUTH and version in (V31, V311)):
        raise malformed(f"reserved packet type {packet_type}", "section 2.1.2")
    elif flags != _FLAGS[packet_type] and version != V31:
        statement = _FLAGS_STATEMENT.get(packet_type, "MQTT-2.1.3-1")
        raise malformed(f"packet type {packet_type} with fixed header flags {flags:#06b}", statement)


def remaining_length(data: bytes, offset: int, version: int = V5) -> tuple[int, int]:
    """Read the Remaining Length at `offset`. Returns (length in bytes, offset of the packet's body).

    Returns (INCOMPLETE, offset) if `data` ends within it. Only MQTT 5.0 refuses an encoding with more bytes than needed
    [MQTT-1.5.5-1]: older devices pad this field to a fixed width, as 3.1.1 allows. Before CONNECT pass 0, and then call
    `check_header`.
    """
    available = len(data) - offset
    if available <= 0:
        return INCOMPLETE, offset
    byte = data[offset]
    if byte < 0x80:
        return byte, offset + 1
    length = byte & 0x7F
    for width in range(1, 4):
        if width >= available:
            return INCOMPLETE, offset
        byte = data[offset + width]
        length |= (byte & 0x7F) << (7 * width)
        if byte < 0x80:
            if byte == 0 and version == V5:
                raise malformed("Remaining Length in more bytes than it needs", "MQTT-1.5.5-1")
            return length, offset + width + 1
    raise malformed("Remaining Length of more than four bytes", "section 1.5.5")


def check_header(header_bytes: int, length: int) -> None:
    """Refuse a padded Remaining Length, when the version is known to be 5.0."""
    if header_bytes > 1 + len(varint(length)):
        raise malformed("Remaining Length in more bytes than it needs", "MQTT-1.5.5-1")


def varint(number: int) -> bytes:
    """A Variable Byte Integer in its shortest form. Raises ValueError outside 0..VARINT_MAX."""
    if 0 <= number < 0x80:
        return bytes([number])
    if not 0 <= number <= VARINT_MAX:
        raise ValueError(f"{number} doesn't fit a Variable Byte Integer (0..{VARINT_MAX})")
    encoded: list[int] = []
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def frame(first_byte: int, body: bytes) -> bytes:
    """A complete packet: first byte, Remaining Length, body."""
    return b"".join([bytes([first_byte]), varint(len(body)), body])
