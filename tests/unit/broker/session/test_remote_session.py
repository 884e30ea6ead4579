"""A session proxy: what of its owner's packets reaches the client, what it reports until when; a connection with it."""

from __future__ import annotations

import pytest

from flockmq.default_callbacks import ignore
from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.routing.sink import Sink
from flockmq.session.client_session import DONE, FULL, LATER, NEW, REPEAT, UNKNOWN
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import (
    AGAIN,
    DROPPED,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREC_REFUSED,
    PUBREL,
    PUBREL_UNKNOWN,
    RemoteSession,
    pair,
    settled,
)
from unit.broker.protocol.harness import Client, Node, Owners, publish, remote

PUBREL_1 = b"\x62\x02\0\1"


@pytest.fixture
def asked() -> Owners:
    return Owners()


@pytest.fixture
def proxy(asked: Owners) -> RemoteSession:
    return RemoteSession(LocalSession(Sink([], 4), b"c", Limits(), 32, expiry_s=9), asked, 1)


def sent(proxy: RemoteSession, packet_id: int = 1, qos: int = 1) -> bytes:
    packet = publish(4, "t", "x", qos=qos, packet_id=packet_id)
    assert proxy.arrived(packet) == packet
    return packet


def released(proxy: RemoteSession, packet_id: int = 1) -> None:
    sent(proxy, packet_id, 2)
    assert proxy.pubrec(packet_id, False) == LATER
    proxy.take_reports()
    assert proxy.arrived(encode.pub_ack(frame.PUBREL, 4, packet_id))


def test_what_is_new_passes_as_it_is(proxy: RemoteSession) -> None:
    chunk = publish(4, "t", "0") + publish(4, "t", "1", qos=1, packet_id=1) + publish(4, "u", "2", qos=2, packet_id=2)
    assert proxy.arrived(chunk) is chunk
    again = publish(4, "t", "1", qos=1, packet_id=1, dup=True) + publish(4, "t", "0")
    assert proxy.arrived(again) == publish(4, "t", "0")
    assert proxy.take_reports() == b""


@pytest.mark.parametrize("refuses", [False, True])
def test_the_next_owner_may_begin_with_others_than_are_under_way(asked: Owners, refuses: bool) -> None:
    proxy = RemoteSession(LocalSession(Sink([], 5), b"c", Limits(), 2, expiry_s=9), asked, 1)
    sent(proxy, 4)
    sent(proxy, 5, 2)
    first, second = (publish(4, "t", "x", qos=1, packet_id=packet_id, dup=True) for packet_id in (1, 2))
    for _ in range(2):
        assert proxy.arrived(first + second) == b""
    assert proxy.puback(4)
    assert proxy.sink.out == [first]
    assert proxy.pubrec(5, refuses) == LATER
    if not refuses:
        proxy.arrived(encode.pub_ack(frame.PUBREL, 4, 5))
        assert proxy.sink.out == [first]
        assert proxy.pubcomp(5)
    assert proxy.sink.out == [first, second]
    assert proxy.puback(1)
    assert proxy.puback(2)
    assert proxy.arrived(second) == b"", "it is answered and not settled"


def test_a_report_is_asked_for_once_until_it_is_taken(proxy: RemoteSession, asked: Owners) -> None:
    sent(proxy, 1)
    sent(proxy, 2)
    assert proxy.puback(1)
    assert proxy.puback(2)
    assert not proxy.puback(2)
    assert asked.reports == 1
    assert proxy.take_reports() == pair(PUBACK, 1) + pair(PUBACK, 2)
    assert proxy.take_reports() == b""
    sent(proxy, 3)
    proxy.puback(3)
    assert asked.reports == 2


def test_a_packet_id_is_new_again_when_it_was_settled(proxy: RemoteSession) -> None:
    packet = sent(proxy)
    proxy.puback(1)
    proxy.take_reports()
    assert proxy.arrived(packet) == b""
    proxy.arrived(settled(PUBCOMP, 1))
    assert proxy.arrived(packet) == b""
    proxy.arrived(settled(PUBACK, 1))
    assert proxy.arrived(packet) == packet


