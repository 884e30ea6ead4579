"""PUBLISH (section 3.3): RETAIN, DUP, topics, properties on their way to the subscribers, packets too large."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    CONNACK,
    CONTENT_TYPE,
    CORRELATION_DATA,
    DISCONNECT,
    MAXIMUM_PACKET_SIZE,
    PAYLOAD_FORMAT,
    PUBACK,
    PUBREC,
    RECEIVE_MAXIMUM,
    RESPONSE_TOPIC,
    SUBSCRIPTION_ID,
    TOPIC_ALIAS,
    USER_PROPERTY,
    Properties,
    connect,
    publish,
)

Topic = Callable[[str], str]
PASSED_ON: Properties = [
    (PAYLOAD_FORMAT, 1),
    (CONTENT_TYPE, "text/\u00fc".encode()),
    (RESPONSE_TOPIC, b"answers/here"),
    (CORRELATION_DATA, bytes(range(256))),
    (USER_PROPERTY, (b"z", b"1")),
    (USER_PROPERTY, (b"a", b"2")),
    (USER_PROPERTY, (b"z", b"")),
]


@statement("MQTT-3.3.1-3", "MQTT-4.3.2-2", "MQTT-4.3.3-2", "MQTT-4.3.1-1", "MQTT-3.3.1-2", version=5)
@statement("MQTT-3.3.1-3", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-4.3.1-1", "MQTT-3.3.1-2", version=311)
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wires = [client(f"at-{granted}", version) for granted in (0, 1, 2)]
    for granted, wire in enumerate(wires):
        wire.subscribe((topic("a"), granted))
    publisher = client("publisher", version)
    publisher.send(publish(version, topic("a"), b"x", qos=qos, packet_id=9, dup=True))
    assert publisher.expect(PUBACK if qos == 1 else PUBREC).packet_id == 9
    for granted, wire in enumerate(wires):
        message = wire.receive()
        assert (message.qos, message.dup) == (min(qos, granted), False)


@statement("MQTT-3.3.1-2", version=5)
@statement("MQTT-3.3.1-2", version=311)
def test_dup_at_qos_0_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", dup=True))
    wire.refused(0x81)


@statement("MQTT-3.3.1-4", version=5)
@statement("MQTT-3.3.1-4", version=311)
def test_both_qos_bits_are_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", qos=3, packet_id=1))
    wire.refused(0x81)


@statement("MQTT-3.3.1-5", "MQTT-3.3.1-9", version=5)
@statement("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", version=311)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_reaches_later_subscribers(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"older", qos=1, retain=True)
    publisher.publish(topic("a"), b"newer", qos=qos, retain=True)
    publisher.publish(topic("b"), b"other", qos=1, retain=True)
    wire = client("late", version)
    wire.subscribe((topic("+"), 2))
    found = sorted((wire.receive() for _ in range(2)), key=lambda message: message.topic)
    assert [(m.payload, m.qos, m.retain) for m in found] == [(b"newer", qos, True), (b"other", 1, True)]
    wire.quiet()


@statement("MQTT-3.3.1-6", "MQTT-3.3.1-7", version=5)
@statement("MQTT-3.3.1-10", "MQTT-3.3.1-11", version=311)
def test_an_empty_retained_message_removes_what_was_retained(client: Clients, topic: Topic, version: int) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"kept", retain=True)
    early = client("early", version)
    early.subscribe((topic("a"), 1))
    assert early.receive().retain
    publisher.publish(topic("a"), b"", retain=True)
    message = early.receive()
    assert (message.payload, message.retain) == (b"", False)
    late = client("late", version)
    late.subscribe((topic("a"), 1))
    late.quiet()


@statement("MQTT-3.3.1-8", version=5)
@statement("MQTT-3.3.1-12", version=311)
def test_without_retain_what_is_retained_stays_as_it_is(client: Clients, topic: Topic, version: int) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"kept", retain=True)
    publisher.publish(topic("a"), b"passing")
    publisher.publish(topic("a"), b"")
    publisher.publish(topic("b"), b"passing")
    late = client("late", version)
    late.subscribe((topic("#"), 1))
    assert late.receive().payload == b"kept"
    late.quiet()


@statement("MQTT-3.3.1-12", version=5)
@statement("MQTT-3.3.1-9", version=311)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_established_subscription_gets_retain_0(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wire = client("early", version)
    wire.subscribe((topic("a"), qos))
    client("publisher", version).publish(topic("a"), b"x", qos=qos, retain=True)
    assert not wire.receive().retain


@statement("MQTT-3.3.1-13", version=5)
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published_keeps_the_flag(client: Clients, topic: Topic, version: int, retain: bool) -> None:
    wire = client("early", version)
    wire.subscribe((topic("a"), 0x08 | 1))
    for qos in (0, 1, 2):
        client("publisher", version).publish(topic("a"), b"x", qos=qos, retain=retain)
        assert wire.receive().retain is retain


@statement("MQTT-3.3.1-9", "MQTT-3.3.1-10", "MQTT-3.3.1-11", version=5)
@pytest.mark.parametrize(("handling", "first", "second"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling_says_when_retained_messages_come(
    client: Clients, topic: Topic, version: int, handling: int, first: int, second: int
) -> None:
    client("publisher", version).publish(topic("a"), b"kept", retain=True)
    wire = client("late", version)
    for expected in (first, second):
        wire.subscribe((topic("a"), handling << 4))
        assert [wire.receive().payload for _ in range(expected)] == [b"kept"] * expected
        wire.quiet()


@statement("MQTT-3.1.2-7", version=311)
def test_retained_messages_outlive_their_publishers_session(client: Clients, topic: Topic, version: int) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"kept", retain=True)
    publisher.vanish()
    client("publisher", version)
    wire = client("late", version)
    wire.subscribe((topic("a"), 0))
    assert wire.receive().payload == b"kept"


@statement(
    "MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", version=5
)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("retained", [False, True])
def test_properties_are_passed_on_unaltered_and_in_order(
    client: Clients, topic: Topic, version: int, qos: int, retained: bool
) -> None:
    wire = client("subscriber", version)
    publisher = client("publisher", version)
    if not retained:
        wire.subscribe((topic("a"), 2))
    publisher.publish(topic("a"), b"x", qos=qos, retain=retained, properties=PASSED_ON)
    if retained:
        wire.subscribe((topic("a"), 2))
    found = wire.receive().properties
    users = [entry for entry in PASSED_ON if entry[0] == USER_PROPERTY]
    assert [entry for entry in found if entry[0] == USER_PROPERTY] == users
    assert sorted(found, key=repr) == sorted(PASSED_ON, key=repr)


@statement("MQTT-3.3.2-8", version=5)
def test_topic_alias_0_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", properties=[(TOPIC_ALIAS, 0)]))
    wire.refused(0x94)


@statement("MQTT-3.3.2-9", "MQTT-3.2.2-17", "MQTT-3.2.2-18", version=5)
def test_a_topic_alias_above_the_maximum_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", properties=[(TOPIC_ALIAS, 65_535)]))
    wire.refused(0x94)


@statement("MQTT-3.3.4-6", version=5)
def test_a_clients_subscription_identifier_in_publish_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(publish(version, "a", properties=[(SUBSCRIPTION_ID, 1)]))
    wire.refused(0x82)


@statement("MQTT-3.3.4-2", version=5)
@statement("MQTT-3.3.5-1", version=311)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_of_overlapping_subscriptions_the_highest_qos_counts(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire = client("overlapping", version)
    wire.subscribe((topic("a/#"), 0), (topic("a/+"), 2), (topic("a/b"), 1))
    client("publisher", version).publish(topic("a/b"), b"x", qos=qos)
    assert wire.receive().qos == qos


@statement("MQTT-3.3.4-3", "MQTT-3.3.4-4", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_has_the_identifiers_of_all_subscriptions_that_matched(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire = client("overlapping", version)
    wire.subscribe((topic("a/#"), 2), properties=[(SUBSCRIPTION_ID, 7)])
    wire.subscribe((topic("a/+"), 2), properties=[(SUBSCRIPTION_ID, 268_435_455)])
    wire.subscribe((topic("a/b"), 2))
    wire.subscribe((topic("other"), 2), properties=[(SUBSCRIPTION_ID, 9)])
    client("publisher", version).publish(topic("a/b"), b"x", qos=qos)
    assert sorted(wire.receive().values(SUBSCRIPTION_ID), key=repr) == [268_435_455, 7]
    wire.quiet()


@statement("MQTT-3.1.2-24", "MQTT-3.1.2-25", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_too_large_for_a_client_is_as_good_as_sent(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire = client("small", version, properties=[(MAXIMUM_PACKET_SIZE, 200), (RECEIVE_MAXIMUM, 1)])
    wire.subscribe((topic("a"), 2))
    publisher = client("publisher", version)
    for payload in (b"x" * 300, b"y" * 400, b"small"):
        publisher.publish(topic("a"), payload, qos=qos)
    message = wire.receive()
    assert (message.payload, message.qos) == (b"small", qos)
    wire.quiet()


@statement("MQTT-3.1.2-24", version=5)
def test_a_retained_message_too_large_for_a_client_is_not_sent(client: Clients, topic: Topic, version: int) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"x" * 300, retain=True)
    publisher.publish(topic("b"), b"small", retain=True)
    wire = client("small", version, properties=[(MAXIMUM_PACKET_SIZE, 200)])
    wire.subscribe((topic("+"), 1))
    assert wire.receive().payload == b"small"
    wire.quiet()


@statement("MQTT-3.3.4-7", version=5)
def test_more_messages_than_the_servers_receive_maximum_are_refused(
    client: Clients, topic: Topic, version: int
) -> None:
    """QoS 2 messages stay under way until PUBREL; the server says its Receive Maximum in CONNACK."""
    wire = client.opened(version)
    wire.send(connect(version, client.id("eager")))
    maximum = wire.expect(CONNACK).value(RECEIVE_MAXIMUM)
    assert isinstance(maximum, int)
    for packet_id in range(1, maximum + 1):
        wire.send(publish(version, topic("a"), qos=2, packet_id=packet_id))
        assert wire.expect(PUBREC).packet_id == packet_id
    wire.send(publish(version, topic("a"), qos=2, packet_id=maximum + 1))
    assert wire.expect(DISCONNECT).reason == 0x93
    assert wire.next() is None
