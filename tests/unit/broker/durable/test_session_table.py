"""Sessions that outlive their connections: what waits, what is sent again, what expires; wills that wait."""

from __future__ import annotations

import pytest

from flockmq.durable.session_table import SessionTable
from flockmq.mqtt import encode
from flockmq.mqtt.message import Will as Waiting
from flockmq.mqtt.message import publication
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CONNECTED
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from unit.broker.protocol.harness import Client, Node, publish, split, without_words

PUBLISH = 3


@pytest.fixture
def node() -> Node:
    return Node(Limits(max_inflight=2, max_mqueue_len=5))


def lasting(
    node: Node,
    client_id: str = "s",
    version: int = 4,
    expiry_s: int = 100,
    *,
    will: ConnectWill | None = None,
    clean: bool = False,
    receive_maximum: int | None = None,
) -> tuple[Client, bytes]:
    """A client whose session lasts, and what came with its CONNACK first."""
    own = Properties()
    own.session_expiry_interval = expiry_s
    own.receive_maximum = receive_maximum
    connect = Connect(
        version, client_id.encode(), clean_start=clean, will=will, properties=own if version == 5 else None
    )
    channel = node.opened()
    channel.feed(encode.connect(connect))
    node.turn()
    connack, *rest = split(channel.written)
    channel.written = b"".join(rest)
    assert connack[0] == 0x20
    return channel, connack


def delayed_will(delay_s: int) -> ConnectWill:
    own = Properties()
    own.will_delay_interval = delay_s
    return ConnectWill(b"will", b"gone", 1, False, own)


def at(node: Node, now_s: float) -> None:
    node.router.now_s = now_s
    node.port.sessions.tick(now_s)


def published(node: Node) -> list[bytes]:
    return [message.topic for message in node.port.published]


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_published_while_the_client_is_away_waits_for_it(node: Node, version: int) -> None:
    away, connack = lasting(node, version=version)
    assert connack[2] == 0
    node.subscribe(away, ("a", 2))
    away.lost()
    node.turn()
    publisher = node.client("p")
    for number, qos in enumerate((0, 1, 2)):
        node.feed(publisher, publish(4, "a", str(number), qos=qos, packet_id=9 if qos else 0))
    back, connack = lasting(node, version=version)
    assert connack[2] == 1
    assert [packet[-1:] for packet in back.packets()] == [b"0", b"1", b"2"]


def test_MQTT_4_6_0_6_what_waited_at_QoS_0_is_not_overtaken_where_the_window_is_full(node: Node) -> None:
    away, _ = lasting(node)
    node.subscribe(away, ("a", 1))
    away.lost()
    publisher = node.client("p")
    for payload, qos in (("1", 1), ("2", 1), ("3", 1), ("old", 0)):
        node.feed(publisher, publish(4, "a", payload, qos=qos, packet_id=qos))
    back, _ = lasting(node)
    node.feed(publisher, publish(4, "a", "new"))
    assert [packet[-1:] for packet in back.packets()] == [b"1", b"2", b"d", b"w"]


def test_MQTT_3_1_2_4_a_clean_start_ends_the_older_session(node: Node) -> None:
    away, _ = lasting(node)
    node.subscribe(away, ("a", 1))
    away.lost()
    back, connack = lasting(node, clean=True)
    assert connack[2] == 0
    assert node.port.dropped == [b"a"]
    assert node.feed(node.client("p"), publish(4, "a", "x", qos=1, packet_id=1)) == [b"\x40\x02\x00\x01"]
    assert back.packets() == []


