"""Properties (MQTT 5.0 section 2.2.2): a table with the name, type, packets and values of each.

`decode` and `encode` use only that table; to add a property, add a row. Invariants of decoded `Properties`: each value
has its type and range, none occurred twice (except user properties), and each is allowed in its packet.
"""

from __future__ import annotations

from typing import Final

from flockmq.bounds import PACKET_MAX_USER_PROPERTIES
from flockmq.mqtt import frame
from flockmq.mqtt.errors import PacketError, malformed, protocol_error
from flockmq.mqtt.frame import VARINT_MAX, varint
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import check_topic_name
from flockmq.mqtt.wire import Reader, binary, u16, u32

WILL: Final = 0  # the properties of a will have rules of their own, so they get a packet type of their own

U8: Final = 0
U16: Final = 1
U32: Final = 2
VARINT: Final = 3
TEXT: Final = 4
BINARY: Final = 5
PAIR: Final = 6

U16_MAX: Final = 0xFFFF
U32_MAX: Final = 0xFFFF_FFFF

MESSAGE_EXPIRY_INTERVAL: Final = 2
USER_PROPERTY: Final = 38
RESPONSE_TOPIC: Final = 8
TOPIC_ALIAS: Final = 35
SUBSCRIPTION_IDENTIFIER: Final = 11


