"""MQTT bytes over a real socket, and nothing of the broker's: what a test sends is exactly what it wrote.

Packets are built here from the specification alone, so that a mistake of the broker's codec can't hide in the test's.
`Wire` is one connection; everything that it awaits has PATIENCE_S, which only a failure uses up.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

PATIENCE_S: Final = 20.0

V31: Final = 3
V311: Final = 4
V5: Final = 5

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(8, 16)

Value = int | bytes | tuple[bytes, bytes]
Properties = Sequence[tuple[int, Value]]
"""(identifier, value) as on the wire: numbers, bytes of strings and data, pairs for user properties."""

# Property identifiers (section 2.2.2.2) and how their values are written.
PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE: Final = 0x19
RESPONSE_INFORMATION: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAXIMUM_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27

_SIZES: Final = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}


# Writing.


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("!H", len(data)) + data


def packet(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((first,)) + varint(len(body)) + body


def _property(identifier: int, value: Value) -> bytes:
    head = bytes((identifier,))
    if isinstance(value, tuple):
        return head + text(value[0]) + text(value[1])
    if isinstance(value, bytes):
        return head + text(value)
    size = _SIZES.get(identifier)
    return head + (varint(value) if size is None else value.to_bytes(size, "big"))


def properties(version: int, entries: Properties | None) -> bytes:
    """The block with its length; nothing before MQTT 5.0."""
    if version != V5:
        return b""
    block = b"".join(_property(identifier, value) for identifier, value in entries or ())
    return varint(len(block)) + block


@dataclass
class Will:
    topic: str | bytes
    payload: bytes = b"gone"
    qos: int = 0
    retain: bool = False
    properties: Properties | None = None


def connect(
    version: int,
    client_id: str | bytes,
    *,
    clean: bool = True,
    keep_alive_s: int = 0,
    properties: Properties | None = None,
    will: Will | None = None,
    user_name: bytes | None = None,
    password: bytes | None = None,
    flags: int | None = None,
    name: bytes | None = None,
    level: int | None = None,
) -> bytes:
    """`flags`, `name` and `level` stand for what would follow from the rest."""
    own = 2 if clean else 0
    parts = [text(client_id)]
    if will is not None:
        own |= 4 | will.qos << 3 | (0x20 if will.retain else 0)
        parts += [_block(version, will.properties), text(will.topic), text(will.payload)]
    if user_name is not None:
        own |= 0x80
        parts.append(text(user_name))
    if password is not None:
        own |= 0x40
        parts.append(text(password))
    head = text(name or (b"MQIsdp" if version == V31 else b"MQTT"))
    head += bytes((version if level is None else level, own if flags is None else flags))
    return packet(0x10, head, struct.pack("!H", keep_alive_s), _block(version, properties), *parts)


def publish(
    version: int,
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
    properties: Properties | None = None,
) -> bytes:
    first = 0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    identifier = b"" if packet_id is None else struct.pack("!H", packet_id)
    return packet(first, text(topic), identifier, _block(version, properties), payload)


def acknowledgement(kind: int, packet_id: int, reason: int | None = None, rest: bytes = b"") -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP; `reason` and the rest only if given."""
    first = kind << 4 | (2 if kind == PUBREL else 0)
    return packet(first, struct.pack("!H", packet_id), b"" if reason is None else bytes((reason,)), rest)


def subscribe(
    version: int, packet_id: int, *filters: tuple[str | bytes, int], properties: Properties | None = None
) -> bytes:
    """`filters`: (filter, options byte)."""
    entries = (text(filter) + bytes((options,)) for filter, options in filters)
    return packet(0x82, struct.pack("!H", packet_id), _block(version, properties), *entries)


def unsubscribe(version: int, packet_id: int, *filters: str | bytes, properties: Properties | None = None) -> bytes:
    return packet(0xA2, struct.pack("!H", packet_id), _block(version, properties), *(text(name) for name in filters))


def disconnect(version: int, reason: int | None = None, properties: Properties | None = None) -> bytes:
    body = b"" if reason is None else bytes((reason,))
    return packet(0xE0, body, b"" if properties is None else _block(version, properties))


def auth(reason: int, entries: Properties) -> bytes:
    return packet(0xF0, bytes((reason,)), _block(V5, entries))


PING: Final = b"\xc0\x00"
_block = properties


# Reading.


