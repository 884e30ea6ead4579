"""The protocol of one connection, by its normative statements where there is one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, without_words


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_connect_is_answered_with_connack(node: Node, version: int) -> None:
    client = node.opened()
    answer = node.feed(client, encode.connect(Connect(version, b"c")))
    assert [packet[0] for packet in answer] == [0x20]
    assert answer[0][3] == 0
    assert client.state == CONNECTED
    assert client.token == 7


@pytest.mark.parametrize(("version", "reason"), [(4, 2), (5, Reason.CLIENT_IDENTIFIER_NOT_VALID)])
def test_a_client_id_is_short_enough_for_all_that_keep_it(node: Node, version: int, reason: int) -> None:
    for size, said in ((1024, 0), (1025, reason)):
        answer = node.feed(node.opened(), encode.connect(Connect(version, b"x" * size)))
        assert b"".join(answer)[3] == said


def test_a_connect_may_come_byte_by_byte(node: Node) -> None:
    client = node.opened()
    packet = encode.connect(Connect(4, b"c"))
    for at in range(len(packet) - 1):
        assert node.feed(client, packet[at : at + 1]) == []
    assert node.feed(client, packet[-1:]) == [encode.connack(4, 0)]


def test_what_follows_connect_in_the_same_read_is_processed_after_connack(node: Node) -> None:
    client = node.opened()
    assert node.feed(client, encode.connect(Connect(4, b"c")) + encode.PINGREQ) == [
        encode.connack(4, 0),
        encode.PINGRESP,
    ]


@pytest.mark.parametrize("data", [encode.PINGREQ, publish(4, "a"), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
def test_MQTT_3_1_0_1_the_first_packet_must_be_connect(node: Node, data: bytes) -> None:
    client = node.opened()
    assert node.feed(client, data) == []
    assert client.state == CLOSED
    assert node.port.violations[0].statement == "MQTT-3.1.0-1"


def test_MQTT_3_1_0_2_a_second_connect_is_a_protocol_error(node: Node) -> None:
    client = node.client("c", 5)
    assert without_words(node.feed(client, encode.connect(Connect(5, b"c")))) == [
        encode.disconnect(5, Reason.PROTOCOL_ERROR)
    ]
    assert client.state == CLOSED


def test_a_padded_connect_is_refused_from_mqtt_5_on(node: Node) -> None:
    """Older devices pad the Remaining Length; MQTT 5.0 forbids it [MQTT-1.5.5-1]."""
    for version, expected in ((4, 0), (5, Reason.MALFORMED_PACKET)):
        packet = encode.connect(Connect(version, b"c"))
        padded = bytes((packet[0], packet[1] | 0x80, 0)) + packet[2:]
        assert node.feed(node.opened(), padded)[0][3] == expected


def test_a_31_client_may_set_flags_that_it_does_not_use(node: Node) -> None:
    """It repeats a SUBSCRIBE with DUP."""
    for version, state in ((3, CONNECTED), (4, CLOSED)):
        client = node.client("c", version)
        node.feed(client, b"\x8a" + encode.subscribe(4, 1, [SubscribeEntry(b"a", 0)])[1:])
        assert client.state == state


def test_a_client_that_allows_no_packet_as_large_as_an_answer_is_told_so(node: Node) -> None:
    own = Properties()
    own.maximum_packet_size = 40
    connect = Connect(5, b"c", properties=own)
    filters = [(f"filter/{number}", 0) for number in range(50)]
    for kind in ("suback", "unsuback"):
        client = node.client("c", connect=connect)
        if kind == "suback":
            (answer,) = node.subscribe(client, *filters)
        else:
            (answer,) = node.feed(client, encode.unsubscribe(5, 1, [filter.encode() for filter, _ in filters]))
        assert (answer[0], answer[2]) == (0xE0, Reason.PACKET_TOO_LARGE)
        assert len(answer) <= 40
    own.maximum_packet_size = 3
    client = node.opened()
    assert node.feed(client, encode.connect(connect)) == []
    assert client.state == CLOSED


def test_an_unknown_protocol_version_is_refused_with_its_code(node: Node) -> None:
    client = node.opened()
    assert without_words(node.feed(client, b"\x10\x0d\x00\x04MQTT\x09\x02\x00\x3c\x00\x01c")) == [
        encode.connack(5, Reason.UNSUPPORTED_PROTOCOL_VERSION)
    ]
    assert client.state == CLOSED


def test_a_packet_above_the_limit_is_refused_by_its_length_alone() -> None:
    node = Node(Limits(max_packet_size=128))
    client = node.client("c", 5)
    assert without_words(node.feed(client, b"\x30\x80\x01")) == [encode.disconnect(5, Reason.PACKET_TOO_LARGE)]


def test_a_message_may_come_byte_by_byte(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("t", 0))
    packet = publish(4, "t", "x" * 150)
    for byte in packet[:-1]:
        node.feed(publisher, bytes((byte,)))
        assert subscriber.packets() == []
    node.feed(publisher, packet[-1:])
    assert subscriber.packets() == [packet]


def test_a_malformed_packet_ends_a_5_0_connection_with_a_reason(node: Node) -> None:
    client = node.client("c", 5)
    assert without_words(node.feed(client, b"\x36\x03\x00\x01a")) == [encode.disconnect(5, Reason.MALFORMED_PACKET)]
    assert node.router.counters.protocol_errors == 1


def test_a_malformed_packet_ends_a_3_1_1_connection_without_a_word(node: Node) -> None:
    client = node.client("c", 4)
    assert node.feed(client, b"\x36\x03\x00\x01a") == []
    assert client.state == CLOSED


def test_MQTT_3_12_4_1_pingreq_is_answered(node: Node) -> None:
    assert node.feed(node.client("c"), encode.PINGREQ) == [encode.PINGRESP]


@pytest.mark.parametrize("publisher_version", [4, 5])
@pytest.mark.parametrize("subscriber_version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_message_arrives_with_the_lesser_qos(
    node: Node, publisher_version: int, subscriber_version: int, qos: int, granted: int
) -> None:
    subscriber, publisher = node.client("s", subscriber_version), node.client("p", publisher_version)
    node.subscribe(subscriber, ("a/+", granted))
    answer = node.feed(publisher, publish(publisher_version, "a/b", "hello", qos=qos, packet_id=9 if qos else 0))
    lesser = min(qos, granted)
    expected = publish(subscriber_version, "a/b", "hello", qos=lesser, packet_id=9 if lesser else 0)
    assert subscriber.packets() == [expected]
    assert answer == {0: [], 1: [b"\x40\x02\x00\x09"], 2: [b"\x50\x02\x00\x09"]}[qos]


def test_MQTT_3_3_1_3_dup_is_not_passed_on(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=5, dup=True))
    assert subscriber.packets() == [publish(4, "a", "x", qos=1, packet_id=5)]


def test_MQTT_4_3_3_10_a_qos_2_message_is_delivered_once_until_it_is_released(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 0))
    for dup in (False, True):
        packet = publish(4, "a", "x", qos=2, packet_id=5, dup=dup)
        assert node.feed(publisher, packet) == [b"\x50\x02\x00\x05"]
    assert len(subscriber.packets()) == 1
    assert node.feed(publisher, b"\x62\x02\x00\x05") == [b"\x70\x02\x00\x05"]
    node.feed(publisher, publish(4, "a", "y", qos=2, packet_id=5))
    assert len(subscriber.packets()) == 1


def test_a_qos_2_delivery_goes_through_its_four_steps(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 2))
    node.feed(publisher, publish(4, "a", "x", qos=2, packet_id=5))
    assert subscriber.packets() == [publish(5, "a", "x", qos=2, packet_id=5)]
    assert node.feed(subscriber, b"\x50\x02\x00\x05") == [b"\x62\x02\x00\x05"]
    assert node.feed(subscriber, b"\x70\x02\x00\x05") == []
    assert subscriber.session is not None
    assert not subscriber.session.inflight


def test_pubrel_for_an_unknown_packet_id_says_so_to_a_5_0_client(node: Node) -> None:
    assert node.feed(node.client("c", 5), b"\x62\x02\x00\x05") == [b"\x70\x03\x00\x05\x92"]


def short(kind: int, packet_id: int) -> bytes:
    return encode.pub_ack(kind, 4, packet_id)


def long(kind: int, packet_id: int) -> bytes:
    """With a reason code and properties, which only the ordinary road reads."""
    return frame.frame(kind << 4 | (2 if kind == frame.PUBREL else 0), packet_id.to_bytes(2, "big") + b"\0\0")


@pytest.mark.parametrize("form", [short, long])
@pytest.mark.parametrize(
    ("qos", "before", "kind"),
    [
        (1, [], frame.PUBREC),
        (1, [], frame.PUBCOMP),
        (2, [], frame.PUBACK),
        (2, [], frame.PUBCOMP),
        (2, [frame.PUBREC], frame.PUBACK),
    ],
)
def test_an_acknowledgement_of_another_kind_is_a_protocol_error(
    node: Node, form: Callable[[int, int], bytes], qos: int, before: list[int], kind: int
) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 2))
    node.feed(publisher, publish(4, "a", "x", qos=qos, packet_id=5))
    for expected in before:
        node.feed(subscriber, short(expected, 5))
    subscriber.packets()
    assert without_words(node.feed(subscriber, form(kind, 5))) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]
    assert subscriber.state == CLOSED


@pytest.mark.parametrize("form", [short, long])
@pytest.mark.parametrize("kind", [frame.PUBACK, frame.PUBREC, frame.PUBREL, frame.PUBCOMP])
def test_packet_id_0_is_malformed_in_every_acknowledgement(
    node: Node, form: Callable[[int, int], bytes], kind: int
) -> None:
    client = node.client("c", 5)
    assert without_words(node.feed(client, form(kind, 0))) == [encode.disconnect(5, Reason.MALFORMED_PACKET)]


@pytest.mark.parametrize("version", [4, 5])
def test_acknowledgements_of_nothing_change_nothing(node: Node, version: int) -> None:
    client = node.client("c", version)
    for kind in (frame.PUBACK, frame.PUBCOMP):
        assert node.feed(client, short(kind, 9) + encode.PINGREQ) == [encode.PINGRESP]
    assert node.router.counters.packets_received[frame.PUBACK] == 1


def test_a_pubrec_that_refuses_is_never_answered(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 2))
    assert node.feed(subscriber, b"\x50\x03\0\5\x87") == []  # unknown
    node.feed(publisher, publish(4, "a", "x", qos=2, packet_id=5))
    subscriber.packets()
    assert node.feed(subscriber, short(frame.PUBREC, 5)) == [short(frame.PUBREL, 5)]
    assert node.feed(subscriber, b"\x50\x03\0\5\x87") == []  # too late
    assert node.feed(subscriber, b"\x50\x03\0\6\0") == [b"\x62\x03\0\6\x92"]


def test_more_qos_2_messages_than_may_await_pubrel_end_the_connection() -> None:
    node = Node(Limits(max_awaiting_rel=2))
    publisher = node.client("p", 5)
    packets = b"".join(publish(5, "a", "x", qos=2, packet_id=i) for i in (1, 2, 3))
    assert without_words(node.feed(publisher, packets))[-1] == encode.disconnect(5, Reason.RECEIVE_MAXIMUM_EXCEEDED)


def test_MQTT_3_8_4_3_a_subscription_replaces_one_with_the_same_filter(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.subscribe(subscriber, ("a", 0))
    node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=3))
    assert subscriber.packets() == [publish(4, "a", "x")]
    assert node.router.counters.subscriptions == 1


def test_MQTT_3_3_5_1_overlapping_subscriptions_deliver_once_with_the_highest_qos(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a/#", 0), ("a/+", 2), ("a/b", 1))
    node.feed(publisher, publish(4, "a/b", "x", qos=2, packet_id=3))
    assert subscriber.packets() == [publish(4, "a/b", "x", qos=2, packet_id=3)]


def test_suback_waits_until_the_cluster_routes(node: Node) -> None:
    subscriber = node.client("s")
    node.port.hold = True
    assert node.subscribe(subscriber, ("a", 1), ("b", 0)) == []
    (routed,) = node.port.unanswered
    assert node.port.routing == [b"a", b"b"]
    routed(0, False)
    node.turn()
    assert subscriber.packets() == [b"\x90\x04\x00\x01\x01\x00"]


def test_a_filter_that_the_cluster_refuses_is_gone_and_its_code_says_why(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.port.hold = True
    node.subscribe(subscriber, ("a", 1))
    node.port.unanswered[0](Reason.QUOTA_EXCEEDED, False)
    node.turn()
    assert subscriber.packets() == [encode.suback(5, 1, [Reason.QUOTA_EXCEEDED])]
    node.feed(publisher, publish(4, "a", "x"))
    assert subscriber.packets() == []


def test_shared_subscriptions_are_refused_where_the_zone_has_none() -> None:
    node = Node(Limits(shared_subscription=False))
    answer = node.subscribe(node.client("s", 5), ("$share/g/a", 1))
    assert answer == [encode.suback(5, 1, [Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED])]


def test_unsubscribe_says_what_existed_and_drops_the_route(node: Node) -> None:
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("a", 1))
    answer = node.feed(subscriber, encode.unsubscribe(5, 2, [b"a", b"b"]))
    assert answer == [encode.unsuback(5, 2, [Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED])]
    assert node.port.dropped == [b"a"]


def test_a_route_stays_while_another_client_needs_it(node: Node) -> None:
    one, other = node.client("1"), node.client("2")
    for client in (one, other):
        node.subscribe(client, ("a", 1))
    node.feed(one, encode.unsubscribe(4, 2, [b"a"]))
    assert node.port.dropped == []
    other.lost()
    assert node.port.dropped == [b"a"]


def test_no_local_keeps_a_clients_own_messages_away(node: Node) -> None:
    one, other = node.client("1", 5), node.client("2", 5)
    for client in (one, other):
        node.subscribe(client, ("a", 0x04))
    node.feed(one, publish(5, "a", "x"))
    assert one.packets() == []
    assert other.packets() == [publish(5, "a", "x")]


def test_retain_as_published_keeps_the_flag(node: Node) -> None:
    as_published, plain, publisher = node.client("1", 5), node.client("2", 5), node.client("p", 5)
    node.subscribe(as_published, ("a", 0x08))
    node.subscribe(plain, ("a", 0))
    node.feed(publisher, publish(5, "a", "x", retain=True))
    assert as_published.packets() == [publish(5, "a", "x", retain=True)]
    assert plain.packets() == [publish(5, "a", "x")]


def test_MQTT_3_3_4_3_the_identifiers_of_all_matching_subscriptions_are_sent(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 4)
    for filter, identifier in (("a/+", 1), ("a/b", 2)):
        own = Properties()
        own.subscription_identifier = identifier
        node.feed(subscriber, encode.subscribe(5, 1, [SubscribeEntry(filter.encode(), 0)], own))
    node.feed(publisher, publish(4, "a/b", "x"))
    (packet,) = subscriber.packets()
    assert packet == encode.publish(5, b"a/b", b"x", encoded_properties=b"\x0b\x02\x0b\x01")


def test_message_properties_reach_5_0_subscribers_and_are_left_out_for_others(node: Node) -> None:
    five, four, publisher = node.client("5", 5), node.client("4", 4), node.client("p", 5)
    for client in (five, four):
        node.subscribe(client, ("a", 1))
    properties = b"\x03\x00\x04text\x26\x00\x01k\x00\x01v"
    packet = encode.publish(5, b"a", b"x", qos=1, packet_id=4, encoded_properties=properties)
    node.feed(publisher, packet)
    assert five.packets() == [packet]
    assert four.packets() == [publish(4, "a", "x", qos=1, packet_id=4)]


def test_MQTT_3_1_2_25_a_packet_larger_than_the_client_takes_is_not_sent(node: Node) -> None:
    properties = Properties()
    properties.maximum_packet_size = 30
    subscriber = node.client("s", connect=Connect(5, b"s", properties=properties))
    publisher = node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.feed(publisher, publish(4, "a", "x" * 40) + publish(4, "a", "y"))
    assert subscriber.packets() == [publish(5, "a", "y")]
    assert node.router.counters.dropped_too_large == 1


def test_receive_maximum_bounds_what_is_in_flight(node: Node) -> None:
    properties = Properties()
    properties.receive_maximum = 2
    subscriber = node.client("s", connect=Connect(5, b"s", properties=properties))
    publisher = node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.feed(publisher, b"".join(publish(4, "a", str(i), qos=1, packet_id=i) for i in range(1, 6)))
    assert len(subscriber.packets()) == 2
    assert len(node.feed(subscriber, b"\x40\x02\x00\x01\x40\x02\x00\x02")) == 2


def test_retained_messages_are_owed_by_retain_handling(node: Node) -> None:
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("always", 0x00), ("if-new", 0x10), ("never", 0x20))
    assert [held.filter for held in node.port.given] == [b"always", b"if-new"]
    node.port.given.clear()
    node.subscribe(subscriber, ("always", 0x00), ("if-new", 0x10), ("never", 0x20))
    assert [held.filter for held in node.port.given] == [b"always"]


def test_what_follows_a_retained_message_waits_for_it(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    answer = node.feed(
        publisher, publish(4, "a", "1", qos=1, packet_id=1, retain=True) + publish(4, "a", "2", qos=1, packet_id=2)
    )
    assert answer == []
    assert subscriber.packets() == []
    node.port.inbound[0].logged(0)
    node.turn()
    assert publisher.packets() == [b"\x40\x02\x00\x01", b"\x40\x02\x00\x02"]
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1", b"2"]


def test_a_retained_message_that_the_log_refuses_is_not_delivered(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p", 5)
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "1", qos=1, packet_id=1, retain=True))
    node.port.inbound[0].logged(Reason.QUOTA_EXCEEDED)
    node.turn()
    assert publisher.packets() == [b"\x40\x03\x00\x01\x97"]
    assert subscriber.packets() == []


def will(topic: str) -> ConnectWill:
    return ConnectWill(topic.encode(), b"gone", 1, False, None)


def test_MQTT_3_1_2_8_the_will_is_published_when_the_connection_is_lost(node: Node) -> None:
    client = node.client("c", connect=Connect(4, b"c", will=will("w")))
    client.lost()
    (message,) = node.port.published
    assert (message.topic, message.payload(), message.qos) == (b"w", b"gone", 1)
    assert node.port.ended == [client]


def test_MQTT_3_14_4_3_disconnect_discards_the_will(node: Node) -> None:
    client = node.client("c", connect=Connect(4, b"c", will=will("w")))
    assert node.feed(client, encode.disconnect(4)) == []
    assert client.state == CLOSED
    assert node.port.published == []


def test_disconnect_with_will_message_keeps_the_will(node: Node) -> None:
    client = node.client("c", connect=Connect(5, b"c", will=will("w")))
    node.feed(client, encode.disconnect(5, Reason.DISCONNECT_WITH_WILL))
    assert len(node.port.published) == 1


def test_MQTT_3_1_2_22_a_silent_client_is_overdue_after_one_and_a_half_keep_alives(node: Node) -> None:
    node.router.now_s = 100.0
    client = node.client("c", connect=Connect(5, b"c", keep_alive_s=10))
    assert not client.overdue(115.0)
    assert client.overdue(115.1)
    node.router.now_s = 110.0
    node.feed(client, encode.PINGREQ)
    assert not client.overdue(125.0)
    client.expire()
    node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.KEEP_ALIVE_TIMEOUT)]


def test_a_client_that_says_connect_slowly_buys_no_time(node: Node) -> None:
    client = node.opened()
    packet = encode.connect(Connect(4, b"c"))
    for byte in packet[:-1]:
        node.router.now_s += 1.0
        node.feed(client, bytes((byte,)))
    assert client.overdue(15.1)


def test_keep_alive_0_never_expires(node: Node) -> None:
    assert not node.client("c").overdue(1e9)


def congested(node: Node, subscriber: Client, publisher: Client) -> None:
    """Fill the subscriber's queue until its publishers pause."""
    packet_id = 1
    while publisher.paused == 0:
        node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=packet_id))
        packet_id += 1