class Properties:
    """The properties of one packet. None: absent. Strings are bytes of valid UTF-8; times are in seconds."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None
    content_type: bytes | None = None
    response_topic: bytes | None = None
    correlation_data: bytes | None = None
    subscription_identifier: int | None = None
    session_expiry_interval: int | None = None
    assigned_client_identifier: bytes | None = None
    server_keep_alive: int | None = None
    authentication_method: bytes | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: bytes | None = None
    server_reference: bytes | None = None
    reason_string: bytes | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: list[tuple[bytes, bytes]] | None = None
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


class Property:
    """A row of the table. `packets`: packet types, or WILL, that may have it. `lowest`..`highest`: its values."""

    __slots__ = ("highest", "identifier", "kind", "lowest", "name", "packets", "section")

    def __init__(
        self, identifier: int, name: str, kind: int, packets: set[int], section: str, lowest: int, highest: int
    ) -> None:
        self.identifier = identifier
        self.name = name
        self.kind = kind
        self.packets = packets
        self.section = section
        self.lowest = lowest
        self.highest = highest


_CONNECT: Final = {frame.CONNECT}
_CONNACK: Final = {frame.CONNACK}
_PUBLISH: Final = {frame.PUBLISH}
_SUBSCRIBE: Final = {frame.SUBSCRIBE}
_BYE: Final = {frame.DISCONNECT}
_AUTH: Final = {frame.AUTH}
_WILL: Final = {WILL}
_HELLO: Final = _CONNECT | _CONNACK
_MESSAGE: Final = _PUBLISH | _WILL
_ACKS: Final = {frame.PUBACK, frame.PUBREC, frame.PUBREL, frame.PUBCOMP, frame.SUBACK, frame.UNSUBACK}
_ANSWERS: Final = _CONNACK | _ACKS | _BYE | _AUTH
_ALL: Final = _HELLO | _MESSAGE | _SUBSCRIBE | {frame.UNSUBSCRIBE} | _ANSWERS

# fmt: off
TABLE: Final[list[Property]] = [
    #        id  name                                 kind    may stand in           rules in       values
    Property(1,  "payload_format_indicator",          U8,     _MESSAGE,              "3.3.2.3.2",   0, 1),
    Property(2,  "message_expiry_interval",           U32,    _MESSAGE,              "3.3.2.3.3",   0, U32_MAX),
    Property(3,  "content_type",                      TEXT,   _MESSAGE,              "3.3.2.3.9",   0, 0),
    Property(8,  "response_topic",                    TEXT,   _MESSAGE,              "3.3.2.3.5",   0, 0),
    Property(9,  "correlation_data",                  BINARY, _MESSAGE,              "3.3.2.3.6",   0, 0),
    Property(11, "subscription_identifier",           VARINT, _PUBLISH | _SUBSCRIBE, "3.8.2.1.2",   1, VARINT_MAX),
    Property(17, "session_expiry_interval",           U32,    _HELLO | _BYE,         "3.1.2.11.2",  0, U32_MAX),
    Property(18, "assigned_client_identifier",        TEXT,   _CONNACK,              "3.2.2.3.7",   0, 0),
    Property(19, "server_keep_alive",                 U16,    _CONNACK,              "3.2.2.3.14",  0, U16_MAX),
    Property(21, "authentication_method",             TEXT,   _HELLO | _AUTH,        "3.1.2.11.9",  0, 0),
    Property(22, "authentication_data",               BINARY, _HELLO | _AUTH,        "3.1.2.11.10", 0, 0),
    Property(23, "request_problem_information",       U8,     _CONNECT,              "3.1.2.11.7",  0, 1),
    Property(24, "will_delay_interval",               U32,    _WILL,                 "3.1.3.2.2",   0, U32_MAX),
    Property(25, "request_response_information",      U8,     _CONNECT,              "3.1.2.11.6",  0, 1),
    Property(26, "response_information",              TEXT,   _CONNACK,              "3.2.2.3.15",  0, 0),
    Property(28, "server_reference",                  TEXT,   _CONNACK | _BYE,       "3.2.2.3.16",  0, 0),
    Property(31, "reason_string",                     TEXT,   _ANSWERS,              "3.2.2.3.9",   0, 0),
    Property(33, "receive_maximum",                   U16,    _HELLO,                "3.1.2.11.3",  1, U16_MAX),
    Property(34, "topic_alias_maximum",               U16,    _HELLO,                "3.1.2.11.5",  0, U16_MAX),
    Property(35, "topic_alias",                       U16,    _PUBLISH,              "3.3.2.3.4",   1, U16_MAX),
    Property(36, "maximum_qos",                       U8,     _CONNACK,              "3.2.2.3.4",   0, 1),
    Property(37, "retain_available",                  U8,     _CONNACK,              "3.2.2.3.5",   0, 1),
    Property(38, "user_properties",                   PAIR,   _ALL,                  "3.1.2.11.8",  0, 0),
    Property(39, "maximum_packet_size",               U32,    _HELLO,                "3.1.2.11.4",  1, U32_MAX),
    Property(40, "wildcard_subscription_available",   U8,     _CONNACK,              "3.2.2.3.11",  0, 1),
    Property(41, "subscription_identifier_available", U8,     _CONNACK,              "3.2.2.3.12",  0, 1),
    Property(42, "shared_subscription_available",     U8,     _CONNACK,              "3.2.2.3.13",  0, 1),
]
# fmt: on

_BY_IDENTIFIER: Final[dict[int, Property]] = {row.identifier: row for row in TABLE}
_BY_PACKET: Final[list[list[Property]]] = [[row for row in TABLE if packet in row.packets] for packet in range(16)]


def decode(packet: int, reader: Reader) -> Properties | None:
    """Read the property length and the properties of a packet from a client. Returns None if there are none."""
    length = reader.varint("Property Length")
    if length == 0:
        return None
    start = reader.take(length, "properties")
    fields = Reader(reader.packet, reader.data, start, start + length, reader.is_strict)
    properties = Properties()
    seen = 0
    while fields.offset < fields.end:
        identifier = fields.varint("Property Identifier")
        row = _BY_IDENTIFIER.get(identifier)
        if row is None or packet not in row.packets:
            raise malformed(f"{reader.packet} with property {identifier}, which it can't have", "section 2.2.2.2")
        if row.kind == PAIR:
            _add_user_property(properties, fields)
            continue
        if seen >> identifier & 1:
            raise protocol_error(f"{reader.packet} with {row.name} twice", f"section {row.section}")
        seen |= 1 << identifier
        if row.kind == TEXT:
            text = fields.text(row.name)
            if identifier == RESPONSE_TOPIC:
                check_topic_name(text, "MQTT-3.3.2-14")
            setattr(properties, row.name, text)
        elif row.kind == BINARY:
            setattr(properties, row.name, fields.binary(row.name))
        else:
            setattr(properties, row.name, _number(packet, row, fields))
    return properties


def encode(packet: int, properties: Properties | None) -> bytes:
    """The properties that `packet` may have, without their length, in the table's order; b"": there are none."""
    if properties is None:
        return b""
    parts: list[bytes] = []
    for row in _BY_PACKET[packet]:
        value = getattr(properties, row.name)
        if value is None:
            continue
        if isinstance(value, int):
            parts.append(_encoded_number(row, value))
        elif isinstance(value, bytes):
            parts.append(bytes([row.identifier]) + binary(value))
        elif isinstance(value, list):
            for name, text in value:
                parts.append(b"&" + binary(name) + binary(text))
    return b"".join(parts)


