"""Topic aliases of one connection, in both directions (MQTT 5.0 section 3.3.2.3.4). They end with the connection.

Invariants: at most as many aliases are used as the receiver allows. An alias keeps its topic until the connection ends.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import INCOMING_ALIASES_MAX_BYTES, OUTGOING_ALIAS_MAX_TOPIC_BYTES, OUTGOING_ALIASES_MAX
from flockmq.mqtt.errors import PacketError, protocol_error
from flockmq.mqtt.frame import remaining_length, varint
from flockmq.mqtt.reason import Reason

_LONGER_BY_MAX: Final = 5
"""How much longer the first packet with an alias may be, in bytes: the property, and longer length fields."""


@mypyc_attr(acyclic=True)
class IncomingAliases:
    """The topics of the client's aliases, `size_bytes` together: INCOMING_ALIASES_MAX_BYTES at most."""

    __slots__ = ("_maximum", "_topics", "size_bytes")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.size_bytes: int = 0
        self._topics: dict[int, bytes] | None = None

    def resolve(self, alias: int, topic: bytes) -> bytes:
        """The topic of a PUBLISH with this alias; a PUBLISH that also has a topic sets the alias. Raises
        PacketError.
        """
        if alias > self._maximum:
            raise PacketError(
                Reason.TOPIC_ALIAS_INVALID, "MQTT-3.3.2-9", f"topic alias {alias} above the maximum, {self._maximum}"
            )
        topics = self._topics
        if topics is None:
            self._topics = topics = {}
        if topic:
            self.size_bytes += len(topic) - len(topics.get(alias, b""))
            if self.size_bytes > INCOMING_ALIASES_MAX_BYTES:
                why = f"topics of aliases with more than {INCOMING_ALIASES_MAX_BYTES} bytes together"
                raise PacketError(Reason.QUOTA_EXCEEDED, "section 3.3.2.3.4", why)
            topics[alias] = topic
            return topic
        known = topics.get(alias)
        if known is None:
            raise protocol_error(f"topic alias {alias} that was never set", "section 3.3.2.3.4")
        return known


@mypyc_attr(acyclic=True)
class OutgoingAliases:
    """Aliases for packets to the client: the first topics that are sent get the available aliases, except long ones.
    `max_packet_bytes`: the client's maximum packet size; 0: any. `size_bytes`: of their topics.
    """

    __slots__ = ("_aliases", "_max_packet_bytes", "_maximum", "size_bytes")

    def __init__(self, maximum: int, max_packet_bytes: int = 0) -> None:
        self._maximum = min(maximum, OUTGOING_ALIASES_MAX)
        self._max_packet_bytes = max_packet_bytes
        self._aliases: dict[bytes, int] = {}
        self.size_bytes: int = 0

    def shorten(self, packet: bytes) -> bytes:
        """A version 5 PUBLISH with an alias: the first time in addition to the topic, later instead of it."""
        _, body = remaining_length(packet, 1, 0)
        topic_end = body + 2 + (packet[body] << 8 | packet[body + 1])
        topic = packet[body + 2 : topic_end]
        alias = self._aliases.get(topic)
        name = b"\0\0"
        if alias is None:
            if len(self._aliases) >= self._maximum or len(topic) > OUTGOING_ALIAS_MAX_TOPIC_BYTES:
                return packet
            if 0 < self._max_packet_bytes < len(packet) + _LONGER_BY_MAX:
                return packet
            self._aliases[topic] = alias = len(self._aliases) + 1
            self.size_bytes += len(topic)
            name = packet[body:topic_end]
        properties_at = topic_end + (2 if packet[0] & 6 else 0)
        length, content_at = remaining_length(packet, properties_at, 0)
        parts = [
            name,
            packet[topic_end:properties_at],
            varint(length + 3),
            b"\x23",
            alias.to_bytes(2, "big"),
            packet[content_at:],
        ]
        rest = b"".join(parts)
        shortened = packet[:1] + varint(len(rest)) + rest
        # An alias is longer than a topic of one or two bytes.
        return packet if 0 < self._max_packet_bytes < len(shortened) else shortened
