"""A PUBLISH in the broker, and the packets that its receivers get.

A message is kept as the packet in which it arrived, and read by offset. A subscriber with the same protocol version and
QoS gets the same bytes; every other form is encoded once for all its receivers. Invariants: `packet` is one complete,
valid PUBLISH with DUP 0. Topic aliases are resolved before a message is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

from flockmq.mqtt import decode, encode, frame, properties
from flockmq.mqtt.errors import PacketError, malformed, protocol_error
from flockmq.mqtt.frame import remaining_length, varint
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topics import DELAYED

if TYPE_CHECKING:
    from flockmq.mqtt.topic_aliases import IncomingAliases

NO_EXPIRY: Final = -1


def packet_id_offset(packet: bytes) -> int:
    """The offset of the packet id in a QoS 1 or 2 PUBLISH (QoS 0: of the properties or payload)."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    return at + 3 + (packet[at + 1] << 8 | packet[at + 2])


def with_packet_id(packet: bytes, packet_id: int) -> bytes:
    """The same QoS 1 or 2 PUBLISH with another packet id."""
    at = packet_id_offset(packet)
    return packet[:at] + bytes((packet_id >> 8, packet_id & 0xFF)) + packet[at + 2 :]


def as_duplicate(packet: bytes) -> bytes:
    """The same QoS 1 or 2 PUBLISH with DUP set, for a resend [MQTT-3.3.1-1]."""
    return bytes((packet[0] | 8,)) + packet[1:]


@mypyc_attr(acyclic=True)
class StoredMessage:
    """A waiting packet. `expires_s`: when it expires, as monotonic time; 0: never. `share`: the share filter
    (`$share/group/filter`) through which it came; b"": none. `version`: that of the packet.
    """

    __slots__ = ("expires_s", "packet", "share", "version")

    def __init__(self, packet: bytes, version: int, expires_s: float, share: bytes = b"") -> None:
        self.packet = packet
        self.version = version
        self.expires_s = expires_s
        self.share = share

    def under(self, packet: bytes) -> StoredMessage:
        """The same message with another packet id."""
        return self if packet is self.packet else StoredMessage(packet, self.version, self.expires_s, self.share)

    def now(self, now_s: float) -> bytes:
        """The packet with its remaining message expiry [MQTT-3.3.2-6]; b"": it has expired [MQTT-3.3.2-5]."""
        if self.expires_s != 0.0 and self.expires_s <= now_s:
            return b""
        return self.started(now_s)

    def started(self, now_s: float) -> bytes:
        """The packet if its delivery has started: it no longer expires, but its expiry interval gets shorter."""
        if self.expires_s == 0.0 or self.version != 5:
            return self.packet
        return with_expiry(self.packet, max(0.0, self.expires_s - now_s))


def packet_of(entry: StoredMessage | bytes) -> bytes:
    return entry.packet if isinstance(entry, StoredMessage) else entry


def topic_of(packet: bytes) -> bytes:
    """The topic of a complete PUBLISH."""
    _, body = remaining_length(packet, 1, 0)
    return packet[body + 2 : body + 2 + (packet[body] << 8 | packet[body + 1])]


def with_expiry(packet: bytes, left_s: float) -> bytes:
    """A PUBLISH whose Message Expiry Interval, if it has one, is set to `left_s`, rounded up. It never grows: two
    readings of the clock may give a little more than it says.
    """
    at = properties.expiry_offset(packet, packet_id_offset(packet) + (2 if packet[0] & 6 else 0))
    if at == 0:
        return packet
    seconds = int(left_s)
    if seconds < left_s:
        seconds += 1
    if seconds >= int.from_bytes(packet[at : at + 4], "big"):
        return packet
    return packet[:at] + seconds.to_bytes(4, "big") + packet[at + 4 :]


def aged(packet: bytes, waited_s: int) -> bytes:
    """A version 5 PUBLISH that has waited: reduces its Message Expiry Interval, if it has one, by `waited_s`
    [MQTT-3.3.2-6]; 0: it has expired.
    """
    at = properties.expiry_offset(packet, packet_id_offset(packet) + (2 if packet[0] & 6 else 0))
    if at == 0:
        return packet
    left_s = int.from_bytes(packet[at : at + 4], "big") - waited_s
    return packet[:at] + max(0, left_s).to_bytes(4, "big") + packet[at + 4 :]