def subscription_identifier(identifier: int) -> bytes:
    """One encoded Subscription Identifier; it is put before a message's own properties in a PUBLISH to a subscriber."""
    return b"\x0b" + varint(identifier)


def expiry_offset(packet: bytes, at: int) -> int:
    """The offset of the four bytes of the Message Expiry Interval in a valid PUBLISH whose properties (with their
    length) begin at `at`; 0: it has none.
    """
    end = len(packet)
    if at >= end or packet[at] == 0:
        return 0
    length = packet[at] & 0x7F
    shift = 7
    while packet[at] & 0x80:
        at += 1
        length |= (packet[at] & 0x7F) << shift
        shift += 7
    at += 1
    end = at + length
    while at < end:
        identifier = packet[at]
        at += 1
        if identifier == MESSAGE_EXPIRY_INTERVAL:
            return at
        row = _BY_IDENTIFIER[identifier]
        if row.kind == U8:
            at += 1
        elif row.kind == U16:
            at += 2
        elif row.kind == U32:
            at += 4
        elif row.kind == VARINT:
            while packet[at] & 0x80:
                at += 1
            at += 1
        else:
            at += 2 + (packet[at] << 8 | packet[at + 1])
            if row.kind == PAIR:
                at += 2 + (packet[at] << 8 | packet[at + 1])
    return 0


def _number(packet: int, row: Property, fields: Reader) -> int:
    if row.kind == U8:
        number = fields.u8(row.name)
    elif row.kind == U16:
        number = fields.u16(row.name)
    elif row.kind == U32:
        number = fields.u32(row.name)
    else:
        number = fields.varint(row.name)
    if row.identifier == TOPIC_ALIAS and number == 0:
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-8", "PUBLISH with Topic Alias 0")
    if row.identifier == SUBSCRIPTION_IDENTIFIER and packet == frame.PUBLISH:
        raise protocol_error("PUBLISH from a client with a Subscription Identifier", "MQTT-3.3.4-6")
    if not row.lowest <= number <= row.highest:
        raise protocol_error(f"{fields.packet} with {row.name} {number}", f"section {row.section}")
    return number


def _encoded_number(row: Property, number: int) -> bytes:
    identifier = bytes([row.identifier])
    if row.kind == U8:
        return identifier + bytes([number])
    if row.kind == U16:
        return identifier + u16(number)
    if row.kind == U32:
        return identifier + u32(number)
    return identifier + varint(number)


def _add_user_property(properties: Properties, fields: Reader) -> None:
    name = fields.text("name of a user property")
    text = fields.text("value of a user property")
    if properties.user_properties is None:
        properties.user_properties = []
    if len(properties.user_properties) >= PACKET_MAX_USER_PROPERTIES:
        raise PacketError(
            Reason.QUOTA_EXCEEDED,
            "section 3.1.2.11.8",
            f"{fields.packet} with more than {PACKET_MAX_USER_PROPERTIES} user properties",
        )
    properties.user_properties.append((name, text))
