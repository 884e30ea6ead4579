"""Encodes packets (MQTT 3.1, 3.1.1 and 5.0): those a server sends, and the few that FlockMQ sends as a client.

Each function returns complete packets. Only MQTT 5.0 packets get properties, and only those that the packet may have.
`max_bytes`: the receiver's Maximum Packet Size; if needed, reason string and user properties are omitted
[MQTT-3.2.2-19]; 0: no limit.
"""

from __future__ import annotations

from typing import Final

from flockmq.mqtt import frame, properties
from flockmq.mqtt.frame import V5, V31, varint
from flockmq.mqtt.packets import Connect, SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import NO_RETURN_CODE, v3_connack
from flockmq.mqtt.wire import binary, u16

PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"

_FAILURE: Final = 0x80
_ACK_FIRST_BYTE: Final[dict[int, int]] = {
    frame.PUBACK: 0x40,
    frame.PUBREC: 0x50,
    frame.PUBREL: 0x62,
    frame.PUBCOMP: 0x70,
}


def connack(
    version: int, reason: int, session_present: bool = False, own: Properties | None = None, *, max_bytes: int = 0
) -> bytes:
    """CONNACK. With a failure, Session Present is always 0 [MQTT-3.2.2-6]; MQTT 3.1 has no such flag.

    Returns b"" if an older version has no return code for the reason; then the connection is closed without CONNACK.
    """
    if version != V5:
        code = v3_connack(reason)
        if code == NO_RETURN_CODE:
            return b""
        return bytes([0x20, 2, 1 if session_present and code == 0 and version != V31 else 0, code])
    head = bytes([1 if session_present and reason < _FAILURE else 0, reason])
    return _with_properties(frame.CONNACK, 0x20, head, own, max_bytes)


def publish(
    version: int,
    topic: bytes,
    payload: bytes,
    *,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    encoded_properties: bytes = b"",
) -> bytes:
    """PUBLISH. `encoded_properties`: from `properties.encode(frame.PUBLISH, …)`, without their length."""
    first_byte = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    parts = [binary(topic)]
    if qos:
        parts.append(u16(packet_id))
    if version == V5:
        parts.append(varint(len(encoded_properties)))
        parts.append(encoded_properties)
    parts.append(payload)
    return frame.frame(first_byte, b"".join(parts))


def pub_ack(
    packet_type: int,
    version: int,
    packet_id: int,
    reason: int = 0,
    own: Properties | None = None,
    *,
    max_bytes: int = 0,
) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, in the shortest form (section 3.4.2.1)."""
    first_byte = _ACK_FIRST_BYTE[packet_type]
    if version != V5 or (reason == 0 and own is None):
        return bytes([first_byte, 2, packet_id >> 8, packet_id & 0xFF])
    if own is None:
        return bytes([first_byte, 3, packet_id >> 8, packet_id & 0xFF, reason])
    head = bytes([packet_id >> 8, packet_id & 0xFF, reason])
    return _with_properties(packet_type, first_byte, head, own, max_bytes)


def suback(
    version: int, packet_id: int, reasons: list[int], own: Properties | None = None, *, max_bytes: int = 0
) -> bytes:
    """SUBACK: one reason code for each subscription, in order. Older versions have only one failure code, 0x80."""
    if version != V5:
        codes = bytes([reason if reason < _FAILURE else _FAILURE for reason in reasons])
        return frame.frame(0x90, u16(packet_id) + codes)
    return _with_properties(frame.SUBACK, 0x90, u16(packet_id), own, max_bytes, bytes(reasons))


def unsuback(
    version: int, packet_id: int, reasons: list[int], own: Properties | None = None, *, max_bytes: int = 0
) -> bytes:
    """UNSUBACK. Before MQTT 5.0 it has no reason codes."""
    if version != V5:
        return bytes([0xB0, 2, packet_id >> 8, packet_id & 0xFF])
    return _with_properties(frame.UNSUBACK, 0xB0, u16(packet_id), own, max_bytes, bytes(reasons))


def disconnect(version: int, reason: int = 0, own: Properties | None = None, *, max_bytes: int = 0) -> bytes:
    """DISCONNECT. Before MQTT 5.0 it has no body, and a server sends none."""
    if version != V5 or (reason == 0 and own is None):
        return b"\xe0\x00"
    if own is None:
        return bytes([0xE0, 1, reason])
    return _with_properties(frame.DISCONNECT, 0xE0, bytes([reason]), own, max_bytes)


def auth(reason: int, own: Properties | None = None, *, max_bytes: int = 0) -> bytes:
    """AUTH, MQTT 5.0 only."""
    if reason == 0 and own is None:
        return b"\xf0\x00"
    return _with_properties(frame.AUTH, 0xF0, bytes([reason]), own, max_bytes)


def connect(packet: Connect) -> bytes:
    """CONNECT, as a client sends it."""
    will = packet.will
    flags = 0x02 if packet.clean_start else 0
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
    flags |= (0x80 if packet.user_name is not None else 0) | (0x40 if packet.password is not None else 0)
    parts = [binary(b"MQIsdp" if packet.version == V31 else b"MQTT"), bytes([packet.version, flags])]
    parts.append(u16(packet.keep_alive_s))
    if packet.version == V5:
        parts.append(_property_block(frame.CONNECT, packet.properties))
    parts.append(binary(packet.client_id))
    if will is not None:
        if packet.version == V5:
            parts.append(_property_block(properties.WILL, will.properties))
        parts.append(binary(will.topic))
        parts.append(binary(will.payload))
    if packet.user_name is not None:
        parts.append(binary(packet.user_name))
    if packet.password is not None:
        parts.append(binary(packet.password))
    return frame.frame(0x10, b"".join(parts))


def subscribe(
    version: int, packet_id: int, subscriptions: list[SubscribeEntry], own: Properties | None = None
) -> bytes:
    """SUBSCRIBE, as a client sends it."""
    parts = [u16(packet_id)]
    if version == V5:
        parts.append(_property_block(frame.SUBSCRIBE, own))
    for subscription in subscriptions:
        parts.append(binary(subscription.filter))
        parts.append(bytes([subscription.options]))
    return frame.frame(0x82, b"".join(parts))


def unsubscribe(version: int, packet_id: int, filters: list[bytes], own: Properties | None = None) -> bytes:
    """UNSUBSCRIBE, as a client sends it."""
    parts = [u16(packet_id)]
    if version == V5:
        parts.append(_property_block(frame.UNSUBSCRIBE, own))
    for topic_filter in filters:
        parts.append(binary(topic_filter))
    return frame.frame(0xA2, b"".join(parts))


def _property_block(packet: int, own: Properties | None) -> bytes:
    encoded = properties.encode(packet, own)
    return varint(len(encoded)) + encoded


def _with_properties(
    packet: int, first_byte: int, head: bytes, own: Properties | None, max_bytes: int, tail: bytes = b""
) -> bytes:
    whole = frame.frame(first_byte, b"".join([head, _property_block(packet, own), tail]))
    if own is None or not 0 < max_bytes < len(whole):
        return whole
    reason_string, user_properties = own.reason_string, own.user_properties
    own.reason_string = own.user_properties = None
    block = _property_block(packet, own)
    own.reason_string, own.user_properties = reason_string, user_properties
    return frame.frame(first_byte, b"".join([head, block, tail]))