@mypyc_attr(acyclic=True)
class Publish:
    """A message. `version`: that of `packet` (4 also stands for 3.1 and 3.1.1). `properties`: without their length.
    `payload_at`: offset of the payload in `packet`. `expiry_s`: the Message Expiry Interval, or NO_EXPIRY.

    - `origin`: the message id, if the publisher's session assigned one (`routing.message_id`); else b"".
    - `deals`: the stored choice of shared-subscription members for that id (`routing.shared_frames`); else b"".
    - `publisher`: the publishing client id, for No Local, if its connection isn't here; else b"".
    - `author`: the author of a retained message, if it has one (`rlog.retained_order`).
    - `user`: the user whose quota a retained message uses; None: no user has a quota.
    """

    __slots__ = (
        "_forms", "author", "deals", "expiry_s", "origin", "packet", "packet_id", "payload_at", "properties",
        "publisher", "qos", "retain", "topic", "user", "version",
    )  # fmt: skip

    def __init__(
        self,
        packet: bytes,
        version: int,
        qos: int,
        retain: bool,
        topic: bytes,
        packet_id: int,
        properties: bytes,
        payload_at: int,
        expiry_s: int = NO_EXPIRY,
    ) -> None:
        self.packet = packet
        self.version = version
        self.qos = qos
        self.retain = retain
        self.topic = topic
        self.packet_id = packet_id
        self.properties = properties
        self.payload_at = payload_at
        self.expiry_s = expiry_s
        self.origin: bytes = b""
        self.deals: bytes = b""
        self.publisher: bytes = b""
        self.author: bytes = b""
        self.user: bytes | None = None
        self._forms: dict[int, bytes] | None = None

    def payload(self) -> bytes:
        return self.packet[self.payload_at :]

    def must_be_logged(self) -> bool:
        """True if it is acknowledged only when the log has it: a retained or delayed message."""
        return self.retain or self.topic.startswith(DELAYED)

    def form(self, version: int, qos: int, retain: bool) -> bytes:
        """The packet for a receiver with this version, QoS and RETAIN flag; it has the publisher's packet id."""
        if version == self.version and qos == self.qos and retain == self.retain:
            return self.packet
        key = version << 3 | qos << 1 | (1 if retain else 0)
        forms = self._forms
        if forms is None:
            self._forms = forms = {}
        form = forms.get(key)
        if form is None:
            form = self._encode(version, qos, retain, self.properties)
            forms[key] = form
        return form

    def form_with(self, qos: int, retain: bool, identifiers: bytes) -> bytes:
        """The version 5 packet for one receiver with subscription identifiers [MQTT-3.3.4-3]."""
        return self._encode(5, qos, retain, identifiers + self.properties)

    def _encode(self, version: int, qos: int, retain: bool, properties: bytes) -> bytes:
        return encode.publish(
            version,
            self.topic,
            self.payload(),
            qos=qos,
            retain=retain,
            packet_id=self.packet_id or 1,
            encoded_properties=properties,
        )


def publication(
    version: int, qos: int, retain: bool, topic: bytes, payload: bytes, encoded: bytes, expiry_s: int = NO_EXPIRY
) -> Publish:
    """A message that isn't from a client's PUBLISH: a will or a retained row. `encoded`: its properties."""
    packet_id = 1 if qos else 0
    packet = encode.publish(
        version, topic, payload, qos=qos, retain=retain, packet_id=packet_id, encoded_properties=encoded
    )
    return Publish(packet, version, qos, retain, topic, packet_id, encoded, len(packet) - len(payload), expiry_s)


def waited(message: Publish, waited_s: int) -> Publish | None:
    """The message after it has waited; None: it has expired [MQTT-3.3.2-5]."""
    if message.expiry_s == NO_EXPIRY or waited_s <= 0:
        return message
    left_s = message.expiry_s - waited_s
    if left_s <= 0:
        return None
    packet = aged(message.packet, waited_s) if message.version == 5 else message.packet
    encoded = packet[message.payload_at - len(message.properties) : message.payload_at]
    left = Publish(
        packet,
        message.version,
        message.qos,
        message.retain,
        message.topic,
        message.packet_id,
        encoded,
        message.payload_at,
        left_s,
    )
    left.origin, left.deals, left.publisher = message.origin, message.deals, message.publisher
    left.author, left.user = message.author, message.user
    return left


