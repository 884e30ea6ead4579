"""The fast road: runs of QoS 0 PUBLISH packets without RETAIN and without properties.

Bytes are read once, by offset. A packet whose head is known costs one slice and one look-up; consecutive packets with
the same fan-out leave as one chunk, verbatim. Whatever isn't plain is left for the caller's ordinary road, which also
names what is wrong with it.

What always holds: only whole, valid packets are emitted, in the order in which they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.topics import check_topic_name
from flockmq.session.fanout import Fanout
from flockmq.session.router import Head, Router

if TYPE_CHECKING:
    from flockmq.session.channel import Channel


def scan(router: Router, data: bytes, at: int, version: int, publisher: Channel | None) -> int:
    """Emit the run of plain packets that starts at `at`; where the first other or incomplete one starts.

    `publisher` None: the packets were forwarded by another node, and go to local subscribers only.
    """
    heads = router.heads5 if version == 5 else router.heads4
    size = 0
    run: Fanout | None = None
    run_at = at
    count = 0
    end = len(data)
    while at < end:
        head = heads.get(data[at : at + size])
        if head is None:
            size = head_size(data, at, end, version)
            if size == 0:
                break
            key = data[at : at + size]
            head = heads.get(key)
            if head is None:
                head = _recognise(router, key, version)
                if head is None:
                    break
        if at + head.length > end:
            break
        if head.fanout is not run:
            if run is not None:
                router.emit(run, data[run_at:at], version, count, publisher)
                run_at = at
                count = 0
            run = head.fanout
        count += 1
        at += head.length
    if run is not None and count:
        router.emit(run, data[run_at:at], version, count, publisher)
    return at


def head_size(data: bytes, at: int, end: int, version: int) -> int:
    """The length of the plain head at `at`; 0: incomplete, not plain, or not valid."""
    if end - at < 4 or data[at] != 0x30:
        return 0
    body = at + 2
    length = data[at + 1]
    if length >= 0x80:
        length &= 0x7F
        shift = 7
        while True:
            if body >= end or shift > 21:
                return 0
            byte = data[body]
            body += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if byte == 0:  # padded: the ordinary road refuses it, or writes it anew
            return 0
    if body + 2 > end:
        return 0
    head_end = body + 2 + (data[body] << 8 | data[body + 1])
    if version == 5:
        if head_end >= end or data[head_end] != 0:
            return 0
        head_end += 1
    if head_end > end or head_end > body + length:
        return 0
    return head_end - at


def _recognise(router: Router, head: bytes, version: int) -> Head | None:
    length_end = 1
    length = 0
    shift = 0
    while True:
        byte = head[length_end]
        length_end += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    topic = head[length_end + 2 : -1] if version == 5 else head[length_end + 2 :]
    if length_end + length > router.max_packet_bytes:
        return None
    try:
        check_topic_name(topic)
    except PacketError:
        return None
    return router.recognise(version, head, topic, length_end + length)
