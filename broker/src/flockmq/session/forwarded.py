"""Messages that another node forwarded: they go to this node's own subscribers, and no further."""

from __future__ import annotations

from flockmq.mqtt import frame
from flockmq.mqtt.errors import malformed
from flockmq.session import ingress
from flockmq.session.publish import parse_publish
from flockmq.session.router import Router
from flockmq.session.shared import SHARED


def take(router: Router, version: int, chunk: bytes) -> None:
    """Deliver a run of whole PUBLISH packets, or, where `version` says so, shared deliveries. Raises PacketError for
    what no node of ours sends.
    """
    if version & SHARED:
        router.shared.take(version & ~SHARED, chunk)
        return
    at = 0
    end = len(chunk)
    while at < end:
        plain_end = ingress.scan(router, chunk, at, version, None)
        if plain_end != at:
            at = plain_end
            continue
        frame.check_flags(chunk[at], version)
        length, body = frame.remaining_length(chunk, at + 1, version)
        packet_end = body + length
        if length == frame.INCOMPLETE or packet_end > end or chunk[at] >> 4 != frame.PUBLISH:
            raise malformed("forwarded bytes that aren't whole PUBLISH packets")
        message = parse_publish(chunk, at, body, packet_end, version)
        router.counters.messages_arrived += 1
        router.deliver(router.route(message.topic).fanout, message, None)
        at = packet_end
