"""The delivery protocols (section 4.3), their packets (3.4 to 3.7), order (4.6) and flow control (4.9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    DISCONNECT,
    MAXIMUM_PACKET_SIZE,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    SUBACK,
    UNSUBACK,
    V5,
    Wire,
    acknowledgement,
    payloads,
    publish,
    subscribe,
    unsubscribe,
)

Topic = Callable[[str], str]

PUBACK_REASONS = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
COMPLETION_REASONS = {0x00, 0x92}


def subscriber(client: Clients, topic: Topic, version: int, qos: int, **properties: int) -> Wire:
    entries = [(RECEIVE_MAXIMUM, properties["receive_maximum"])] if properties else None
    wire = client("subscriber", version, properties=entries)
    wire.subscribe((topic("a"), qos))
    return wire


# Towards the server.


@statement("MQTT-3.3.4-1", "MQTT-4.3.2-4", "MQTT-2.2.1-5", "MQTT-3.4.2-1", version=5)
@statement("MQTT-3.3.4-1", "MQTT-4.3.2-2", "MQTT-2.3.1-6", version=311)
def test_qos_1_is_answered_with_puback(client: Clients, topic: Topic, version: int) -> None:
    wire = client("publisher", version)
    for packet_id in (1, 256, 65_535):
        wire.send(publish(version, topic("a"), qos=1, packet_id=packet_id))
        answer = wire.expect(PUBACK)
        assert answer.packet_id == packet_id
        assert answer.reason in PUBACK_REASONS


@statement("MQTT-3.3.4-1", version=5)
@statement("MQTT-3.3.4-1", version=311)
def test_qos_0_is_not_answered(client: Clients, topic: Topic, version: int) -> None:
    wire = client("publisher", version)
    wire.send(publish(version, topic("a"), b"x"))
    wire.quiet()


@statement("MQTT-4.3.2-5", version=5)
@statement("MQTT-4.3.2-2", version=311)
@pytest.mark.parametrize("dup", [False, True])
def test_after_puback_the_identifier_means_a_new_message(
    client: Clients, topic: Topic, version: int, dup: bool
) -> None:
    wire = subscriber(client, topic, version, 0)
    publisher = client("publisher", version)
    for payload in (b"1", b"2"):
        publisher.send(publish(version, topic("a"), payload, qos=1, packet_id=5, dup=dup))
        assert publisher.expect(PUBACK).packet_id == 5
    assert payloads(wire.pending()) == [b"1", b"2"]


@statement("MQTT-4.3.3-8", "MQTT-4.3.3-10", "MQTT-4.3.3-11", "MQTT-4.3.3-12", "MQTT-2.2.1-5", version=5)
@statement("MQTT-3.5.2-1", "MQTT-3.7.2-1", "MQTT-3.3.4-1", version=5)
@statement("MQTT-4.3.3-2", "MQTT-2.3.1-6", "MQTT-3.3.4-1", version=311)
def test_qos_2_is_delivered_once_between_publish_and_pubcomp(client: Clients, topic: Topic, version: int) -> None:
    wire = subscriber(client, topic, version, 0)
    publisher = client("publisher", version)
    for payload in (b"1", b"2"):
        for dup in (False, True, True):
            publisher.send(publish(version, topic("a"), payload, qos=2, packet_id=7, dup=dup))
            answer = publisher.expect(PUBREC)
            assert answer.packet_id == 7
            assert answer.reason in PUBACK_REASONS
        publisher.send(acknowledgement(PUBREL, 7))
        completed = publisher.expect(PUBCOMP)
        assert (completed.packet_id, completed.reason) == (7, 0)
    assert payloads(wire.pending()) == [b"1", b"2"]


@statement("MQTT-3.7.2-1", "MQTT-4.3.3-11", version=5)
@statement("MQTT-4.3.3-2", version=311)
def test_a_pubrel_of_an_unknown_identifier_is_completed(client: Clients, version: int) -> None:
    wire = client("publisher", version)
    wire.send(acknowledgement(PUBREL, 99))
    answer = wire.expect(PUBCOMP)
    assert answer.packet_id == 99
    assert answer.reason == (0x92 if version == V5 else 0)


@statement("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1", "MQTT-3.7.2-1", version=5)
@pytest.mark.parametrize("kind", [PUBACK, PUBREC, PUBREL, PUBCOMP])
@pytest.mark.parametrize("reason", [0x01, 0x11, 0x7F, 0x8F, 0xFF], ids=hex)
def test_a_reason_code_of_another_packet_is_refused(client: Clients, version: int, kind: int, reason: int) -> None:
    wire = client("refused", version)
    wire.send(acknowledgement(kind, 1, reason))
    wire.refused(0x82)


@statement("MQTT-3.4.2-2", "MQTT-3.4.2-3", "MQTT-3.5.2-2", "MQTT-3.5.2-3", "MQTT-3.6.2-2", "MQTT-3.6.2-3", version=5)
@statement("MQTT-3.7.2-2", "MQTT-3.7.2-3", "MQTT-3.9.2-1", "MQTT-3.9.2-2", "MQTT-3.11.2-1", version=5)
@statement("MQTT-3.11.2-2", version=5)
def test_no_answer_is_made_too_large_by_explanations(client: Clients, topic: Topic, version: int) -> None:
    """Each answer here says that something is wrong, and stays within the 30 bytes that the client allows."""
    wire = client("small", version, properties=[(MAXIMUM_PACKET_SIZE, 30)])
    long = topic("x" * 300)
    wire.send(
        publish(version, long, qos=1, packet_id=1),
        publish(version, long, qos=2, packet_id=2),
        acknowledgement(PUBREL, 99),
        acknowledgement(PUBREC, 98),
        unsubscribe(version, 3, long),
        subscribe(version, 4, (long, 2)),
    )
    answers = [wire.next() for _ in range(6)]
    assert sorted(answer.kind for answer in answers if answer) == [PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK]
    assert all(answer.size <= 30 for answer in answers if answer)


@statement("MQTT-3.1.2-25", version=5)
@pytest.mark.parametrize("kind", ["suback", "unsuback"])
def test_an_answer_that_cannot_be_small_enough_is_not_sent(
    client: Clients, topic: Topic, version: int, kind: str
) -> None:
    wire = client("small", version, properties=[(MAXIMUM_PACKET_SIZE, 30)])
    filters = [topic(str(number)) for number in range(40)]
    if kind == "suback":
        wire.send(subscribe(version, 1, *((filter, 0) for filter in filters)))
    else:
        wire.send(unsubscribe(version, 1, *filters))
    while (found := wire.next()) is not None:
        assert found.size <= 30
        if found.kind == DISCONNECT:
            assert found.reason == 0x95


# Towards the client.


@statement("MQTT-2.2.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", version=5)
@statement("MQTT-2.3.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1", version=311)
@pytest.mark.parametrize("qos", [1, 2])
def test_packet_identifiers_under_way_differ(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wire = subscriber(client, topic, version, 2)
    for number in range(8):
        client(f"publisher-{number}", version).publish(topic("a"), b"x", qos=qos, packet_id=1)
    found = wire.pending()
    identifiers = {message.packet_id for message in found}
    assert len(found) == len(identifiers) == 8
    assert 0 not in identifiers
    assert not any(message.dup for message in found)


@statement("MQTT-4.3.3-4", "MQTT-3.6.2-1", "MQTT-4.3.3-6", version=5)
@statement("MQTT-4.3.3-1", version=311)
def test_pubrec_is_answered_with_pubrel(client: Clients, topic: Topic, version: int) -> None:
    wire = subscriber(client, topic, version, 2)
    client("publisher", version).publish(topic("a"), b"x", qos=2)
    message = wire.expect(PUBLISH)
    for _ in range(2):
        wire.send(acknowledgement(PUBREC, message.packet_id))
        released = wire.expect(PUBREL)
        assert (released.packet_id, released.reason) == (message.packet_id, 0)
    wire.send(acknowledgement(PUBCOMP, message.packet_id))
    wire.quiet()


@statement("MQTT-4.4.0-2", version=5)
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_an_acknowledgement_that_refuses_ends_the_exchange(
    client: Clients, topic: Topic, version: int, qos: int, kind: int
) -> None:
    wire = subscriber(client, topic, version, 2, receive_maximum=1)
    publisher = client("publisher", version)
    for payload in (b"1", b"2"):
        publisher.publish(topic("a"), payload, qos=qos)
    first = wire.expect(PUBLISH)
    wire.send(acknowledgement(kind, first.packet_id, 0x97))
    assert wire.receive().payload == b"2"
    wire.quiet()


@statement("MQTT-2.2.1-5", "MQTT-4.3.2-3", "MQTT-4.3.3-3", "MQTT-4.3.3-5", "MQTT-4.13.1-1", version=5)
@statement("MQTT-2.3.1-6", "MQTT-4.3.2-1", "MQTT-4.3.3-1", "MQTT-4.8.0-1", version=311)
@pytest.mark.parametrize("lasts", [False, True], ids=["ends", "lasts"])
@pytest.mark.parametrize(
    ("qos", "said"),
    [(1, [PUBREC]), (1, [PUBCOMP]), (2, [PUBACK]), (2, [PUBCOMP]), (2, [PUBREC, PUBACK])],
)
def test_an_acknowledgement_of_another_kind_ends_the_connection(
    client: Clients, topic: Topic, version: int, lasts: bool, qos: int, said: list[int]
) -> None:
    wire = client("s", version, clean=not lasts, properties=[(SESSION_EXPIRY, 60)] if lasts and version == V5 else None)
    wire.subscribe((topic("a"), 2))
    client("publisher", version).publish(topic("a"), b"x", qos=qos)
    message = wire.expect(PUBLISH)
    for kind in said[:-1]:
        wire.send(acknowledgement(kind, message.packet_id))
        assert wire.expect(PUBREL).packet_id == message.packet_id
    wire.send(acknowledgement(said[-1], message.packet_id))
    wire.refused(0x82)


@statement("MQTT-4.3.3-4", version=5)
def test_a_pubrec_that_refuses_what_nobody_knows_gets_no_pubrel(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(acknowledgement(PUBREC, 99, 0x87))
    wire.quiet()
    wire.send(acknowledgement(PUBREC, 99))
    released = wire.expect(PUBREL)
    assert (released.packet_id, released.reason) == (99, 0x92)


@statement("MQTT-4.4.0-1", version=5)
@statement("MQTT-4.4.0-1", version=311)
def test_nothing_is_sent_again_within_a_connection(client: Clients, topic: Topic, version: int) -> None:
    wire = subscriber(client, topic, version, 2)
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"1", qos=1)
    publisher.publish(topic("a"), b"2", qos=2)
    assert payloads(wire.pending()) == [b"1", b"2"]
    for _ in range(3):
        wire.quiet()


@statement("MQTT-3.3.4-9", "MQTT-3.3.4-10", "MQTT-4.9.0-1", "MQTT-4.9.0-2", "MQTT-4.9.0-3", version=5)
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("maximum", [1, 3])
def test_the_clients_receive_maximum_is_kept(
    client: Clients, topic: Topic, version: int, qos: int, maximum: int
) -> None:
    wire = subscriber(client, topic, version, 2, receive_maximum=maximum)
    publisher = client("publisher", version)
    for number in range(6):
        publisher.publish(topic("a"), b"%d" % number, qos=qos)
    seen: list[bytes] = []
    under_way = wire.pending()
    assert payloads(under_way) == [b"%d" % number for number in range(maximum)]
    publisher.publish(topic("a"), b"unbounded", qos=0)
    wire.send(subscribe(version, 9, (topic("b"), 0)))
    assert {found.kind for found in wire.pending()} >= {PUBLISH}
    while under_way:
        message = under_way.pop(0)
        seen.append(message.payload)
        if qos == 1:
            wire.send(acknowledgement(PUBACK, message.packet_id))
        else:
            wire.send(acknowledgement(PUBREC, message.packet_id))
            released = [found for found in wire.pending() if found.kind == PUBLISH]
            assert released == [], "PUBREC freed a place that PUBCOMP frees"
            wire.send(acknowledgement(PUBCOMP, message.packet_id))
        under_way += [found for found in wire.pending() if found.kind == PUBLISH]
        assert len(under_way) <= maximum
    assert seen == [b"%d" % number for number in range(6)]


@statement("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.5.0-1", version=5)
@statement("MQTT-4.6.0-5", "MQTT-4.6.0-6", "MQTT-4.5.0-1", version=311)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_reach_each_subscriber_in_order(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wires = [client(f"subscriber-{number}", version) for number in range(3)]
    for granted, wire in enumerate(wires):
        wire.subscribe((topic("#"), granted))
    publisher = client("publisher", version)
    numbers = range(1, 61)
    publisher.send(
        *(
            publish(
                version,
                topic(f"{number % 2}"),
                b"%d" % number,
                qos=qos,
                packet_id=number if qos else None,
                retain=False,
            )
            for number in numbers
        )
    )
    kind = {1: PUBACK, 2: PUBREC}.get(qos)
    if kind is not None:
        assert [publisher.expect(kind).packet_id for _ in numbers] == list(numbers)
    for wire in wires:
        assert [wire.receive_in_order() for _ in numbers] == [b"%d" % number for number in numbers]


@statement("MQTT-4.6.0-6", version=5)
@statement("MQTT-4.6.0-6", "MQTT-4.6.0-4", version=311)
def test_pubrels_come_in_the_order_of_the_pubrecs(client: Clients, topic: Topic, version: int) -> None:
    wire = subscriber(client, topic, version, 2)
    publisher = client("publisher", version)
    for number in range(5):
        publisher.publish(topic("a"), b"%d" % number, qos=2)
    identifiers = [message.packet_id for message in wire.pending()]
    shuffled = identifiers[::2] + identifiers[1::2]
    wire.send(*(acknowledgement(PUBREC, packet_id) for packet_id in shuffled))
    assert [wire.expect(PUBREL).packet_id for _ in shuffled] == shuffled


@statement("MQTT-4.1.0-1", version=5)
@statement("MQTT-4.1.0-1", "MQTT-4.1.0-2", version=311)
def test_the_session_lasts_as_long_as_its_connection(client: Clients, topic: Topic, version: int) -> None:
    """Subscriptions, what is under way, and QoS 2 identifiers are there whatever else the connection does."""
    wire = subscriber(client, topic, version, 2)
    wire.send(publish(version, topic("b"), qos=2, packet_id=3))
    assert wire.expect(PUBREC).packet_id == 3
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"1", qos=2)
    message = wire.expect(PUBLISH)
    wire.send(subscribe(version, 4, (topic("c"), 0)), unsubscribe(version, 5, topic("c")))
    wire.expect_soon(SUBACK, 4)
    wire.expect_soon(UNSUBACK, 5)
    wire.send(acknowledgement(PUBREC, message.packet_id), acknowledgement(PUBREL, 3))
    assert wire.expect(PUBREL).packet_id == message.packet_id
    assert wire.expect(PUBCOMP).reason == 0
    publisher.publish(topic("a"), b"2", qos=0)
    assert wire.receive().payload == b"2"
