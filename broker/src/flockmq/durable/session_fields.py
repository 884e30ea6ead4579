"""The stored form of a durable session: the fields of its Redis hash. The owner has the same in memory.

 field               value
 m                   the parameters of the session from CONNECT, and counters that must never repeat (`Meta`)
 q, sequence (8)     a QoS 1 or 2 message to the client, until its exchange is complete
 r, packet id (2)    the message id (16) of a QoS 2 message from the client, until PUBREL; then the members chosen for
                     it in shared subscriptions (`routing.shared_frames`), from cluster version 2 on
 s, filter           a subscription: its options as in SUBSCRIBE (section 3.8.3.1), whether retained messages are
                     pending, and its encoded subscription identifier
 o, filter           while retained messages are pending for that filter: the last topic that was sent
 e                   the nonces of this connection's SUBSCRIBEs that entitled it to retained messages, from cluster
                     version 2 on
 u, nonce            the reason codes with which an UNSUBSCRIBE of this connection was answered
 z                   the zone of the session's limits; missing if it was always "default"
 a, filter           the filter that the client asked for, if a rewrite rule changed it to this one
 j                   hash of the rules under which all subscriptions are authorized (8); missing: unknown
 n                   the user of the session, b"" for no user; missing if client ids aren't bound to users
 w                   the nonce of the CONNECT that brought the will (8, as in `m`), and the will's stored authorization

Integers are unsigned and big-endian. Times are cluster time in ms. Puts and deletes are absolute and reach the store in
order, so the store always has a state that the session really had. No I/O.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.mqtt import frame
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.message import Will, packet_id_offset, parse_publish
from flockmq.mqtt.packets import NO_LOCAL, RETAIN_AS_PUBLISHED
from flockmq.mqtt.properties import subscription_identifier
from flockmq.mqtt.topics import check_filter
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.routing.subscriber import Subscriber, Subscription

META: Final = b"m"
ZONE: Final = b"z"
USER: Final = b"n"
AUTHORIZATION: Final = b"w"
AUTHORIZED_RULES: Final = b"j"
SUBSCRIBED: Final = b"e"
MESSAGE: Final = 0x71
RECEIVED: Final = 0x72
SUBSCRIPTION: Final = 0x73
PROGRESS: Final = 0x6F
UNSUBSCRIBED: Final = 0x75
ASKED: Final = 0x61
"""First byte of the other fields."""

WAITS: Final = 0
"""The message waits or was sent; it is sent again until the client acknowledges it."""
RELEASED: Final = 1
"""PUBREC arrived; only PUBREL is left to do. The packet isn't kept."""

PENDING_RETAINED: Final = 0x80
"""Bit in a subscription's options: not all retained messages were queued for it yet."""
_OPTIONS: Final = 3 | NO_LOCAL | RETAIN_AS_PUBLISHED | PENDING_RETAINED

IDENTITY_BYTES: Final = 16

_MESSAGE: Final = Struct(">BBBQH")
_META: Final = Struct(">B16s8sIBQQQQ")
_WILL: Final = Struct(">IqB")
_FORM: Final = 2


@mypyc_attr(acyclic=True)
class Meta:
    """The field `m`. `source`: the session's id. `sender`: the source in the ids of QoS 2 messages that the client
    publishes from now on. `will_source`: the source of the will's message id; each CONNECT makes a new one.
    `left_ms`: when the client disconnected; 0: it is connected.

    No sequence number above `sequences`, and no message number above `numbers`, was ever used. If the client is
    offline, no message with a sequence number above `started` was ever sent.
    """

    __slots__ = (
        "expiry_s", "left_ms", "numbers", "sender", "sequences", "source", "started", "version", "will", "will_source",
    )  # fmt: skip

    def __init__(self, identity: bytes, expiry_s: int, version: int, will: Will | None) -> None:
        """`identity`: IDENTITY_BYTES random bytes."""
        self.source: bytes = identity[:8]
        self.sender: bytes = self.source
        self.will_source: bytes = identity[8:IDENTITY_BYTES]
        self.expiry_s: int = expiry_s
        self.version: int = version
        self.left_ms: int = 0
        self.sequences: int = 0
        self.numbers: int = 0
        self.started: int = 0
        self.will: Will | None = will

    def encode(self) -> bytes:
        head = _META.pack(
            _FORM,
            self.source + self.will_source,
            self.sender,
            self.expiry_s,
            self.version,
            self.left_ms,
            self.sequences,
            self.numbers,
            self.started,
        )
        will = self.will
        if will is None:
            return head
        message = will.message
        return head + _WILL.pack(will.delay_s, message.expiry_s, message.version) + message.packet


