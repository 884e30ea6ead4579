"""One PUBLISH on its way, and the forms in which it leaves.

A message is kept as the packet it came in and taken apart by offset. A subscriber of the same protocol version and QoS
gets those very bytes; every other form is encoded once, whatever the number of its receivers.

What always holds: `packet` is one whole, valid PUBLISH with DUP 0; topic aliases are resolved before it is made.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.mqtt import decode, encode
from flockmq.mqtt.errors import PacketError, malformed
from flockmq.mqtt.frame import remaining_length, varint
from flockmq.mqtt.reason import Reason


def packet_id_offset(packet: bytes) -> int:
    """Where the packet id of a QoS ≥ 1 PUBLISH stands (for QoS 0: where properties or payload begin)."""
    at = 1
    while packet[at] & 0x80:
        at += 1
    return at + 3 + (packet[at + 1] << 8 | packet[at + 2])


def with_packet_id(packet: bytes, packet_id: int) -> bytes:
    """The same QoS ≥ 1 PUBLISH under another packet id."""
    at = packet_id_offset(packet)
    return packet[:at] + bytes((packet_id >> 8, packet_id & 0xFF)) + packet[at + 2 :]


@mypyc_attr(acyclic=True)
class Publish:
    """A message: `version` is that of `packet` (4 stands for 3.1 and 3.1.1 too); `properties` without their length;
    the payload is what stands in `packet` from `payload_at` on.
    """

    __slots__ = ("_forms", "packet", "packet_id", "payload_at", "properties", "qos", "retain", "topic", "version")

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
    ) -> None:
        self.packet = packet
        self.version = version
        self.qos = qos
        self.retain = retain
        self.topic = topic
        self.packet_id = packet_id
        self.properties = properties
        self.payload_at = payload_at
        self._forms: dict[int, bytes] | None = None

    def payload(self) -> bytes:
        return self.packet[self.payload_at :]

    def form(self, version: int, qos: int, retain: bool) -> bytes:
        """The packet for a receiver of this version, QoS and RETAIN flag, under the publisher's packet id."""
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
        """The version 5 packet for one receiver that gave subscription identifiers [MQTT-3.3.4-3]."""
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


def publication(version: int, qos: int, retain: bool, topic: bytes, payload: bytes, properties: bytes) -> Publish:
    """A message that comes from no PUBLISH of a client: a will, a retained row."""
    packet_id = 1 if qos else 0
    packet = encode.publish(
        version, topic, payload, qos=qos, retain=retain, packet_id=packet_id, encoded_properties=properties
    )
    return Publish(packet, version, qos, retain, topic, packet_id, properties, len(packet) - len(payload))


def parse_publish(data: bytes, at: int, body: int, end: int, version: int) -> Publish:
    """The PUBLISH from `at` to `end`, whose variable header begins at `body`. Raises PacketError.

    The topic is not checked; flags are (`frame.check_flags`).
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
    properties = b""
    if version == 5:
        properties, payload_at = _passed_on(data, payload_at, end)
    topic = data[body + 2 : topic_end]
    retain = first & 1 == 1
    packet = data[at:end]
    payload_at -= at
    if first & 8:  # DUP says something about the publisher's attempt only [MQTT-3.3.1-3]
        packet = bytes((first & 0xF7,)) + packet[1:]
    if body - at > 2 and data[body - 1] == 0:  # a padded Remaining Length, which 3.1.1 allows
        payload = packet[payload_at:]
        packet = encode.publish(4, topic, payload, qos=qos, retain=retain, packet_id=packet_id)
        payload_at = len(packet) - len(payload)
    return Publish(packet, version, qos, retain, topic, packet_id, properties, payload_at)


def _passed_on(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    """The properties' bytes without their length, all of which are passed on, and where the payload begins."""
    if at < end and data[at] == 0:
        return b"", at + 1
    properties, payload_at = decode.publish_properties(data, at, end)
    if properties is not None and properties.topic_alias is not None:
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "MQTT-3.2.2-18", "topic alias above the maximum, which is 0")
    _, properties_at = remaining_length(data, at)
    return data[properties_at:payload_at], payload_at


def transcode_run(chunk: bytes, to_version: int) -> bytes:
    """A run of QoS 0 PUBLISH packets without properties, from version 4 to 5 or from 5 to 4."""
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
