"""Messages that other nodes forwarded: they go to this router's own subscribers only."""

from __future__ import annotations

from flockmq.mqtt import frame
from flockmq.mqtt.errors import malformed
from flockmq.mqtt.message import parse_publish
from flockmq.routing import fast_path
from flockmq.routing.message_id import ORIGIN, ORIGIN_BYTES
from flockmq.routing.router import Router
from flockmq.routing.shared_frames import SHARED


def take(router: Router, version: int, chunk: bytes) -> None:
    """Deliver forwarded PUBLISH packets; or, according to the flags in `version`, shared deliveries, or packets with
    their message ids. Raises PacketError if it is malformed.
    """
    if version & SHARED:
        router.shared.take(version & ~SHARED, chunk)
        return
    if version & ORIGIN:
        _take_once(router, version & ~ORIGIN, chunk)
        return
    at = 0
    end = len(chunk)
    while at < end:
        plain_end = fast_path.scan(router, chunk, at, version, None)
        if plain_end != at:
            at = plain_end
            continue
        at = _deliver(router, version, chunk, at, b"")


def take_run(router: Router, version: int, chunk: bytes, publisher: bytes) -> None:
    """Deliver QoS 0 packets of `publisher`, a client id (for No Local). Raises PacketError."""
    router.delivery.publishing = publisher
    try:
        take(router, version, chunk)
    finally:
        router.delivery.publishing = b""


def _take_once(router: Router, version: int, chunk: bytes) -> None:
    at = 0
    end = len(chunk)
    while at < end:
        packet_at = at + ORIGIN_BYTES
        if packet_at >= end:
            raise malformed("a message id without its packet")
        at = _deliver(router, version, chunk, packet_at, chunk[at:packet_at])


def _deliver(router: Router, version: int, chunk: bytes, at: int, origin: bytes) -> int:
    """Deliver the packet at `at`. Returns where the next one begins."""
    frame.check_flags(chunk[at], version)
    length, body = frame.remaining_length(chunk, at + 1, version)
    end = body + length
    if length == frame.INCOMPLETE or end > len(chunk) or chunk[at] >> 4 != frame.PUBLISH:
        raise malformed("forwarded bytes that aren't whole PUBLISH packets")
    message = parse_publish(chunk, at, body, end, version)
    message.origin = origin
    message.publisher = router.delivery.publishing
    router.counters.messages_arrived += 1
    router.delivery.deliver(router.route(message.topic).fanout, message, None)
    return end
