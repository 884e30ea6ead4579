"""A publisher keeps to its window, and sends the ring's messages over and over."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from flockmq.bench.errors import Failed
from flockmq.bench.inbox import Tally
from flockmq.bench.message_ring import build
from flockmq.bench.outbox import BenchOutbox
from flockmq.mqtt import encode, frame
from unit.broker.bench.wires import wire

COUNT = 8
WINDOW = 4


class Publisher:
    def __init__(self, qos: int, batch: int = 100) -> None:
        self.tally = Tally(1)
        self.ring = build(0, [b"t"], COUNT, qos, 16, bytes)
        link, self.broker = wire()
        self.outbox = BenchOutbox(link, self.ring, 0, self.tally, qos=qos, copies=1, window=WINDOW, batch=batch)

    def got(self, messages: int) -> bytes:
        """What the broker reads next."""
        data, wanted = b"", messages * self.ring.written_bytes
        while len(data) < wanted:
            data += self.broker.recv(wanted - len(data))
        return data

    def answered(self, packet_type: int, *packet_ids: int) -> None:
        self.broker.sendall(b"".join(encode.pub_ack(packet_type, frame.V311, each) for each in packet_ids))
        select.select([self.outbox.link], [], [], 10)
        self.outbox.receive()


@pytest.fixture
def publisher(request: pytest.FixtureRequest) -> Iterator[Publisher]:
    each = Publisher(*request.param)
    yield each
    each.broker.close()
    each.outbox.link.abort()


@pytest.mark.parametrize("publisher", [(0,)], indirect=True)
def test_at_qos_0_a_window_is_what_is_not_delivered(publisher: Publisher) -> None:
    publisher.outbox.publish()
    assert publisher.outbox.sent == WINDOW
    publisher.outbox.publish()
    assert publisher.outbox.sent == WINDOW

    publisher.tally.settled[0] += 3
    publisher.outbox.publish()

    assert publisher.outbox.sent == WINDOW + 3
    assert publisher.got(WINDOW + 3) == publisher.ring.written[: (WINDOW + 3) * publisher.ring.written_bytes]


@pytest.mark.parametrize("publisher", [(0,)], indirect=True)
def test_the_ring_begins_anew_where_it_ends(publisher: Publisher) -> None:
    for _ in range(4):
        publisher.outbox.publish()
        publisher.tally.settled[0] = publisher.outbox.sent
    assert publisher.got(COUNT * 2) == publisher.ring.written * 2


@pytest.mark.parametrize("publisher", [(0, 1)], indirect=True)
def test_a_batch_of_one_is_one_message_a_write(publisher: Publisher) -> None:
    assert publisher.outbox.publish()
    assert publisher.outbox.sent == 1


@pytest.mark.parametrize("publisher", [(1,)], indirect=True)
def test_at_qos_1_a_window_is_delivered_and_acknowledged(publisher: Publisher) -> None:
    publisher.outbox.publish()
    publisher.tally.settled[0] = WINDOW
    publisher.outbox.publish()
    assert publisher.outbox.sent == WINDOW
    publisher.answered(frame.PUBACK, 1, 2)
    publisher.outbox.publish()
    assert publisher.outbox.sent == WINDOW + 2


@pytest.mark.parametrize("publisher", [(2,)], indirect=True)
def test_at_qos_2_a_pubrec_is_answered_before_more_is_published(publisher: Publisher) -> None:
    publisher.outbox.publish()
    publisher.got(WINDOW)
    publisher.tally.settled[0] = WINDOW
    publisher.answered(frame.PUBREC, 1, 2)
    publisher.outbox.publish()
    rels = b"".join(encode.pub_ack(frame.PUBREL, frame.V311, each) for each in (1, 2))
    assert publisher.broker.recv(len(rels), socket.MSG_WAITALL) == rels
    publisher.answered(frame.PUBCOMP, 1, 2)
    publisher.outbox.publish()
    assert publisher.outbox.sent == WINDOW + 2


@pytest.mark.parametrize("publisher", [(1,)], indirect=True)
def test_more_acknowledgements_than_messages_fail_the_run(publisher: Publisher) -> None:
    with pytest.raises(Failed, match="more was acknowledged than published"):
        publisher.answered(frame.PUBACK, 1)