def test_MQTT_4_4_0_1_what_was_not_acknowledged_comes_again_under_its_packet_id(node: Node) -> None:
    subscriber, _ = lasting(node)
    node.subscribe(subscriber, ("a", 2))
    publisher = node.client("p")
    for number, qos in ((1, 1), (2, 2), (3, 1)):
        node.feed(publisher, publish(4, "a", str(number), qos=qos, packet_id=number))
    first = subscriber.packets()
    assert [packet[-1:] for packet in first] == [b"1", b"2"]
    subscriber.lost()
    back, _ = lasting(node)
    again = back.packets()
    assert again == [bytes((packet[0] | 8,)) + packet[1:] for packet in first]
    (third,) = node.feed(back, b"\x40\x02" + again[0][-3:-1])
    assert third[-1:] == b"3"


def test_a_released_qos_2_message_is_released_again(node: Node) -> None:
    subscriber, _ = lasting(node)
    node.subscribe(subscriber, ("a", 2))
    node.feed(node.client("p"), publish(4, "a", "x", qos=2, packet_id=7))
    (packet,) = subscriber.packets()
    packet_id = packet[-3:-1]
    assert node.feed(subscriber, b"\x50\x02" + packet_id) == [b"\x62\x02" + packet_id]
    subscriber.lost()
    back, _ = lasting(node)
    assert back.packets() == [b"\x62\x02" + packet_id]
    node.feed(back, b"\x70\x02" + packet_id)
    back.lost()
    again, _ = lasting(node)
    assert again.packets() == []


def test_MQTT_4_3_3_10_a_qos_2_message_is_taken_once_across_connections(node: Node) -> None:
    subscriber = node.client("r")
    node.subscribe(subscriber, ("a", 0))
    publisher, _ = lasting(node)
    node.feed(publisher, publish(4, "a", "x", qos=2, packet_id=7))
    publisher.lost()
    back, _ = lasting(node)
    assert node.feed(back, publish(4, "a", "x", qos=2, packet_id=7, dup=True)) == [b"\x50\x02\x00\x07"]
    assert len(subscriber.packets()) == 1


def test_a_smaller_receive_maximum_holds_for_what_is_sent_again(node: Node) -> None:
    subscriber, _ = lasting(node, version=5)
    node.subscribe(subscriber, ("a", 1))
    for number in (1, 2, 3):
        node.feed(node.client("p"), publish(4, "a", str(number), qos=1, packet_id=number))
    subscriber.lost()
    back, _ = lasting(node, version=5, receive_maximum=1)
    seen = b""
    while packets := back.packets():
        (packet,) = packets
        seen += packet[-1:]
        back.feed(b"\x40\x02" + packet[5:7])
        node.turn()
    assert seen == b"123"


def test_a_session_away_loses_the_oldest_beyond_its_bound_qos_0_first(node: Node) -> None:
    away, _ = lasting(node)
    node.subscribe(away, ("a", 1))
    away.lost()
    publisher = node.client("p")
    for number, qos in enumerate((1, 0, 1, 1, 1, 1, 1)):
        node.feed(publisher, publish(4, "a", str(number), qos=qos, packet_id=number + 1 if qos else 0))
    assert node.router.counters.dropped_queue_full == 2
    back, _ = lasting(node)
    assert [packet[-1:] for packet in back.packets()] == [b"2", b"3"]


def test_qos_0_does_not_wait_where_the_zone_says_so() -> None:
    node = Node(Limits(mqueue_store_qos0=False))
    away, _ = lasting(node)
    node.subscribe(away, ("a", 0))
    away.lost()
    node.feed(node.client("p"), publish(4, "a", "x"))
    back, _ = lasting(node)
    assert back.packets() == []
    assert node.router.counters.dropped_away == 1


def test_a_session_expires(node: Node) -> None:
    away, _ = lasting(node, expiry_s=100, version=5)
    node.subscribe(away, ("a", 1))
    away.lost()
    at(node, 99)
    assert node.port.sessions.away
    at(node, 100)
    assert not node.port.sessions.by_id
    assert node.port.dropped == [b"a"]
    assert node.router.counters.sessions_away == 0
    _, connack = lasting(node, version=5)
    assert connack[2] == 0


