"""QoS 1 and 2, packet by packet: what is answered, and what is a protocol error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.mqtt import encode, frame
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Node, publish, without_words


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


def test_receive_maximum_bounds_what_is_in_flight(node: Node) -> None:
    properties = Properties()
    properties.receive_maximum = 2
    subscriber = node.client("s", connect=Connect(5, b"s", properties=properties))
    publisher = node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.feed(publisher, b"".join(publish(4, "a", str(i), qos=1, packet_id=i) for i in range(1, 6)))
    assert len(subscriber.packets()) == 2
    assert len(node.feed(subscriber, b"\x40\x02\x00\x01\x40\x02\x00\x02")) == 2