def decode_meta(value: bytes) -> Meta:
    """Raises ValueError if it is malformed."""
    if len(value) < _META.size or value[0] != _FORM:
        raise ValueError(f"a session's meta field of {len(value)} bytes and form {value[:1]!r}")
    _, identity, sender, expiry_s, version, left_ms, sequences, numbers, started = _META.unpack_from(value, 0)
    meta = Meta(identity, expiry_s, version, None)
    meta.sender = sender
    meta.left_ms, meta.sequences, meta.numbers, meta.started = left_ms, sequences, numbers, started
    if len(value) > _META.size:
        delay_s, message_expiry_s, will_version = _WILL.unpack_from(value, _META.size)
        packet = value[_META.size + _WILL.size :]
        _, body = remaining_length(packet, 1, 0)
        message = parse_publish(packet, 0, body, len(packet), will_version)
        message.expiry_s = message_expiry_s
        meta.will = Will(message, delay_s)
    return meta


def sequence_field(sequence: int) -> bytes:
    return b"q" + sequence.to_bytes(8, "big")


def sequence_of(field: bytes) -> int:
    """Raises ValueError if it is malformed."""
    if len(field) != 9:
        raise ValueError(f"a message in a field of {len(field)} bytes")
    return int.from_bytes(field[1:], "big")


def message_value(state: int, qos: int, version: int, expires_ms: int, share: bytes, packet: bytes) -> bytes:
    """`expires_ms` 0: never; `share`: the share filter through which the message came, or b""."""
    return _MESSAGE.pack(state, qos, version, expires_ms, len(share)) + share + packet


def message_parts(value: bytes) -> tuple[int, int, int, int, bytes, bytes]:
    """Returns (state, QoS, version, expires_ms, share, packet). Raises ValueError if no version of
    FlockMQ wrote this.
    """
    state, qos, version, expires_ms, share_bytes = _MESSAGE.unpack_from(value, 0)
    packet_at = _MESSAGE.size + share_bytes
    packet = value[packet_at:]
    is_message = _is_whole(packet, qos) if state == WAITS else state == RELEASED and qos == 2 and not packet
    if not is_message or version not in (frame.V311, frame.V5):
        raise ValueError(f"a message of state {state}, QoS {qos}, version {version} and {len(packet)} bytes")
    return state, qos, version, expires_ms, value[_MESSAGE.size : packet_at], packet


def _is_whole(packet: bytes, qos: int) -> bool:
    """True if this is one complete PUBLISH of this QoS, with a packet id."""
    if not packet or qos not in (1, 2) or packet[0] & 0xF6 != frame.PUBLISH << 4 | qos << 1:
        return False
    length, body = remaining_length(packet, 1, 0)
    return body + length == len(packet) and packet_id_offset(packet) + 2 <= len(packet)


def received_field(packet_id: int) -> bytes:
    return b"r" + packet_id.to_bytes(2, "big")


def received_of(field: bytes, origin: bytes) -> int:
    """Returns the packet id. Raises ValueError if it is malformed."""
    if len(field) != 3 or len(origin) < ORIGIN_BYTES:
        raise ValueError(f"a QoS 2 message in a field of {len(field)} bytes, of an origin of {len(origin)}")
    return int.from_bytes(field[1:], "big")


def unsubscribed_field(nonce: bytes) -> bytes:
    return b"u" + nonce


def progress_field(filter: bytes) -> bytes:
    return b"o" + filter


def asked_field(filter: bytes) -> bytes:
    return b"a" + filter


def subscription_field(filter: bytes) -> bytes:
    return b"s" + filter


def subscription_value(subscription: Subscription, awaits_retained: bool) -> bytes:
    options = subscription.qos
    if awaits_retained:
        options |= PENDING_RETAINED
    if subscription.no_local:
        options |= NO_LOCAL
    if subscription.retain_as_published:
        options |= RETAIN_AS_PUBLISHED
    return bytes((options,)) + subscription.identifiers


def subscription_of(session: Subscriber, filter: bytes, value: bytes) -> Subscription:
    """Raises ValueError or PacketError if it is malformed."""
    check_filter(filter)
    options, identifiers = value[0], value[1:]
    if options & 3 == 3 or options & ~_OPTIONS:
        raise ValueError(f"a subscription with options {options:#04x}")
    if identifiers and not _is_identifier(identifiers):
        raise ValueError(f"a subscription with identifiers {identifiers!r}")
    no_local, as_published = options & NO_LOCAL != 0, options & RETAIN_AS_PUBLISHED != 0
    return Subscription(session, filter, options & 3, no_local, as_published, identifiers)


def _is_identifier(encoded: bytes) -> bool:
    number, _ = remaining_length(encoded, 1)
    return number > 0 and subscription_identifier(number) == encoded
