"""The fast path: runs of QoS 0, or of QoS 1, PUBLISH packets without RETAIN, DUP and properties ("plain" packets).

A packet whose head is known costs one slice and one look-up. Consecutive QoS 0 packets with the same fan-out are sent
on unchanged as one chunk. All other packets take the slow path of the caller, which also reports errors.

Invariants: only complete, valid packets are delivered, in order. If a client's publishes must be authorized, only
packets with heads that were allowed before take the fast path. A delivery that disconnects a receiver makes the known
heads stale: the run ends there.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from flockmq.bounds import RECEIVERS_PER_READ_MAX
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.frame import remaining_length
from flockmq.mqtt.topics import check_topic_name
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.fanout import Fanout
from flockmq.routing.match_cache import Head
from flockmq.routing.router import Router
from flockmq.routing.sink import CONGESTED

NEVER: Final[i64] = 1 << 62


def scan(router: Router, data: bytes, at: i64, version: int, publisher: PausablePublisher | None) -> i64:
    """Deliver the run of plain QoS 0 packets that starts at `at`. Returns where the first other or incomplete packet
    starts.

    `publisher` None: another node forwarded the packets, and only local subscribers get them. Otherwise it ends where
    they had more than RECEIVERS_PER_READ_MAX receivers.
    """
    matches = router.matches
    heads = matches.heads5 if version == 5 else matches.heads4
    allowed = None if publisher is None else publisher.allowed
    most = NEVER if publisher is None else router.receivers + RECEIVERS_PER_READ_MAX
    size: i64 = 0
    run: Fanout | None = None
    run_at = at
    count: i64 = 0
    end: i64 = len(data)
    while at < end:
        key = data[at : at + size]
        head = heads.get(key)
        if head is None:
            size = head_size(data, at, end, 0x30, version)
            if size == 0:
                break
            key = data[at : at + size]
            head = _known(router, heads, key, 1 if version == 5 else 0)
            if head is None or router.receivers > most:
                break
        if at + head.length > end or (allowed is not None and key not in allowed):
            break
        if head.fanout is not run:
            if run is not None:
                router.emit(run, data[run_at:at], version, count, publisher)
                run_at = at
                count = 0
                if router.receivers > most or heads is not (matches.heads5 if version == 5 else matches.heads4):
                    break
            run = head.fanout
        count += 1
        at += head.length
    if run is not None and count:
        router.emit(run, data[run_at:at], version, count, publisher)
    return at


def scan_acknowledged(router: Router, data: bytes, at: i64, publisher: PausablePublisher) -> i64:
    """Deliver and acknowledge the run of plain QoS 1 packets that starts at `at`. Returns where the first other packet
    starts.

    Only packets that all receivers get unchanged and at once. Packets that other nodes must accept take the slow path.
    """
    version, matches = publisher.protocol_version, router.matches
    heads = matches.acknowledged_heads5 if version == 5 else matches.acknowledged_heads4
    tail: i64 = 3 if version == 5 else 2
    allowed = publisher.allowed
    delivery = router.delivery
    size: i64 = 0
    end: i64 = len(data)
    acknowledged: list[bytes] = []
    most = router.receivers + RECEIVERS_PER_READ_MAX
    while at < end:
        key = data[at : at + size]
        head = heads.get(key)
        if head is None:
            size = head_size(data, at, end, 0x32, 4)
            if size == 0:
                break
            key = data[at : at + size]
            head = _known(router, heads, key, 0)
            if head is None:
                break
        fan = head.fanout
        sessions = fan.sessions5 if version == 5 else fan.sessions4
        id_at = at + size
        next_at = at + head.length
        if allowed is not None and key not in allowed:
            break
        if sessions is None or next_at > end or id_at + tail > next_at or (version == 5 and data[id_at + 2] != 0):
            break
        packet_id = data[id_at] << 8 | data[id_at + 1]
        if packet_id == 0:
            break
        packet = data[at:next_at]
        for session in sessions:
            delivery.offer(session, packet, packet_id, 1)
            if session.sink.flow == CONGESTED:
                router.pauses.pause(session.sink, publisher)
        router.receivers += fan.receivers
        acknowledged.append(data[id_at : id_at + 2])
        at = next_at
        if publisher.paused or router.receivers > most:
            break
        if heads is not (matches.acknowledged_heads5 if version == 5 else matches.acknowledged_heads4):
            break
    if acknowledged:
        counters = router.counters
        counters.messages_received += len(acknowledged)
        publisher.messages_in += len(acknowledged)
        counters.messages_received_qos1 += len(acknowledged)
        if not publisher.has_ended():
            publisher.put(b"\x40\x02" + b"\x40\x02".join(acknowledged))
    return at


def head_size(data: bytes, at: i64, end: i64, first: int, version: int) -> i64:
    """The length of the head at `at` whose first byte is `first`; 0: incomplete, not plain, or invalid."""
    if end - at < 4 or data[at] != first:
        return 0
    body = at + 2
    length: i64 = data[at + 1]
    if length >= 0x80:
        length &= 0x7F
        shift: i64 = 7
        while True:
            if body >= end or shift > 21:
                return 0
            byte: i64 = data[body]
            body += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if byte == 0:  # A padded length: the slow path refuses or re-encodes the packet.
            return 0
    if body + 2 > end:
        return 0
    topic_bytes: i64 = data[body] << 8 | data[body + 1]
    head_end = body + 2 + topic_bytes
    if version == 5:
        if head_end >= end or data[head_end] != 0:
            return 0
        head_end += 1
    if head_end > end or head_end > body + length:
        return 0
    return head_end - at


def head_of(data: bytes, at: i64, end: i64, version: int) -> bytes:
    """The head of the PUBLISH at `at`; b"" if the packet isn't plain."""
    first = data[at]
    if first not in (0x30, 0x32):
        return b""
    size = head_size(data, at, end, first, version if first == 0x30 else 4)
    return data[at : at + size]


def _known(router: Router, heads: dict[bytes, Head], head: bytes, after_topic: int) -> Head | None:
    """The entry of a head; None if its topic or length is invalid. `after_topic`: number of bytes after the topic."""
    known = heads.get(head)
    if known is not None:
        return known
    length, body = remaining_length(head, 1, 0)
    topic = head[body + 2 : len(head) - after_topic]
    if body + length > router.max_packet_size or topic.count(b"/") >= router.max_topic_levels:
        return None
    if topic[:1] == b"$" or router.is_intercepted(topic):
        return None
    if not router.knows(topic):
        try:
            check_topic_name(topic)
        except PacketError:
            return None
    return router.remember_head(heads, head, topic, body + length)