def test_a_session_that_never_expires_stays() -> None:
    node = Node(Limits(max_session_expiry_interval=0xFFFF_FFFF))
    away, _ = lasting(node, expiry_s=0xFFFF_FFFF, version=5)
    away.lost()
    at(node, 1e12)
    assert list(node.port.sessions.away) == [b"s"]


def test_disconnect_changes_the_expiry(node: Node) -> None:
    own = Properties()
    own.session_expiry_interval = 0
    client, _ = lasting(node, version=5)
    node.feed(client, encode.disconnect(5, 0, own))
    assert not node.port.sessions.by_id


def test_disconnect_cannot_make_a_session_last_that_was_to_end(node: Node) -> None:
    own = Properties()
    own.session_expiry_interval = 10
    client = node.client("c", 5)
    answer = node.feed(client, encode.disconnect(5, 0, own))
    assert without_words(answer) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]


def test_connack_tells_a_session_expiry_that_is_less_than_asked_for() -> None:
    node = Node(Limits(max_session_expiry_interval=60))
    _, connack = lasting(node, version=5, expiry_s=100)
    assert b"\x11\x00\x00\x00\x3c" in connack


def test_a_client_may_come_back_with_another_protocol_version(node: Node) -> None:
    subscriber, _ = lasting(node, version=5)
    node.subscribe(subscriber, ("a", 1))
    publisher = node.client("p", 5)
    expiring = encode.publish(5, b"a", b"1", qos=1, packet_id=1, encoded_properties=b"\x02\x00\x00\x00\x09")
    node.feed(publisher, expiring)
    subscriber.lost()
    node.feed(publisher, publish(5, "a", "2", qos=1, packet_id=2))
    back, _ = lasting(node, version=4)
    assert back.packets() == [
        publish(4, "a", "1", qos=1, packet_id=1, dup=True),
        publish(4, "a", "2", qos=1, packet_id=2),
    ]


# Message expiry.


def test_MQTT_3_3_2_5_and_6_a_message_that_waits_expires_and_tells_what_is_left(node: Node) -> None:
    away, _ = lasting(node, version=5)
    node.subscribe(away, ("a", 1))
    away.lost()
    publisher = node.client("p", 5)
    for number, seconds in (("1", 5), ("2", 20)):
        packet = encode.publish(
            5, b"a", number.encode(), qos=1, packet_id=1, encoded_properties=b"\x02" + seconds.to_bytes(4, "big")
        )
        node.feed(publisher, packet)
    at(node, 8)
    back, _ = lasting(node, version=5)
    (packet,) = back.packets()
    assert packet == encode.publish(5, b"a", b"2", qos=1, packet_id=1, encoded_properties=b"\x02\x00\x00\x00\x0c")
    assert node.router.counters.dropped_expired == 1


# Wills.


def test_a_will_without_delay_is_published_at_once(node: Node) -> None:
    client, _ = lasting(node, version=5, will=delayed_will(0))
    client.lost()
    assert published(node) == [b"will"]


def test_MQTT_3_1_3_9_a_delayed_will_waits_and_is_forgotten_when_the_client_is_back(node: Node) -> None:
    client, _ = lasting(node, version=5, will=delayed_will(10))
    client.lost()
    at(node, 9)
    assert published(node) == []
    back, _ = lasting(node, version=5, will=delayed_will(10))
    at(node, 50)
    assert published(node) == []
    back.lost()
    at(node, 60)
    assert published(node) == [b"will"]
    at(node, 200)
    assert published(node) == [b"will"]


def test_a_delayed_will_is_published_when_its_session_ends_first(node: Node) -> None:
    client, _ = lasting(node, version=5, expiry_s=5, will=delayed_will(10))
    client.lost()
    at(node, 5)
    assert published(node) == [b"will"]


def test_a_delayed_will_is_published_when_a_clean_start_ends_its_session(node: Node) -> None:
    client, _ = lasting(node, version=5, will=delayed_will(10))
    client.lost()
    lasting(node, version=5, clean=True)
    assert published(node) == [b"will"]