def test_a_crowded_subscriber_pauses_its_publisher_until_it_acknowledges() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    congested(node, subscriber, publisher)
    acknowledged = 0
    waiting = subscriber.packets()
    while publisher.paused:
        assert waiting, "the publisher stays paused"
        waiting = node.feed(subscriber, b"\x40\x02" + waiting[0][5:7])
        acknowledged += 1
    assert acknowledged == 1


def test_a_subscriber_that_makes_no_progress_holds_its_publisher_for_a_while_only() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    congested(node, subscriber, publisher)
    (slow,) = node.router.pauses.slow
    assert slow.check_progress(node.router.now_s + 0.4)
    assert publisher.paused == 1
    assert slow.check_progress(node.router.now_s + 0.6)
    assert publisher.paused == 0
    assert node.router.counters.slow_readers == 1


def test_a_session_without_room_ends_rather_than_missing_a_message() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("a", 1))
    for i in range(12):
        node.feed(node.client(f"p{i}"), publish(4, "a", "x", qos=1, packet_id=1))
    assert subscriber.packets()[-1] == encode.disconnect(5, Reason.QUOTA_EXCEEDED)
    assert subscriber.state == CLOSED


def test_a_closed_channel_leaves_no_subscription_behind(node: Node) -> None:
    subscriber = node.client("s")
    node.subscribe(subscriber, ("a/+", 1), ("b", 0), ("c/#", 2))
    subscriber.lost()
    assert len(node.router.local) == 0
    assert node.router.counters.subscriptions == 0
    assert sorted(node.port.dropped) == [b"a/+", b"b", b"c/#"]