def parse_publish(
    data: bytes, at: i64, body: i64, end: i64, version: int, aliases: IncomingAliases | None = None
) -> Publish:
    """Parse the PUBLISH from `at` to `end`, whose variable header begins at `body`. Raises PacketError.

    The caller has checked the flags (`frame.check_flags`) and checks the topic. `aliases` None: topic aliases aren't
    allowed.
    """
    first = data[at]
    topic_end = body + 2
    if topic_end <= end:
        topic_end += data[body] << 8 | data[body + 1]
    if topic_end > end:
        raise malformed("PUBLISH ends within its topic name")
    qos = first >> 1 & 3
    packet_id = 0
    payload_at = topic_end
    if qos:
        payload_at += 2
        if payload_at > end:
            raise malformed("PUBLISH ends within its packet id")
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        if packet_id == 0:
            raise malformed("PUBLISH with packet id 0", "MQTT-2.2.1-3")
    topic = data[body + 2 : topic_end]
    retain = first & 1 == 1
    if version == 5 and (payload_at >= end or data[payload_at] != 0):
        return _with_properties(data, payload_at, end, first, qos, retain, topic, packet_id, at, aliases)
    if version == 5:
        payload_at += 1
        if not topic:
            raise protocol_error("PUBLISH with neither a topic name nor a topic alias", "section 3.3.2.1")
    packet = data[at:end]
    payload_at -= at
    if first & 8:  # DUP concerns only the publisher's own delivery [MQTT-3.3.1-3].
        packet = bytes((first & 0xF7,)) + packet[1:]
    if body - at > 2 and data[body - 1] == 0:  # A padded Remaining Length, which 3.1.1 allows.
        payload = packet[payload_at:]
        packet = encode.publish(4, topic, payload, qos=qos, retain=retain, packet_id=packet_id)
        payload_at = len(packet) - len(payload)
    return Publish(packet, version, qos, retain, topic, packet_id, b"", payload_at)


def _with_properties(
    data: bytes,
    properties_at: int,
    end: int,
    first: int,
    qos: int,
    retain: bool,
    topic: bytes,
    packet_id: int,
    at: int,
    aliases: IncomingAliases | None,
) -> Publish:
    """A version 5 PUBLISH. All properties are passed on, except the topic alias, which is resolved [MQTT-3.3.2-17]."""
    own, payload_at = decode.publish_properties(data, properties_at, end)
    assert own is not None
    expiry_s = NO_EXPIRY if own.message_expiry_interval is None else own.message_expiry_interval
    alias = own.topic_alias
    if alias is None:
        if not topic:
            raise protocol_error("PUBLISH with neither a topic name nor a topic alias", "section 3.3.2.1")
        _, encoded_at = remaining_length(data, properties_at)
        packet = data[at:end]
        if first & 8:
            packet = bytes((first & 0xF7,)) + packet[1:]
        encoded = data[encoded_at:payload_at]
        return Publish(packet, 5, qos, retain, topic, packet_id, encoded, payload_at - at, expiry_s)
    if aliases is None:
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-9", "topic alias above the maximum, which is 0")
    topic = aliases.resolve(alias, topic)
    own.topic_alias = None
    encoded = properties.encode(frame.PUBLISH, own)
    payload = data[payload_at:end]
    packet = encode.publish(5, topic, payload, qos=qos, retain=retain, packet_id=packet_id, encoded_properties=encoded)
    return Publish(packet, 5, qos, retain, topic, packet_id, encoded, len(packet) - len(payload), expiry_s)


def transcode(packet: bytes, from_version: int, to_version: int) -> bytes:
    """One PUBLISH of ours, of any QoS, converted to the other protocol version; it keeps its packet id. A client before
    5.0 gets no properties, and a Subscription Identifier is one: no client may send it, so this parses by itself."""
    if (from_version == 5) == (to_version == 5):
        return packet
    _, body = remaining_length(packet, 1, 0)
    properties_at = body + 2 + (packet[body] << 8 | packet[body + 1]) + (2 if packet[0] & 6 else 0)
    if to_version == 5:
        rest = b"\0" + packet[properties_at:]
    else:
        length, encoded_at = remaining_length(packet, properties_at)
        rest = packet[encoded_at + length :]
    return packet[:1] + varint(properties_at - body + len(rest)) + packet[body:properties_at] + rest


def transcode_run(chunk: bytes, to_version: int) -> bytes:
    """A run of QoS 0 PUBLISH packets without properties, converted from version 4 to 5 or from 5 to 4."""
    parts: list[bytes] = []
    at = 0
    end = len(chunk)
    while at < end:
        length = 0
        shift = 0
        body = at + 1
        while True:
            byte = chunk[body]
            body += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        after_topic = body + 2 + (chunk[body] << 8 | chunk[body + 1])
        next_packet = body + length
        parts.append(chunk[at : at + 1])
        if to_version == 5:
            parts.append(varint(length + 1))
            parts.append(chunk[body:after_topic])
            parts.append(b"\0")
            parts.append(chunk[after_topic:next_packet])
        else:
            parts.append(varint(length - 1))
            parts.append(chunk[body:after_topic])
            parts.append(chunk[after_topic + 1 : next_packet])
        at = next_packet
    return b"".join(parts)


NEVER_EXPIRES: Final = 0xFFFF_FFFF


@mypyc_attr(acyclic=True)
class Will:
    """The message that is published `delay_s` after the connection ends, unless that is prevented [MQTT-3.1.2-8].
    `authorization`: why the client may publish it, in encoded form; b"": unknown.
    """

    __slots__ = ("authorization", "delay_s", "message")

    def __init__(self, message: Publish, delay_s: int, authorization: bytes = b"") -> None:
        self.message = message
        self.delay_s = delay_s
        self.authorization = authorization