def test_a_will_of_a_session_that_ends_with_its_connection_has_no_delay(node: Node) -> None:
    client, _ = lasting(node, version=5, expiry_s=0, will=delayed_will(10))
    client.lost()
    assert published(node) == [b"will"]


# Going on elsewhere.


def test_a_session_that_goes_on_elsewhere_leaves_nothing_here(node: Node) -> None:
    away, _ = lasting(node, version=5, will=delayed_will(10))
    node.subscribe(away, ("a", 1), ("$share/g/b", 1))
    away.lost()
    session = node.port.sessions.away[b"s"].session
    node.port.sessions.depart(session)
    assert (node.port.dropped, published(node), node.port.sessions_gone) == ([], [], [])
    counters = node.router.counters
    assert (counters.subscriptions, counters.sessions_away) == (0, 0)
    assert not node.router.has_local(b"a")
    assert not node.router.has_local(b"$share/g/b")
    at(node, 1000.0)
    assert published(node) == []
    assert lasting(node, version=5)[1][2] == 0


def test_a_session_that_ran_elsewhere_waits_for_its_client_from_when_it_left(node: Node) -> None:
    session = LocalSession(node.router.away5, b"s", node.limits, 0, expiry_s=100)
    session.add_subscription(Subscription(session, b"a", 1))
    will = Waiting(publication(5, 1, False, b"will", b"gone", b""), 10)
    node.port.sessions.restore(session, will, 50.0)
    node.feed(node.client("p"), publish(4, "a", "x", qos=1, packet_id=1))
    assert session.queue
    at(node, 59.9)
    assert published(node) == []
    at(node, 60.0)
    assert published(node) == [b"will"]
    at(node, 149.9)
    assert node.port.sessions_gone == []
    at(node, 150.0)
    assert node.port.sessions_gone == [b"s"]


def test_a_session_that_ended_keeps_no_messages_however_long_it_is_remembered(node: Node) -> None:
    away, _ = lasting(node)
    session = away.session
    assert session is not None
    node.subscribe(away, ("a", 1))
    away.lost()
    node.feed(node.client("p"), publish(4, "a", "x", qos=1, packet_id=1))
    assert session.queue
    lasting(node, clean=True)
    assert (session.queue, session.queue_bytes, session.inflight, len(session.subscriptions)) == (None, 0, None, 0)


def test_beyond_the_bound_the_session_that_would_expire_first_ends(node: Node) -> None:
    sessions = node.port.sessions = SessionTable(node.router, node.port.session_ends, away_max=2)
    for client_id, expiry_s in (("back", 10), ("never", 0xFFFF_FFFF), ("soon", 50), ("later", 100)):
        client, _ = lasting(node, client_id, 5, expiry_s)
        client.lost()
        if client_id == "back":
            lasting(node, client_id, 5, expiry_s)
    assert list(sessions.away) == [b"never", b"later"]
    assert node.port.sessions_gone == [b"soon"]
    lasting(node, "never too", 5, 0xFFFF_FFFF)[0].lost()
    lasting(node, "never as well", 5, 0xFFFF_FFFF)[0].lost()
    assert list(sessions.away) == [b"never too", b"never as well"], "later first, which expires, then the oldest"


def test_what_finds_no_room_at_all_is_lost_to_a_client_that_is_away_and_counted() -> None:
    node = Node(Limits(max_mqueue_len=0))
    away, _ = lasting(node)
    node.subscribe(away, ("a", 2))
    away.lost()
    publisher = node.client("p")
    for qos in (0, 1, 2):
        node.feed(publisher, publish(4, "a", "x", qos=qos, packet_id=qos))
    assert publisher.state == CONNECTED
    assert node.router.counters.dropped_queue_full == 3
    assert lasting(node)[1][2] == 1