@pytest.mark.parametrize("reference", ["", "mqtt-b.example:1883"])
def test_a_client_that_is_sent_away_hears_where_it_may_go(reference: str) -> None:
    node = Node(Limits(server_reference=reference))
    client = node.client("c", 5)
    client.send_away(False)
    node.turn()
    assert client.packets() == [
        elsewhere(reference) if reference else encode.disconnect(5, Reason.SERVER_SHUTTING_DOWN)
    ]


def elsewhere(reference: str) -> bytes:
    own = Properties()
    own.server_reference = reference.encode()
    return encode.disconnect(5, Reason.USE_ANOTHER_SERVER, own if reference else None)


@pytest.mark.parametrize("reference", ["", "mqtt-b.example:1883"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_other_nodes_take_is_sent_to_them(reference: str, version: int) -> None:
    node = Node(Limits(server_reference=reference))
    client = node.client("c", version)
    client.send_away(True)
    node.turn()
    assert client.packets() == ([elsewhere(reference)] if version == 5 else [])
    assert client.close_reason == Reason.USE_ANOTHER_SERVER


def test_MQTT_3_1_2_24_a_reference_that_is_too_long_for_the_client_is_left_out() -> None:
    node = Node(Limits(server_reference="mqtt-b.example:1883"))
    client, own = node.opened(), Properties()
    own.maximum_packet_size = 30
    node.feed(client, encode.connect(Connect(5, b"c", properties=own)))
    client.send_away(True)
    node.turn()
    assert client.packets() == [elsewhere("")]
