"""Decodes control packets from clients (MQTT 3.1, 3.1.1 and 5.0).

Each function takes a packet's body (the bytes after the fixed header, whose flags `frame.check_flags` has checked). It
returns a packet that obeys every rule that can be checked on the packet alone, or raises PacketError and nothing else.
`is_strict`: also refuse strings that a server may refuse. Rules about the connection's state are checked by the
session. PUBLISH is decoded in `message`; `publish_properties` reads its properties.
"""

from __future__ import annotations

from typing import Final

from flockmq.bounds import PACKET_MAX_FILTERS
from flockmq.mqtt import frame, properties
from flockmq.mqtt.errors import PacketError, malformed, protocol_error
from flockmq.mqtt.frame import V5, V31, V311
from flockmq.mqtt.packets import (
    NO_LOCAL,
    Auth,
    Connect,
    ConnectWill,
    Disconnect,
    Subscribe,
    SubscribeEntry,
    Unsubscribe,
)
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import check_filter, check_topic_name, split_share
from flockmq.mqtt.wire import Reader

_CLEAN_START: Final = 0x02
_WILL: Final = 0x04
_WILL_QOS_SHIFT: Final = 3
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80

# Reason codes that a client may send (sections 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.14.2.1, 3.15.2.1).
_PUBLISH_REASONS: Final = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
_RELEASE_REASONS: Final = {0x00, 0x92}
_REASONS: Final[dict[int, set[int]]] = {
    frame.PUBACK: _PUBLISH_REASONS,
    frame.PUBREC: _PUBLISH_REASONS,
    frame.PUBREL: _RELEASE_REASONS,
    frame.PUBCOMP: _RELEASE_REASONS,
    frame.DISCONNECT: {
        0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99,
    },
    frame.AUTH: {0x18, 0x19},
}  # fmt: skip
_REASONS_STATEMENT: Final[dict[int, str]] = {
    frame.PUBACK: "MQTT-3.4.2-1",
    frame.PUBREC: "MQTT-3.5.2-1",
    frame.PUBREL: "MQTT-3.6.2-1",
    frame.PUBCOMP: "MQTT-3.7.2-1",
    frame.DISCONNECT: "MQTT-3.14.2-1",
    frame.AUTH: "MQTT-3.15.2-1",
}
_ACK_NAMES: Final[dict[int, str]] = {
    frame.PUBACK: "PUBACK",
    frame.PUBREC: "PUBREC",
    frame.PUBREL: "PUBREL",
    frame.PUBCOMP: "PUBCOMP",
}


def connect(body: bytes, is_strict: bool = False) -> Connect:
    """CONNECT (section 3.1). If this raises PacketError, `answer_version(body)` returns the version for CONNACK."""
    reader = Reader("CONNECT", body, 0, len(body), is_strict)
    version = _protocol_version(reader)
    flags = _connect_flags(reader, version)
    keep_alive_s = reader.u16("Keep Alive")
    own = properties.decode(frame.CONNECT, reader) if version == V5 else None
    if own is not None and own.authentication_data is not None and own.authentication_method is None:
        raise protocol_error("CONNECT with Authentication Data but no method", "section 3.1.2.11.10")
    client_id = reader.text("Client Identifier")
    clean_start = flags & _CLEAN_START != 0
    if not client_id and version != V5 and not (version == V311 and clean_start):
        raise PacketError(
            Reason.CLIENT_IDENTIFIER_NOT_VALID,
            "MQTT-3.1.3-8",
            "CONNECT with an empty Client Identifier for a durable session",
        )
    packet = Connect(version, client_id, clean_start=clean_start, keep_alive_s=keep_alive_s, properties=own)
    if flags & _WILL:
        packet.will = _will(reader, version, flags)
    # In MQTT 3.1 the packet may end before a user name or password that its flags announce.
    if flags & _USER_NAME and not (version == V31 and reader.at_end()):
        packet.user_name = reader.text("User Name")
    if flags & _PASSWORD and not (version == V31 and reader.at_end()):
        packet.password = reader.binary("Password")
    reader.expect_end()
    return packet


