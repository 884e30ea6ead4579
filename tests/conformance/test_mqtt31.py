"""MQTT 3.1, where it differs from 3.1.1: it has no numbered statements, but devices that speak it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.wire import CONNACK, PUBACK, PUBCOMP, PUBREC, SUBACK, V31, acknowledgement, connect, publish, subscribe

Topic = Callable[[str], str]


def test_mqtt_31_is_spoken(client: Clients, topic: Topic) -> None:
    wire = client("old", V31)
    wire.subscribe((topic("a"), 2))
    for qos in (0, 1, 2):
        client("publisher", V31).publish(topic("a"), b"%d" % qos, qos=qos)
        message = wire.receive()
        assert (message.payload, message.qos) == (b"%d" % qos, qos)


@pytest.mark.parametrize(("name", "level"), [(b"MQIsdp", 4), (b"MQIsdp", 5), (b"MQTT", 3)])
def test_name_and_level_have_to_fit_each_other(client: Clients, name: bytes, level: int) -> None:
    wire = client.opened(V31)
    sent = connect(V31, "c", name=name, level=level)
    if level == 5:
        wire.version = 5
    wire.send(sent)
    assert wire.expect(CONNACK).reason == (0x84 if level == 5 else 1)
    assert wire.next() is None


@pytest.mark.parametrize("clean", [True, False])
def test_an_empty_client_identifier_is_rejected(client: Clients, clean: bool) -> None:
    wire = client.opened(V31)
    wire.send(connect(V31, "", clean=clean))
    assert wire.expect(CONNACK).reason == 2
    assert wire.next() is None


def test_a_user_name_that_the_flags_promise_may_be_left_out(client: Clients) -> None:
    wire = client.opened(V31)
    wire.send(connect(V31, client.id("old"), flags=0xC2))
    assert wire.expect(CONNACK).reason == 0


def test_unused_flags_are_not_looked_at(client: Clients, topic: Topic) -> None:
    """A repeated SUBSCRIBE or PUBREL has DUP set in MQTT 3.1."""
    wire = client("old", V31)
    again = subscribe(V31, 1, (topic("a"), 1))
    wire.send(again, bytes((again[0] | 8,)) + again[1:])
    assert [wire.expect(SUBACK).reasons for _ in range(2)] == [[1], [1]]
    wire.send(publish(V31, topic("b"), qos=2, packet_id=3))
    assert wire.expect(PUBREC).packet_id == 3
    released = acknowledgement(6, 3)
    wire.send(bytes((released[0] | 8,)) + released[1:])
    assert wire.expect(PUBCOMP).packet_id == 3
    wire.send(publish(V31, topic("b"), dup=True), publish(V31, topic("b"), qos=1, packet_id=4))
    assert wire.expect(PUBACK).packet_id == 4
