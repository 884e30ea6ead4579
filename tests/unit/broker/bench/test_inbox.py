"""Every message is accounted for, however the stream is cut and whatever the broker did to it."""

from __future__ import annotations

import itertools
import select
import socket
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flockmq.bench.errors import Failed
from flockmq.bench.inbox import BenchInbox, Tally
from flockmq.bench.message_ring import MessageRing, build
from flockmq.mqtt import encode, frame
from unit.broker.bench.wires import wire

COUNT = 40
PUBLISHERS = 3
IDS = [7, 0x3402, 0x6202, 0xFFFF, 52]
"""Packet ids of a broker's choosing, some of which look like heads of packets."""


def ring_of(publisher: int, qos: int) -> MessageRing:
    return build(publisher, [b"t/AA", b"t/AB"], COUNT, qos, 20, bytes)


RINGS = {qos: [ring_of(publisher, qos) for publisher in range(PUBLISHERS)] for qos in (0, 1, 2)}


def message(publisher: int, place: int, qos: int, packet_id: int = 0) -> bytes:
    """As a broker sends it."""
    ring = RINGS[qos][publisher]
    packet = bytearray(ring.arriving[place * ring.arriving_bytes : (place + 1) * ring.arriving_bytes])
    if qos:
        packet[ring.packet_id_offset : ring.packet_id_offset + 2] = packet_id.to_bytes(2, "big")
    return bytes(packet)


class Subscriber:
    """An inbox and the broker's end of its connection."""

    def __init__(self, qos: int, publishers: int = 1) -> None:
        self.tally = Tally(publishers)
        link, self.broker = wire()
        self.inbox = BenchInbox(link, RINGS[qos][:publishers], 0, qos, self.tally)

    def gets(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.broker.sendall(chunk)
            select.select([self.inbox.link], [], [], 10)
            self.inbox.receive()

    def close(self) -> None:
        self.broker.close()
        self.inbox.link.abort()

    def answers(self) -> bytes:
        wanted = len(self.inbox.replies)
        assert self.inbox.flush()
        return receive(self.broker, wanted)


def receive(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += end.recv(count - len(data))
    return data


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    opened: list[Subscriber] = []
    yield opened
    for each in opened:
        each.close()


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@settings(max_examples=60)
@given(places=st.lists(st.integers(0, 1 << 16), max_size=5), rounds=st.integers(1, 3))
def test_all_that_arrives_in_order_is_delivered_wherever_it_is_cut(places: list[int], rounds: int) -> None:
    subscriber = Subscriber(qos=0)
    try:
        stream = b"".join(message(0, place, 0) for place in range(COUNT)) * rounds
        subscriber.gets(*cut(stream, places))
        assert (subscriber.tally.delivered, subscriber.tally.settled) == (COUNT * rounds, [COUNT * rounds])
        assert (subscriber.tally.lost, subscriber.tally.repeated, subscriber.tally.late) == (0, 0, 0)
    finally:
        subscriber.close()


@settings(max_examples=60)
@given(order=st.lists(st.integers(0, PUBLISHERS - 1), min_size=1, max_size=PUBLISHERS * COUNT))
def test_publishers_may_alternate_in_any_way(order: list[int]) -> None:
    subscriber = Subscriber(qos=0, publishers=PUBLISHERS)
    try:
        sent = [0] * PUBLISHERS
        packets = []
        for publisher in order:
            packets.append(message(publisher, sent[publisher] % COUNT, 0))
            sent[publisher] += 1
        subscriber.gets(b"".join(packets))
        assert subscriber.tally.settled == sent
        assert (subscriber.tally.delivered, subscriber.tally.lost) == (len(order), 0)
    finally:
        subscriber.close()


@settings(max_examples=60)
@given(dropped=st.sets(st.integers(1, COUNT // 3), max_size=8), places=st.lists(st.integers(0, 1 << 16), max_size=3))
def test_what_is_missing_is_lost(dropped: set[int], places: list[int]) -> None:
    subscriber = Subscriber(qos=0)
    try:
        subscriber.gets(*cut(b"".join(message(0, n, 0) for n in range(COUNT) if n not in dropped), places))
        assert subscriber.tally.lost == len(dropped)
        assert subscriber.tally.delivered == COUNT - len(dropped)
        assert subscriber.tally.settled == [COUNT]
    finally:
        subscriber.close()


def test_what_comes_again_is_repeated_and_what_comes_after_its_successor_is_late(
    subscribers: list[Subscriber],
) -> None:
    subscriber = Subscriber(qos=0)
    subscribers.append(subscriber)

    subscriber.gets(b"".join(message(0, place, 0) for place in (0, 1, 1, 3, 2, 4)))

    tally = subscriber.tally
    assert (tally.delivered, tally.lost, tally.repeated, tally.late) == (5, 0, 1, 1)


@pytest.mark.parametrize("place", [0, 5, 19, -1])
def test_a_message_that_was_changed_on_its_way_fails_the_run(place: int, subscribers: list[Subscriber]) -> None:
    subscriber = Subscriber(qos=0)
    subscribers.append(subscriber)
    changed = bytearray(message(0, 0, 0))
    changed[place] ^= 1

    with pytest.raises(Failed):
        subscriber.gets(bytes(changed) + message(0, 1, 0))


@pytest.mark.parametrize(("qos", "answer"), [(1, frame.PUBACK), (2, frame.PUBREC)])
def test_each_packet_id_is_answered_in_order(qos: int, answer: int, subscribers: list[Subscriber]) -> None:
    subscriber = Subscriber(qos)
    subscribers.append(subscriber)

    subscriber.gets(b"".join(message(0, place, qos, packet_id) for place, packet_id in enumerate(IDS)))

    assert subscriber.tally.delivered == len(IDS)
    assert subscriber.answers() == b"".join(encode.pub_ack(answer, frame.V311, packet_id) for packet_id in IDS)


@settings(max_examples=60)
@given(
    releases=st.lists(st.integers(0, len(IDS)), min_size=4, max_size=4),
    places=st.lists(st.integers(0, 1 << 16), max_size=4),
)
def test_releases_may_stand_between_messages(releases: list[int], places: list[int]) -> None:
    subscriber = Subscriber(qos=2)
    try:
        stream, expected = b"", b""
        for place, count in enumerate(releases):
            stream += message(0, place, 2, IDS[place])
            expected += encode.pub_ack(frame.PUBREC, frame.V311, IDS[place])
            stream += b"".join(encode.pub_ack(frame.PUBREL, frame.V311, each) for each in IDS[:count])
            expected += b"".join(encode.pub_ack(frame.PUBCOMP, frame.V311, each) for each in IDS[:count])
        subscriber.gets(*cut(stream, places))
        assert subscriber.tally.delivered == len(releases)
        assert subscriber.answers() == expected
    finally:
        subscriber.close()


def test_a_packet_that_no_subscriber_gets_is_named(subscribers: list[Subscriber]) -> None:
    subscriber = Subscriber(qos=1)
    subscribers.append(subscriber)

    with pytest.raises(Failed, match="begins 40 02"):
        subscriber.gets(encode.pub_ack(frame.PUBACK, frame.V311, 1) * 20)
