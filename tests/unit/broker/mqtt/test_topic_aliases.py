"""Topic aliases, both ways."""

from __future__ import annotations

import pytest

from flockmq.bounds import INCOMING_ALIASES_MAX_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.mqtt.topic_aliases import OutgoingAliases
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, without_words


def alias(number: int) -> bytes:
    return b"\x23" + number.to_bytes(2, "big")


def aliased(topic: str, payload: str, number: int, qos: int = 0, more: bytes = b"") -> bytes:
    return encode.publish(
        5, topic.encode(), payload.encode(), qos=qos, packet_id=1 if qos else 0, encoded_properties=alias(number) + more
    )


def allowing(node: Node, maximum: int, client_id: str = "s") -> Client:
    """A client that takes so many aliases."""
    own = Properties()
    own.topic_alias_maximum = maximum
    return node.client(client_id, connect=Connect(5, client_id.encode(), properties=own))


@pytest.fixture
def node() -> Node:
    return Node(Limits(max_topic_alias=2))


def test_an_alias_stands_for_its_topic_and_is_not_passed_on(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("#", 1))
    more = b"\x26\x00\x01k\x00\x01v"
    node.feed(publisher, aliased("a/b", "1", 2, more=more) + aliased("", "2", 2, qos=1) + aliased("c", "3", 2))
    node.feed(publisher, aliased("", "4", 2))
    assert subscriber.packets() == [
        encode.publish(5, b"a/b", b"1", encoded_properties=more),
        publish(5, "a/b", "2", qos=1, packet_id=1),
        publish(5, "c", "3"),
        publish(5, "c", "4"),
    ]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (aliased("a", "x", 3), Reason.TOPIC_ALIAS_INVALID),
        (aliased("a", "x", 0), Reason.TOPIC_ALIAS_INVALID),
        (aliased("", "x", 1), Reason.PROTOCOL_ERROR),
        (publish(5, "", "x"), Reason.PROTOCOL_ERROR),
    ],
)
def test_what_an_alias_cannot_be_ends_the_connection(node: Node, packet: bytes, reason: int) -> None:
    assert without_words(node.feed(node.client("p", 5), packet)) == [encode.disconnect(5, reason)]


def test_the_topics_of_a_clients_aliases_have_so_many_bytes_together(node: Node) -> None:
    publisher, half = node.client("p", 5), "t" * (INCOMING_ALIASES_MAX_BYTES // 2)
    for topic in (half, "u" + half[1:]):
        assert node.feed(publisher, aliased(topic, "", 1) + aliased("short", "", 2) + aliased("", "", 1)) == []
    ended = node.feed(publisher, aliased(half + half[4:], "", 1))
    assert without_words(ended) == [encode.disconnect(5, Reason.QUOTA_EXCEEDED)]


def test_MQTT_3_3_2_7_aliases_end_with_their_connection(node: Node) -> None:
    first = node.client("p", 5)
    node.feed(first, aliased("a", "x", 1))
    first.lost()
    second = node.client("p", 5)
    assert without_words(node.feed(second, aliased("", "x", 1))) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]


def test_a_client_that_takes_aliases_gets_them(node: Node) -> None:
    subscriber, publisher = allowing(node, 1), node.client("p", 4)
    node.subscribe(subscriber, ("#", 1))
    node.feed(publisher, publish(4, "long/topic", "1"))
    node.feed(publisher, publish(4, "long/topic", "2", qos=1, packet_id=5))
    node.feed(publisher, publish(4, "other", "3"))
    assert subscriber.packets() == [
        aliased("long/topic", "1", 1),
        encode.publish(5, b"", b"2", qos=1, packet_id=5, encoded_properties=alias(1)),
        publish(5, "other", "3"),
    ]


def test_a_long_topic_gets_none_and_so_takes_no_memory() -> None:
    aliases = OutgoingAliases(10)
    long = encode.publish(5, b"t" * 60_000, b"x")
    assert [aliases.shorten(long) for _ in range(2)] == [long, long]
    longest_that_gets_one = encode.publish(5, b"t" * 1024, b"x")
    aliases.shorten(longest_that_gets_one)
    assert len(aliases.shorten(longest_that_gets_one)) < 20


def test_others_of_the_same_fan_out_get_plain_packets(node: Node) -> None:
    plain, publisher = node.client("plain", 5), node.client("p", 5)
    node.subscribe(plain, ("a", 0))
    node.subscribe(allowing(node, 5), ("a", 0))
    node.feed(publisher, publish(5, "a", "x") * 3)
    assert plain.packets() == [publish(5, "a", "x")] * 3


def test_a_packet_that_has_properties_keeps_them_behind_its_alias() -> None:
    aliases = OutgoingAliases(10)
    packet = encode.publish(5, b"t", b"x" * 200, qos=2, packet_id=3, encoded_properties=b"\x01\x01")
    assert aliases.shorten(packet) == encode.publish(
        5, b"t", b"x" * 200, qos=2, packet_id=3, encoded_properties=alias(1) + b"\x01\x01"
    )
    assert aliases.shorten(packet) == encode.publish(
        5, b"", b"x" * 200, qos=2, packet_id=3, encoded_properties=alias(1) + b"\x01\x01"
    )


@pytest.mark.parametrize("version", [4, 5])
def test_no_alias_makes_a_packet_larger_than_its_receiver_takes(version: int) -> None:
    node = Node()
    own = Properties()
    own.topic_alias_maximum = 5
    own.maximum_packet_size = len(publish(5, "topic", "x" * 120))
    client, publisher = node.client("s", connect=Connect(5, b"s", properties=own)), node.client("p", version)
    node.subscribe(client, ("topic", 0))
    node.feed(publisher, publish(version, "topic", "x" * 120))
    assert client.packets() == [publish(5, "topic", "x" * 120)]
    node.feed(publisher, publish(version, "topic", "x" * 20) * 2)
    assert client.packets() == [aliased("topic", "x" * 20, 1), aliased("", "x" * 20, 1)]


@pytest.mark.parametrize("topic", [b"a", b"ab", b"abcd"])
@pytest.mark.parametrize("payload_bytes", [1, *range(117, 128)])
def test_MQTT_3_1_2_24_an_alias_makes_no_packet_larger_than_its_client_allows(topic: bytes, payload_bytes: int) -> None:
    packet = encode.publish(5, topic, b"x" * payload_bytes)
    aliases = OutgoingAliases(10, len(packet))
    aliases.shorten(encode.publish(5, topic, b""))
    assert len(aliases.shorten(packet)) <= len(packet)