def test_the_steps_of_QoS_2(proxy: RemoteSession) -> None:
    packet = sent(proxy, qos=2)
    assert proxy.pubcomp(1) is False
    assert proxy.pubrec(1, False) == LATER
    assert proxy.pubrec(1, False) == LATER
    assert proxy.take_reports() == pair(PUBREC, 1)
    assert proxy.arrived(packet) == b""
    assert proxy.arrived(PUBREL_1 + PUBREL_1) == PUBREL_1
    assert proxy.pubrec(1, False) == DONE
    assert proxy.pubrec(1, True) == UNKNOWN
    assert proxy.pubcomp(1)
    assert proxy.pubrec(1, False) == UNKNOWN
    assert proxy.arrived(PUBREL_1) == b""
    assert proxy.arrived(packet) == b""
    assert proxy.take_reports() == pair(PUBCOMP, 1)
    proxy.arrived(settled(PUBCOMP, 1))
    assert proxy.arrived(packet) == packet


def test_a_PUBREC_that_refuses_is_reported_as_such(proxy: RemoteSession) -> None:
    sent(proxy, qos=2)
    assert proxy.pubrec(1, True) == LATER
    assert proxy.pubrec(1, False) == UNKNOWN
    assert proxy.take_reports() == pair(PUBREC_REFUSED, 1)
    proxy.arrived(settled(PUBREC_REFUSED, 1))
    sent(proxy, qos=2)


def test_what_contradicts_an_exchange_of_this_connection(proxy: RemoteSession) -> None:
    def contradicting(packet_id: int) -> list[int]:
        kinds = (frame.PUBACK, frame.PUBREC, frame.PUBCOMP)
        return [kind for kind in kinds if proxy.contradicts(kind, packet_id)]

    sent(proxy, 1, 1)
    sent(proxy, 2, 2)
    assert contradicting(1) == [frame.PUBREC, frame.PUBCOMP]
    assert contradicting(2) == [frame.PUBACK, frame.PUBCOMP]
    assert proxy.puback(1)
    assert proxy.pubrec(2, False) == LATER
    assert contradicting(2) == [frame.PUBACK, frame.PUBCOMP]
    proxy.arrived(encode.pub_ack(frame.PUBREL, 4, 2))
    assert contradicting(2) == [frame.PUBACK]
    assert proxy.pubcomp(2)
    sent(proxy, 3, 2)
    assert proxy.pubrec(3, True) == LATER
    for packet_id in (1, 2, 3, 9):  # over, here or on the former connection: said again, or late
        assert contradicting(packet_id) == []


def test_a_PUBREC_for_the_former_connection_is_the_owners_to_answer(proxy: RemoteSession) -> None:
    again = publish(4, "t", "x", qos=2, packet_id=1, dup=True)
    assert proxy.pubrec(1, False) == UNKNOWN  # of a session that isn't resumed nobody knows more
    proxy.send_again()
    assert proxy.pubrec(1, True) == UNKNOWN
    assert proxy.pubrec(1, False) == LATER
    assert proxy.take_reports() == pair(PUBREC, 1)
    assert proxy.arrived(again) == b""
    assert proxy.arrived(PUBREL_1) == PUBREL_1
    assert proxy.pubcomp(1)
    proxy.arrived(settled(PUBCOMP, 1))
    assert not proxy._states
    assert proxy._open == 0


def test_a_PUBLISH_that_waits_is_not_sent_once_it_is_known_to_be_received(asked: Owners) -> None:
    proxy = RemoteSession(LocalSession(Sink([], 5), b"c", Limits(), 1, expiry_s=9), asked, 1)
    proxy.send_again()
    sent(proxy, 4)
    assert proxy.arrived(publish(4, "t", "x", qos=2, packet_id=1, dup=True)) == b""
    assert proxy.pubrec(1, False) == LATER
    assert proxy.pubrec(2, False) == UNKNOWN, "more than a former connection had"
    assert proxy.puback(4)
    assert proxy.sink.out == []


def test_a_connection_may_begin_with_a_PUBREL(proxy: RemoteSession) -> None:
    assert proxy.arrived(PUBREL_1) == PUBREL_1
    assert proxy.pubcomp(1)
    assert proxy.take_reports() == pair(PUBCOMP, 1)


