"""Shared subscriptions (section 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    PUBACK,
    PUBLISH,
    PUBREC,
    SESSION_EXPIRY,
    SUBACK,
    Properties,
    acknowledgement,
    payloads,
    subscribe,
    unsubscribe,
)

Topic = Callable[[str], str]
LONG: Properties = [(SESSION_EXPIRY, 3600)]


@statement("MQTT-4.8.2-1", "MQTT-4.8.2-2", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_of_each_group(client: Clients, topic: Topic, version: int, qos: int) -> None:
    one = [client(f"one-{number}", version) for number in range(3)]
    two = [client(f"two-{number}", version) for number in range(2)]
    alone = client("alone", version)
    for group, members in (("one", one), ("two", two)):
        for wire in members:
            wire.subscribe((f"$share/{group}-{client.name}/{topic('+')}", qos))
    alone.subscribe((topic("#"), qos))
    publisher = client("publisher", version)
    sent = [b"%d" % number for number in range(12)]
    for payload in sent:
        publisher.publish(topic("a"), payload, qos=qos)
    assert payloads(alone.pending()) == sent
    for members in (one, two):
        heard = [payload for wire in members for payload in payloads(wire.pending())]
        assert sorted(heard) == sorted(sent)


@statement("MQTT-4.8.2-3", version=5)
def test_each_member_gets_its_own_granted_qos(client: Clients, topic: Topic, version: int) -> None:
    members = {granted: client(f"member-{granted}", version) for granted in (0, 1, 2)}
    for granted, wire in members.items():
        wire.subscribe((f"$share/{client.name}/{topic('a')}", granted))
    publisher = client("publisher", version)
    for _ in range(30):
        publisher.publish(topic("a"), b"x", qos=2)
    heard = 0
    for granted, wire in members.items():
        while found := [packet for packet in wire.pending() if packet.kind == PUBLISH]:
            heard += len(found)
            assert {message.qos for message in found} == {granted}
            for message in found:
                if granted:
                    wire.send(acknowledgement(PUBACK if granted == 1 else PUBREC, message.packet_id))
                if granted == 2:
                    wire.send(acknowledgement(7, message.packet_id))
    assert heard == 30


@statement("MQTT-4.8.2-4", version=5)
def test_a_qos_2_delivery_that_has_begun_stays_with_its_member(client: Clients, topic: Topic, version: int) -> None:
    filter = f"$share/{client.name}/{topic('a')}"
    chosen = client("chosen", version, clean=False, properties=LONG)
    chosen.subscribe((filter, 2))
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"begun", qos=2)
    message = chosen.expect(PUBLISH)
    other = client("other", version)
    other.subscribe((filter, 2))
    chosen.vanish()
    other.quiet()
    again = client("chosen", version, clean=False, properties=LONG, session_present=1)
    resent = again.receive()
    assert (resent.packet_id, resent.payload) == (message.packet_id, b"begun")
    other.quiet()


@statement("MQTT-4.8.2-5", version=5)
def test_a_qos_2_delivery_that_has_begun_goes_to_nobody_else(client: Clients, topic: Topic, version: int) -> None:
    filter = f"$share/{client.name}/{topic('a')}"
    chosen = client("chosen", version)
    chosen.subscribe((filter, 2))
    client("publisher", version).publish(topic("a"), b"begun", qos=2)
    assert chosen.expect(PUBLISH).payload == b"begun"
    other = client("other", version)
    other.subscribe((filter, 2))
    chosen.vanish()
    client("chosen", version)  # the session is gone for good
    other.quiet()


@statement("MQTT-4.8.2-6", version=5)
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_message_that_its_member_refuses_is_discarded(
    client: Clients, topic: Topic, version: int, qos: int, kind: int
) -> None:
    filter = f"$share/{client.name}/{topic('a')}"
    chosen = client("chosen", version)
    chosen.subscribe((filter, qos))
    client("publisher", version).publish(topic("a"), b"unwanted", qos=qos)
    message = chosen.expect(PUBLISH)
    other = client("other", version)
    other.subscribe((filter, qos))
    chosen.send(acknowledgement(kind, message.packet_id, 0x83))
    chosen.quiet()
    chosen.vanish()
    client("chosen", version)
    other.quiet()


@statement("MQTT-3.3.1-9", version=5)
def test_a_shared_subscription_gets_no_retained_messages(client: Clients, topic: Topic, version: int) -> None:
    client("publisher", version).publish(topic("a"), b"kept", retain=True)
    wire = client("member", version)
    wire.subscribe((f"$share/{client.name}/{topic('a')}", 1))
    wire.quiet()


@statement("MQTT-3.10.4-1", version=5)
def test_a_member_leaves_by_unsubscribe(client: Clients, topic: Topic, version: int) -> None:
    filter = f"$share/{client.name}/{topic('a')}"
    stays, leaves = client("stays", version), client("leaves", version)
    for wire in (stays, leaves):
        wire.send(subscribe(version, 1, (filter, 0)))
        assert wire.expect(SUBACK).reasons == [0]
    leaves.send(unsubscribe(version, 2, filter))
    assert leaves.expect(11).reasons == [0]
    publisher = client("publisher", version)
    for number in range(6):
        publisher.publish(topic("a"), b"%d" % number, qos=1)
    assert len(payloads(stays.pending())) == 6
    leaves.quiet()