@dataclass
class Packet:
    """What a server sent. `reasons` are the codes of CONNACK, SUBACK and the rest, [0] where none was sent."""

    kind: int
    flags: int
    size: int
    packet_id: int = 0
    session_present: int = 0
    reasons: list[int] = field(default_factory=list)
    properties: list[tuple[int, Value]] = field(default_factory=list)
    topic: bytes = b""
    payload: bytes = b""

    @property
    def reason(self) -> int:
        (reason,) = self.reasons
        return reason

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return self.flags & 1 == 1

    @property
    def dup(self) -> bool:
        return self.flags & 8 == 8

    def values(self, identifier: int) -> list[Value]:
        return [value for known, value in self.properties if known == identifier]

    def value(self, identifier: int) -> Value | None:
        found = self.values(identifier)
        assert len(found) <= 1, f"property {identifier} {len(found)} times"
        return found[0] if found else None


def parsed(version: int, first: int, body: bytes) -> Packet:
    """A server's packet; fails where its layout isn't the specification's."""
    kind, flags = first >> 4, first & 15
    made = Packet(kind, flags, 1 + len(varint(len(body))) + len(body))
    at = 0
    if kind == PUBLISH:
        at = 2 + int.from_bytes(body[:2], "big")
        made.topic = body[2:at]
        made.topic.decode()
        if made.qos:
            made.packet_id = int.from_bytes(body[at : at + 2], "big")
            at += 2
        at = _read_properties(version, body, at, made)
        made.payload = body[at:]
        return made
    assert flags == (2 if kind == PUBREL else 0), f"packet type {kind} with flags {flags}"
    if kind == CONNACK:
        assert body[0] & 0xFE == 0, "reserved Connect Acknowledge Flags"
        made.session_present, at = body[0], 2
        made.reasons = [body[1]]
        at = _read_properties(version, body, at, made)
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        made.packet_id = int.from_bytes(body[:2], "big")
        at = _read_reason(version, body, 2, made)
    elif kind in (SUBACK, UNSUBACK):
        made.packet_id = int.from_bytes(body[:2], "big")
        at = _read_properties(version, body, 2, made)
        made.reasons, at = list(body[at:]), len(body)
    elif kind in (DISCONNECT, AUTH):
        assert version == V5, f"packet type {kind} before MQTT 5.0"
        at = _read_reason(version, body, 0, made)
    else:
        assert kind == PINGRESP, f"packet type {kind} isn't a server's"
    assert at == len(body), f"packet type {kind} with {len(body) - at} bytes more than it should have"
    return made


def _read_reason(version: int, body: bytes, at: int, made: Packet) -> int:
    made.reasons = [body[at]] if version == V5 and at < len(body) else [0]
    if version != V5 or at == len(body):
        return at
    return _read_properties(version, body, at + 1, made) if at + 1 < len(body) else at + 1


def _read_properties(version: int, body: bytes, at: int, made: Packet) -> int:
    if version != V5:
        return at
    length, at = _read_varint(body, at)
    end = at + length
    assert end <= len(body), "properties longer than their packet"
    while at < end:
        identifier, at = _read_varint(body, at)
        value: Value
        if identifier == USER_PROPERTY:
            name, at = _read_text(body, at)
            text, at = _read_text(body, at)
            value = (name, text)
        elif identifier in _SIZES:
            value, at = int.from_bytes(body[at : at + _SIZES[identifier]], "big"), at + _SIZES[identifier]
        elif identifier == SUBSCRIPTION_ID:
            value, at = _read_varint(body, at)
        else:
            value, at = _read_text(body, at)
        made.properties.append((identifier, value))
    assert at == end, "a property longer than its block"
    return end


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            assert byte or shift == 7, "a Variable Byte Integer longer than it needs"
            return number, at