def test_all_that_is_not_settled_is_reported_to_the_next_owner(proxy: RemoteSession) -> None:
    released(proxy, 1)
    for packet_id, qos in ((2, 1), (3, 2), (4, 2), (5, 1), (6, 2)):
        sent(proxy, packet_id, qos)
    proxy.pubcomp(1)
    proxy.pubrec(4, False)
    proxy.pubrec(3, False)
    proxy.pubrec(6, True)
    proxy.puback(2)
    proxy.pubrel(50)
    proxy.forget(60, ignore)
    proxy.take_reports()
    proxy.arrived(settled(PUBACK, 2))
    proxy.moved()
    assert proxy.take_reports() == b"".join(
        pair(kind, packet_id)
        for kind, packet_id in (
            (DROPPED, 60), (PUBCOMP, 1), (PUBREC, 4), (PUBREC, 3), (PUBREC_REFUSED, 6), (PUBREL, 50),
        )
    )  # fmt: skip
    proxy.arrived(settled(DROPPED, 60))
    proxy.arrived(settled(PUBREL, 50))
    proxy.arrived(settled(PUBCOMP, 1))
    proxy.moved()
    assert proxy.take_reports() == pair(PUBREC, 4) + pair(PUBREC, 3) + pair(PUBREC_REFUSED, 6)


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("kind", [PUBREL, PUBREL_UNKNOWN])
def test_PUBCOMP_is_sent_when_the_release_is_settled(remembered: bool, kind: int) -> None:
    proxy = RemoteSession(LocalSession(Sink([], 5), b"c", Limits(), 32), Owners(), 1)
    if remembered:
        assert proxy.receive(7, 0.0) == NEW
    assert proxy.pubrel(7) == LATER
    assert proxy.pubrel(7) == LATER
    assert proxy.receive(7, 0.0) == NEW
    assert proxy.take_reports() == pair(PUBREL, 7)
    known = remembered or kind == PUBREL
    assert proxy.arrived(settled(kind, 7)) == encode.pub_ack(frame.PUBCOMP, 5, 7, 0 if known else 0x92)
    assert proxy.arrived(settled(kind, 7)) == b""


def test_what_is_settled_comes_among_the_packets(proxy: RemoteSession) -> None:
    packet = sent(proxy)
    proxy.puback(1)
    proxy.pubrel(7)
    proxy.take_reports()
    assert proxy.arrived(packet + settled(PUBACK, 1) + settled(PUBREL, 7) + packet) == b"\x70\x02\0\7" + packet


def test_what_comes_again_because_something_was_lost_is_told_what_is_not_settled(proxy: RemoteSession) -> None:
    packet = sent(proxy, 1)
    proxy.puback(1)
    proxy.take_reports()
    assert proxy.arrived(AGAIN + publish(4, "t", "0")) == publish(4, "t", "0")
    assert proxy.take_reports() == pair(PUBACK, 1)
    assert proxy.arrived(packet) == b""


def test_a_message_of_the_client_that_was_refused_is_forgotten_when_its_owner_has(proxy: RemoteSession) -> None:
    told: list[bool] = []
    assert proxy.receive(7, 0.0) == NEW
    assert not proxy.forget(7, lambda: told.append(True))
    assert proxy.take_reports() == pair(DROPPED, 7)
    assert proxy.receive(7, 0.0) == REPEAT
    assert not told
    assert proxy.arrived(settled(DROPPED, 7) + settled(PUBREL, 7)) == b""
    assert proxy.receive(7, 0.0) == NEW
    assert told == [True]


def test_what_is_too_long_under_way_from_the_client_is_dropped_at_the_owner_too() -> None:
    limits = Limits(max_awaiting_rel=1, await_rel_timeout=10.0)
    proxy = RemoteSession(LocalSession(Sink([], 4), b"c", limits, 32), Owners(), 1)
    assert [proxy.receive(number, at_s) for number, at_s in ((7, 0.0), (7, 5.0), (8, 5.0))] == [NEW, REPEAT, FULL]
    assert proxy.receive(8, 11.0) == NEW
    assert proxy.take_reports() == pair(DROPPED, 7)


