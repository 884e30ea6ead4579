"""Data representation (MQTT 5.0 section 1.5): integers, strings and binary data in a packet.

A `Reader` reads one packet from `offset` to `end`. If a field is cut short there, the packet is malformed; the error
names the field. Strings stay `bytes`, and are checked once.
"""

from __future__ import annotations

import re
from typing import Final

from flockmq.mqtt.errors import malformed

STRING_MAX_BYTES: Final = 65_535

_NON_CHARACTERS: Final = "\ufdd0-\ufdef" + "".join(
    chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17)
)
_DOUBTFUL: Final = re.compile(f"[\x01-\x1f\x7f-\x9f{_NON_CHARACTERS}]")


class Reader:
    """A cursor in one packet's bytes. `packet`: its name for error messages. `is_strict`: also apply
    `check_characters`.
    """

    __slots__ = ("data", "end", "is_strict", "offset", "packet")

    def __init__(self, packet: str, data: bytes, offset: int, end: int, is_strict: bool = False) -> None:
        self.packet = packet
        self.data = data
        self.offset = offset
        self.end = min(end, len(data))
        self.is_strict = is_strict

    def take(self, length: int, what: str) -> int:
        """Skip `length` bytes and return where they began."""
        start = self.offset
        if length > self.end - start:
            raise malformed(f"{self.packet} cut short in {what}")
        self.offset = start + length
        return start

    def u8(self, what: str) -> int:
        return self.data[self.take(1, what)]

    def u16(self, what: str) -> int:
        at = self.take(2, what)
        return self.data[at] << 8 | self.data[at + 1]

    def u32(self, what: str) -> int:
        at = self.take(4, what)
        data = self.data
        return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]

    def varint(self, what: str) -> int:
        """A Variable Byte Integer. Refused if longer than four bytes or than needed [MQTT-1.5.5-1]."""
        number = 0
        for width in range(4):
            byte = self.u8(what)
            number |= (byte & 0x7F) << (7 * width)
            if byte < 0x80:
                if byte == 0 and width > 0:
                    raise malformed(f"{self.packet}: {what} in more bytes than it needs", "MQTT-1.5.5-1")
                return number
        raise malformed(f"{self.packet}: {what} of more than four bytes", "section 1.5.5")

    def binary(self, what: str) -> bytes:
        length = self.u16(what)
        at = self.take(length, what)
        return self.data[at : at + length]

    def text(self, what: str) -> bytes:
        """A UTF-8 Encoded String, checked, as bytes."""
        text = self.binary(what)
        check_text(text, what)
        self.check_characters(text, what)
        return text

    def check_characters(self, text: bytes, what: str) -> None:
        """In strict mode, check a text that passed the other checks."""
        if self.is_strict:
            check_characters(text, what)

    def packet_id(self) -> int:
        """A Packet Identifier, which is never 0 [MQTT-2.2.1-3]."""
        packet_id = self.u16("Packet Identifier")
        if packet_id == 0:
            raise malformed(f"{self.packet} with Packet Identifier 0", "MQTT-2.2.1-3")
        return packet_id

    def at_end(self) -> bool:
        return self.offset >= self.end

    def expect_end(self) -> None:
        if self.offset != self.end:
            raise malformed(f"{self.packet} with {self.end - self.offset} bytes after its last field")


def check_text(text: bytes, what: str) -> None:
    """Raise PacketError unless `text` is valid UTF-8 [MQTT-1.5.4-1] without U+0000 [MQTT-1.5.4-2].

    Python's decoder refuses surrogates and overlong forms, as RFC 3629 requires. For control characters and
    non-characters see `check_characters`.
    """
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"{what} isn't well-formed UTF-8 at byte {error.start}", "MQTT-1.5.4-1") from None
    if text.find(b"\0") >= 0:
        raise malformed(f"{what} holds U+0000", "MQTT-1.5.4-2")


def check_characters(text: bytes, what: str) -> None:
    """Raise PacketError if `text` has a control character or a Unicode non-character, which a server may refuse
    (section 1.5.4).
    """
    found = _DOUBTFUL.search(text.decode())
    if found is not None:
        raise malformed(f"{what} holds U+{ord(found.group()):04X}, which strict_mode refuses", "section 1.5.4")


def u16(number: int) -> bytes:
    return bytes([number >> 8, number & 0xFF])


def u32(number: int) -> bytes:
    return bytes([number >> 24, number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF])


def binary(data: bytes) -> bytes:
    """Bytes with a length prefix, the form of binary data and of UTF-8 strings. Raises ValueError above
    65,535 bytes.
    """
    if len(data) > STRING_MAX_BYTES:
        raise ValueError(f"a field of {len(data)} bytes doesn't fit two bytes of length")
    return u16(len(data)) + data