def answer_version(body: bytes) -> int:
    """The version in which to refuse this CONNECT: 5 if its protocol version byte is 5 or more, else 4.
    Never raises.
    """
    at = 2 + (body[0] << 8 | body[1]) if len(body) >= 2 else 0
    return V5 if 0 < at < len(body) and body[at] >= V5 else V311


def subscribe(version: int, body: bytes, is_strict: bool = False) -> Subscribe:
    """SUBSCRIBE (section 3.8). One malformed filter makes the packet malformed."""
    reader = Reader("SUBSCRIBE", body, 0, len(body), is_strict)
    packet_id = reader.packet_id()
    own = properties.decode(frame.SUBSCRIBE, reader) if version == V5 else None
    subscriptions: list[SubscribeEntry] = []
    while not reader.at_end():
        topic_filter = _filter(reader, len(subscriptions), "MQTT-3.8.3-1")
        options = reader.u8("subscription options")
        _check_options(version, topic_filter, options)
        subscriptions.append(SubscribeEntry(topic_filter, options))
    if not subscriptions:
        raise protocol_error("SUBSCRIBE without a topic filter", "MQTT-3.8.3-2")
    return Subscribe(packet_id, subscriptions, own)


def unsubscribe(version: int, body: bytes, is_strict: bool = False) -> Unsubscribe:
    """UNSUBSCRIBE (section 3.10)."""
    reader = Reader("UNSUBSCRIBE", body, 0, len(body), is_strict)
    packet_id = reader.packet_id()
    own = properties.decode(frame.UNSUBSCRIBE, reader) if version == V5 else None
    filters: list[bytes] = []
    while not reader.at_end():
        filters.append(_filter(reader, len(filters), "MQTT-3.10.3-1"))
    if not filters:
        raise protocol_error("UNSUBSCRIBE without a topic filter", "MQTT-3.10.3-2")
    return Unsubscribe(packet_id, filters, own)


def ack(packet_type: int, version: int, body: bytes, is_strict: bool = False) -> tuple[int, int]:
    """PUBACK, PUBREC, PUBREL or PUBCOMP (sections 3.4 to 3.7): (packet id, reason code). Properties are
    only checked.
    """
    reader = Reader(_ACK_NAMES[packet_type], body, 0, len(body), is_strict)
    packet_id = reader.packet_id()
    reason = 0
    if version == V5 and not reader.at_end():
        reason = _reason(packet_type, reader)
        if not reader.at_end():
            properties.decode(packet_type, reader)
    reader.expect_end()
    return packet_id, reason


def disconnect(version: int, body: bytes, is_strict: bool = False) -> Disconnect:
    """DISCONNECT (section 3.14). An empty body is a normal disconnection."""
    reader = Reader("DISCONNECT", body, 0, len(body), is_strict)
    reason = 0
    own: Properties | None = None
    if version == V5 and not reader.at_end():
        reason = _reason(frame.DISCONNECT, reader)
        if not reader.at_end():
            own = properties.decode(frame.DISCONNECT, reader)
    reader.expect_end()
    if own is not None and own.server_reference is not None:
        raise protocol_error("DISCONNECT from a client with a Server Reference", "section 3.14.2.2.5")
    return Disconnect(reason, own)


def auth(body: bytes, is_strict: bool = False) -> Auth:
    """AUTH (section 3.15). A client's AUTH continues or begins an exchange, so it must name the authentication method,
    although the packet format allows to omit it (section 3.15.2.1).
    """
    reader = Reader("AUTH", body, 0, len(body), is_strict)
    reason = 0
    own: Properties | None = None
    if not reader.at_end():
        reason = _reason(frame.AUTH, reader)
        own = properties.decode(frame.AUTH, reader)
    reader.expect_end()
    if own is None or own.authentication_method is None:
        raise protocol_error("AUTH without an Authentication Method", "section 3.15.2.2.2")
    return Auth(reason, own)


def pingreq(body: bytes) -> None:
    """PINGREQ (section 3.12) has no body."""
    Reader("PINGREQ", body, 0, len(body)).expect_end()