def _read_text(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    assert end <= len(body), "a string longer than its packet"
    return body[at + 2 : end], end


# One connection.


class Ended(AssertionError):
    """The server closed the connection where a packet was awaited."""


class Wire:
    """A client that does only what it is told: no acknowledgement, no ping of its own."""

    def __init__(self, port: int, version: int = V5) -> None:
        self.version = version
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""
        self._passed_over: list[Packet] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, *packets: bytes) -> None:
        self.write(b"".join(packets))

    def write(self, data: bytes) -> None:
        """To the transport; another one overrides this and `read`."""
        self.socket.sendall(data)

    def read(self) -> bytes:
        """Some bytes, none at the connection's end."""
        return self.socket.recv(65536)

    def vanish(self) -> None:
        """Close without DISCONNECT."""
        self.socket.close()

    def next(self) -> Packet | None:
        """The next packet, or None when the server has closed the connection."""
        return self._passed_over.pop(0) if self._passed_over else self._received()

    def expect_soon(self, kind: int, packet_id: int) -> Packet:
        """The next packet of this kind and identifier; what comes before it is kept for later."""
        before: list[Packet] = []
        while (found := self.next()) is not None:
            if (found.kind, found.packet_id) == (kind, packet_id):
                self._passed_over = before + self._passed_over
                return found
            before.append(found)
        raise Ended(f"the connection ended after {before}; packet type {kind} was awaited")

    def _received(self) -> Packet | None:
        while True:
            if len(self._read) >= 2:
                length = shift = 0
                for at in range(1, min(5, len(self._read))):
                    length |= (self._read[at] & 0x7F) << shift
                    shift += 7
                    if self._read[at] < 0x80:
                        end = at + 1 + length
                        if len(self._read) >= end:
                            whole, self._read = self._read[:end], self._read[end:]
                            return parsed(self.version, whole[0], whole[at + 1 :])
                        break
            try:
                data = self.read()
            except ConnectionError:
                data = b""
            if not data:
                assert not self._read, "the connection ended within a packet"
                return None
            self._read += data

    def expect(self, kind: int) -> Packet:
        """The next packet, which has to be of this kind."""
        found = self.next()
        if found is None:
            raise Ended(f"the connection ended; packet type {kind} was awaited")
        assert found.kind == kind, f"{found} came; packet type {kind} was awaited"
        return found

    def pending(self) -> list[Packet]:
        """All that the server had to say until now: what comes before the answer to a PINGREQ."""
        self.send(PING)
        packets, self._passed_over = self._passed_over, []
        while (found := self.next()) is not None:
            if found.kind == PINGRESP:
                return packets
            packets.append(found)
        raise Ended(f"the connection ended after {packets}")

    def quiet(self) -> None:
        """Nothing has come."""
        packets = self.pending()
        assert packets == []

    def refused(self, reason: int | None = None) -> None:
        """The server ends the connection: MQTT 5.0 with DISCONNECT and `reason` first, older versions with nothing."""
        if self.version == V5 and reason is not None:
            assert self.expect(DISCONNECT).reason == reason
        found = self.next()
        assert found is None, f"{found} came; the connection's end was awaited"

    # What nearly every test begins with.

    def subscribe(self, *filters: tuple[str | bytes, int], properties: Properties | None = None) -> None:
        """Granted as asked."""
        self.send(subscribe(self.version, 1, *filters, properties=properties))
        assert self.expect_soon(SUBACK, 1).reasons == [options & 3 for _, options in filters]

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        *,
        qos: int = 1,
        packet_id: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Returns when it is acknowledged, so that all its subscribers' connections have it."""
        self.send(
            publish(
                self.version,
                topic,
                payload,
                qos=qos,
                packet_id=packet_id if qos else None,
                retain=retain,
                properties=properties,
            )
        )
        if qos == 0:
            self.send(PING)
            self.expect_soon(PINGRESP, 0)
        elif qos == 1:
            self.expect_soon(PUBACK, packet_id)
        else:
            self.expect_soon(PUBREC, packet_id)
            self.send(acknowledgement(PUBREL, packet_id))
            self.expect_soon(PUBCOMP, packet_id)

    def receive(self) -> Packet:
        """The next message, acknowledged as its QoS asks."""
        message = self.expect(PUBLISH)
        if message.qos == 1:
            self.send(acknowledgement(PUBACK, message.packet_id))
        elif message.qos == 2:
            self.send(acknowledgement(PUBREC, message.packet_id))
            self.expect_soon(PUBREL, message.packet_id)
            self.send(acknowledgement(PUBCOMP, message.packet_id))
        return message

    def receive_in_order(self) -> bytes:
        """The payload of the next message, acknowledged; what else comes between is the answer to acknowledgements."""
        while True:
            found = self.next()
            assert found is not None
            if found.kind == PUBREL:
                self.send(acknowledgement(PUBCOMP, found.packet_id))
            elif found.kind == PUBLISH:
                if found.qos:
                    self.send(acknowledgement(PUBACK if found.qos == 1 else PUBREC, found.packet_id))
                return found.payload


def payloads(packets: Iterable[Packet]) -> list[bytes]:
    return [found.payload for found in packets if found.kind == PUBLISH]
