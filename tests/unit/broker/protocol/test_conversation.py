"""The protocol of one connection, by its normative statements where there is one."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Node, publish, without_words


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


@pytest.mark.parametrize("asked_s", [0, 60])
def test_who_asked_for_a_session_expiry_may_change_it_though_the_zone_grants_none(asked_s: int) -> None:
    node = Node(Limits(max_session_expiry_interval=0))
    own, changed = Properties(), Properties()
    own.session_expiry_interval, changed.session_expiry_interval = asked_s, 30
    client = node.client("c", 5, Connect(5, b"c", properties=own, will=will("gone")))
    answer = node.feed(client, encode.disconnect(5, Reason.SUCCESS, changed))
    if asked_s:
        assert (answer, node.port.published) == ([], [])
    else:
        assert without_words(answer) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]
        assert [message.topic for message in node.port.published] == [b"gone"]


def test_disconnect_with_will_message_keeps_the_will(node: Node) -> None:
    client = node.client("c", connect=Connect(5, b"c", will=will("w")))
    node.feed(client, encode.disconnect(5, Reason.DISCONNECT_WITH_WILL))
    assert len(node.port.published) == 1


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