def test_topics_are_shortened_at_the_connection() -> None:
    session = LocalSession(Sink([], 5), b"c", Limits(), 32)
    session.aliases = OutgoingAliases(1)
    proxy = RemoteSession(session, Owners(), 1)
    first = proxy.arrived(publish(5, "topic", "1", qos=1, packet_id=1) + publish(5, "topic", "2"))
    assert first.count(b"topic") == 1
    assert b"\x23\0\1" in proxy.arrived(publish(5, "topic", "3", qos=1, packet_id=2))


# A connection with a session proxy.


@pytest.fixture
def node() -> Node:
    return Node()


def fronted(node: Node, version: int = 4) -> tuple[Client, RemoteSession]:
    channel = node.client("c", version, Connect(version, b"c", properties=Properties() if version == 5 else None))
    return channel, remote(channel)


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("version", [4, 5])
def test_what_the_owner_answers_later_is_not_answered_now(node: Node, version: int, long: bool) -> None:
    client, proxy = fronted(node, version)
    long = long and version == 5
    tail = b"\0" if long else b""
    length = bytes((3 if long else 2,))
    sent_to = publish(version, "t", "x", qos=2, packet_id=1)
    client.put(proxy.arrived(sent_to))
    node.turn()
    assert client.packets() == [sent_to]
    assert node.feed(client, b"\x50" + length + b"\0\1" + tail) == []
    assert node.feed(client, b"\x62" + length + b"\0\7" + tail) == []
    assert proxy.take_reports() == pair(PUBREC, 1) + pair(PUBREL, 7)
    client.put(proxy.arrived(PUBREL_1 + settled(PUBREL, 7)))
    node.turn()
    assert client.packets() == [PUBREL_1, b"\x70\x02\0\7"]
    assert node.feed(client, b"\x50" + length + b"\0\1" + tail) == [PUBREL_1]
    assert node.feed(client, b"\x70" + length + b"\0\1" + tail) == []
    assert proxy.take_reports() == pair(PUBCOMP, 1)


def test_an_unknown_PUBREC_is_answered_at_once(node: Node) -> None:
    client, proxy = fronted(node, 5)
    assert node.feed(client, b"\x50\x02\0\1") == [encode.pub_ack(frame.PUBREL, 5, 1, 0x92)]
    assert node.feed(client, b"\x40\x02\0\1") == []
    assert proxy.take_reports() == b""


def test_a_refusal_is_told_when_the_owner_has_forgotten_the_message(node: Node) -> None:
    client, proxy = fronted(node, 5)
    assert node.feed(client, publish(5, "$SYS/x", "x", qos=2, packet_id=3)) == []
    assert node.feed(client, publish(5, "$SYS/x", "x", qos=2, packet_id=3)) == []
    assert proxy.take_reports() == pair(DROPPED, 3)
    client.put(proxy.arrived(settled(DROPPED, 3)))
    node.turn()
    assert client.packets() == [encode.pub_ack(frame.PUBREC, 5, 3, 0x87)]


def test_what_is_published_behind_a_refusal_waits_until_the_owner_has_forgotten(node: Node) -> None:
    """Its number is higher: behind it a repeat of the refused message under its former number would be lost."""
    client, proxy = fronted(node, 5)
    subscriber = node.client("s")
    node.subscribe(subscriber, ("t", 0))
    assert node.feed(client, publish(5, "$SYS/x", "x", qos=2, packet_id=3)) == []
    node.feed(client, publish(5, "t", "1", qos=1, packet_id=4) + publish(5, "t", "0"))
    assert subscriber.packets() == []
    client.put(proxy.arrived(settled(DROPPED, 3)))
    node.turn()
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1", b"0"]
    assert len(client.packets()) == 2


def test_nothing_waits_for_a_client_that_leaves_before_it_is_told_of_a_refusal(node: Node) -> None:
    client, _ = fronted(node, 5)
    subscriber = node.client("s")
    node.subscribe(subscriber, ("t", 0))
    node.feed(client, publish(5, "$SYS/x", "x", qos=2, packet_id=3) + publish(5, "t", "1", qos=1, packet_id=4))
    client.lost()
    node.turn()
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1"]
    assert client.publish_queue is None
