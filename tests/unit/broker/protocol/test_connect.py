"""CONNECT, by its normative statements where there is one: who is let in, and with which answer."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, ConnectWill, SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED
from unit.broker.protocol.harness import Node, publish, without_words


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


@pytest.mark.parametrize("version", [4, 5])
def test_a_will_has_no_more_levels_than_the_zone_allows(node: Node, version: int) -> None:
    node.limits.max_topic_levels = 3
    for topic, is_let_in in ((b"a/b/c", True), (b"a/b/c/d", False)):
        client = node.opened()
        node.feed(client, encode.connect(Connect(version, b"c", will=ConnectWill(topic, b"", 0, False, None))))
        assert (client.state == CONNECTED) == is_let_in


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


def test_MQTT_3_1_2_22_a_silent_client_is_overdue_after_one_and_a_half_keep_alives(node: Node) -> None:
    node.router.host.now_s = 100.0
    client = node.client("c", connect=Connect(5, b"c", keep_alive_s=10))
    assert not client.overdue(115.0)
    assert client.overdue(115.1)
    node.router.host.now_s = 110.0
    node.feed(client, encode.PINGREQ)
    assert not client.overdue(125.0)
    client.expire()
    node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.KEEP_ALIVE_TIMEOUT)]


def test_a_client_that_says_connect_slowly_buys_no_time(node: Node) -> None:
    client = node.opened()
    packet = encode.connect(Connect(4, b"c"))
    for byte in packet[:-1]:
        node.router.host.now_s += 1.0
        node.feed(client, bytes((byte,)))
    assert client.overdue(15.1)


def test_keep_alive_0_never_expires(node: Node) -> None:
    assert not node.client("c").overdue(1e9)