def publish_properties(data: bytes, offset: int, end: int, is_strict: bool = False) -> tuple[Properties | None, int]:
    """The properties of the PUBLISH that ends at `end`. Returns (properties or None, offset of the payload)."""
    if offset < end and data[offset] == 0:
        return None, offset + 1
    reader = Reader("PUBLISH", data, offset, end, is_strict)
    return properties.decode(frame.PUBLISH, reader), reader.offset


def _protocol_version(reader: Reader) -> int:
    name = reader.binary("Protocol Name")
    if name not in (b"MQTT", b"MQIsdp"):
        raise PacketError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION, "MQTT-3.1.2-1", "CONNECT whose Protocol Name isn't 'MQTT' or 'MQIsdp'"
        )
    version = reader.u8("Protocol Version")
    if not (version == V31 if name == b"MQIsdp" else version in (V311, V5)):
        raise PacketError(
            Reason.UNSUPPORTED_PROTOCOL_VERSION,
            "MQTT-3.1.2-2",
            f"CONNECT with Protocol Name '{name.decode()}' and Protocol Version {version}",
        )
    return version


def _connect_flags(reader: Reader, version: int) -> int:
    flags = reader.u8("Connect Flags")
    if flags & 1 and version != V31:
        raise malformed("CONNECT with its reserved flag set", "MQTT-3.1.2-3")
    qos = flags >> _WILL_QOS_SHIFT & 3
    if qos == 3:
        raise malformed("CONNECT with Will QoS 3", "MQTT-3.1.2-12")
    if not flags & _WILL and version != V31:
        if qos:
            raise malformed(f"CONNECT with Will QoS {qos} but no will", "MQTT-3.1.2-11")
        if flags & _WILL_RETAIN:
            raise malformed("CONNECT with Will Retain but no will", "MQTT-3.1.2-13")
    if flags & _PASSWORD and not flags & _USER_NAME and version != V5:
        raise malformed("CONNECT with a password but no user name", "MQTT-3.1.2-22")
    return flags


def _will(reader: Reader, version: int, flags: int) -> ConnectWill:
    own = properties.decode(properties.WILL, reader) if version == V5 else None
    topic = reader.binary("Will Topic")
    check_topic_name(topic)
    reader.check_characters(topic, "Will Topic")
    payload = reader.binary("Will Payload")
    return ConnectWill(topic, payload, flags >> _WILL_QOS_SHIFT & 3, flags & _WILL_RETAIN != 0, own)


def _filter(reader: Reader, count: int, statement: str) -> bytes:
    if count >= PACKET_MAX_FILTERS:
        raise PacketError(
            Reason.QUOTA_EXCEEDED, statement, f"{reader.packet} with more than {PACKET_MAX_FILTERS} topic filters"
        )
    topic_filter = reader.binary("Topic Filter")
    check_filter(topic_filter)
    reader.check_characters(topic_filter, "Topic Filter")
    return topic_filter


def _check_options(version: int, topic_filter: bytes, options: int) -> None:
    if version != V5:
        if options > 2:
            raise malformed(f"SUBSCRIBE with requested QoS byte {options:#04x}", "MQTT-3-8.3-4")
        return
    if options & 0xC0:
        raise malformed("SUBSCRIBE with reserved option bits set", "MQTT-3.8.3-5")
    if options & 3 == 3:
        raise protocol_error("SUBSCRIBE with Maximum QoS 3", "section 3.8.3.1")
    if options & 0x30 == 0x30:
        raise protocol_error("SUBSCRIBE with Retain Handling 3", "section 3.8.3.1")
    if options & NO_LOCAL and split_share(topic_filter)[0]:
        raise protocol_error("SUBSCRIBE with No Local on a shared subscription", "MQTT-3.8.3-4")


def _reason(packet_type: int, reader: Reader) -> int:
    reason = reader.u8("Reason Code")
    if reason not in _REASONS[packet_type]:
        raise protocol_error(
            f"{reader.packet} with Reason Code {reason:#04x}, which a client can't send",
            _REASONS_STATEMENT[packet_type],
        )
    return reason
