"""strict_mode: what else is refused, with which reason; the fast path takes what was checked."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode, frame
from flockmq.mqtt.frame import varint
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.properties import encode as encode_properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, without_words

MALFORMED = encode.disconnect(5, Reason.MALFORMED_PACKET)
DOUBTFUL = ["\x01", "\x1f", "\x7f", "\x9f", "\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff"]
NORMAL = " ~\xa0\ufeff\ufdcf\ufdf0\ufffd\U0001fffd😀"


@pytest.fixture
def node() -> Node:
    return Node(Limits(strict_mode=True))


def with_properties(payload: bytes, qos: int = 0, **values: object) -> bytes:
    properties = Properties()
    for name, value in values.items():
        setattr(properties, name, value)
    encoded = encode_properties(frame.PUBLISH, properties)
    return encode.publish(5, b"a", payload, qos=qos, packet_id=qos, encoded_properties=encoded)


def test_other_characters_are_taken(node: Node) -> None:
    subscriber = node.client(NORMAL, 5)
    node.subscribe(subscriber, (NORMAL, 0))
    packet = publish(5, NORMAL, "x")
    node.feed(node.client("p", 5), packet)
    assert subscriber.packets() == [packet]


@pytest.mark.parametrize("character", DOUBTFUL, ids=ascii)
def test_control_characters_and_non_characters_are_refused_in_topics(node: Node, character: str) -> None:
    subscribe = encode.subscribe(5, 1, [SubscribeEntry(f"a/{character}".encode(), 0)])
    for packet in (publish(5, f"a/{character}", "x"), publish(5, f"a{character}", "x", qos=1, packet_id=1), subscribe):
        client = node.client("c", 5)
        assert without_words(node.feed(client, packet)) == [MALFORMED]
        assert client.state == CLOSED
    before_5 = node.client("c", 4)
    assert node.feed(before_5, publish(4, f"a/{character}", "x")) == []
    assert before_5.state == CLOSED


def test_all_other_strings_are_checked_as_well(node: Node) -> None:
    pair = [(b"name", b"\x02")]
    bye, puback = Properties(), Properties()
    bye.reason_string = b"\x02"
    puback.user_properties = pair
    reported = encode_properties(frame.PUBACK, puback)
    packets = [
        with_properties(b"x", content_type=b"\x02"),
        with_properties(b"x", response_topic=b"a\x02"),
        with_properties(b"x", user_properties=pair),
        encode.unsubscribe(5, 1, [b"a\x02"]),
        encode.disconnect(5, 0, bye),
        frame.frame(0x40, b"\0\1\0" + varint(len(reported)) + reported),
    ]
    for packet in packets:
        assert without_words(node.feed(node.client("c", 5), packet)) == [MALFORMED], packet


@pytest.mark.parametrize(
    "connect",
    [
        Connect(5, b"c\x02"),
        Connect(5, b"c", user_name=b"\x7f"),
        Connect(5, b"c", will=ConnectWill(b"a\xc2\x80", b"", 0, False, None)),
    ],
)
def test_the_strings_of_connect_are_checked(node: Node, connect: Connect) -> None:
    refused = encode.connack(5, Reason.MALFORMED_PACKET)
    assert without_words(node.feed(node.opened(), encode.connect(connect))) == [refused]


def test_mqtt_31_takes_client_ids_of_23_characters(node: Node) -> None:
    assert node.feed(node.opened(), encode.connect(Connect(3, "é".encode() * 23))) == [b"\x20\2\0\0"]
    assert node.feed(node.opened(), encode.connect(Connect(3, b"c" * 24))) == [b"\x20\2\0\2"]
    assert node.feed(node.opened(), encode.connect(Connect(4, b"c" * 24))) == [b"\x20\2\0\0"]


@pytest.mark.parametrize(
    ("qos", "answer"),
    [
        (0, encode.disconnect(5, Reason.PAYLOAD_FORMAT_INVALID)),
        (1, encode.pub_ack(frame.PUBACK, 5, 1, Reason.PAYLOAD_FORMAT_INVALID)),
        (2, encode.pub_ack(frame.PUBREC, 5, 2, Reason.PAYLOAD_FORMAT_INVALID)),
    ],
)
def test_a_payload_that_is_not_what_it_says_is_refused(node: Node, qos: int, answer: bytes) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("a", 2))
    good = with_properties("é".encode(), qos, payload_format_indicator=1)
    node.feed(publisher, good)
    assert len(subscriber.packets()) == 1
    if qos == 2:
        node.feed(publisher, b"\x62\2\0\2")
    assert node.feed(publisher, with_properties(b"\xff", qos, payload_format_indicator=0)) != [answer]
    if qos == 2:
        node.feed(publisher, b"\x62\2\0\2")
    subscriber.packets()
    assert node.feed(publisher, with_properties(b"\xff", qos, payload_format_indicator=1)) == [answer]
    assert subscriber.packets() == []
    if qos == 2:  # the packet id stands for nothing any more
        assert node.feed(publisher, with_properties(b"y", 2)) == [b"\x50\2\0\2"]
        assert len(subscriber.packets()) == 1


def test_a_will_that_is_not_what_it_says_is_refused(node: Node) -> None:
    said = Properties()
    said.payload_format_indicator = 1
    connect = Connect(5, b"c", will=ConnectWill(b"a", b"\xff", 0, False, said))
    refused = encode.connack(5, Reason.PAYLOAD_FORMAT_INVALID)
    assert without_words(node.feed(node.opened(), encode.connect(connect))) == [refused]


def test_MQTT_3_3_1_1_a_qos_2_message_is_sent_again_with_dup(node: Node) -> None:
    publisher = node.client("p", 5)
    for dup in (False, True, True):
        (answer,) = node.feed(publisher, publish(5, "a", "x", qos=2, packet_id=5, dup=dup))
        assert answer[:4:3] == b"\x50\5"
    again = node.feed(publisher, publish(5, "a", "x", qos=2, packet_id=5))
    assert without_words(again) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]


@pytest.mark.parametrize("asked_about", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_heads_that_others_made_known_are_checked_for_a_strict_client(node: Node, qos: int, asked_about: bool) -> None:
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("#", qos))
    lax = Client(node.router, node.port, Limits())
    node.feed(lax, encode.connect(Connect(5, b"lax")))
    strict = node.client("strict", 5)
    strict.set_must_authorize(asked_about)
    doubtful, good = (publish(5, topic, "x", qos=qos, packet_id=qos) for topic in ("a\x02", "good"))
    for _ in range(3):
        node.feed(lax, doubtful)
        node.feed(strict, good * 2)
    assert len(subscriber.packets()) == 9
    assert strict.allowed is not None
    assert len(strict.allowed) == 1
    assert without_words(node.feed(strict, good + doubtful))[-1:] == [MALFORMED]
    assert len(subscriber.packets()) == 1


def test_without_it_all_of_that_is_taken() -> None:
    node = Node()
    subscriber, publisher = node.client("s\x02", 5), node.client("p" * 24, 3)
    node.subscribe(subscriber, ("#", 0))
    node.feed(publisher, publish(4, "a\x02", "x") + publish(4, "a", "y", qos=2, packet_id=1) * 2)
    node.feed(node.client("q", 5), with_properties(b"\xff", payload_format_indicator=1, content_type=b"\x02"))
    assert len(subscriber.packets()) == 3
