"""Sessions that outlive their connection (sections 3.1.2.4, 3.1.2.11.2, 4.1, 4.4), and wills that wait for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    ASSIGNED_CLIENT_ID,
    CONNACK,
    MESSAGE_EXPIRY,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    USER_PROPERTY,
    V5,
    WILL_DELAY,
    Properties,
    Will,
    Wire,
    acknowledgement,
    connect,
    disconnect,
    payloads,
    publish,
)

Topic = Callable[[str], str]
LONG: Properties = [(SESSION_EXPIRY, 3600)]


def durable(
    client: Clients, name: str, version: int, present: int, *more: tuple[int, int], will: Will | None = None
) -> Wire:
    """A connection of a session that outlives it."""
    entries: Properties | None = [*LONG, *more] if version == V5 else None
    return client(name, version, clean=False, properties=entries, session_present=present, will=will)


@statement("MQTT-3.1.2-5", "MQTT-3.1.2-6", "MQTT-3.1.2-23", "MQTT-3.2.2-3", "MQTT-4.5.0-1", version=5)
@statement("MQTT-3.1.2-4", "MQTT-3.1.2-5", "MQTT-3.2.2-2", "MQTT-3.2.2-3", "MQTT-4.1.0-1", version=311)
@pytest.mark.parametrize("leaves", [False, True], ids=["lost", "disconnected"])
def test_a_session_and_its_messages_wait_for_its_client(
    client: Clients, topic: Topic, version: int, leaves: bool
) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    if leaves:
        wire.send(disconnect(version))
        wire.refused()
    else:
        wire.vanish()
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"1", qos=1)
    publisher.publish(topic("a"), b"2", qos=2)
    again = durable(client, "device", version, 1)
    assert [(m.payload, m.qos, m.dup) for m in (again.receive(), again.receive())] == [
        (b"1", 1, False),
        (b"2", 2, False),
    ]
    publisher.publish(topic("a"), b"3", qos=0)
    assert again.receive().payload == b"3"


@statement("MQTT-3.1.2-4", "MQTT-3.1.4-4", "MQTT-3.2.2-2", version=5)
@statement("MQTT-3.1.2-6", "MQTT-3.1.4-3", "MQTT-3.2.2-1", version=311)
def test_a_clean_start_discards_the_session(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 1))
    wire.vanish()
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"lost with the session")
    fresh = client("device", version)
    publisher.publish(topic("a"), b"not subscribed any more")
    fresh.quiet()
    fresh.vanish()
    durable(client, "device", version, 0).quiet()


@statement("MQTT-4.1.0-2", version=5)
def test_a_session_without_expiry_ends_with_its_connection(client: Clients, topic: Topic, version: int) -> None:
    wire = client("device", version, clean=False)
    wire.subscribe((topic("a"), 1))
    wire.send(disconnect(version))
    wire.refused()
    client("device", version, clean=False, session_present=0).quiet()


@statement("MQTT-4.1.0-2", version=5)
def test_disconnect_can_end_the_session_at_once(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 1))
    wire.send(disconnect(version, 0, [(SESSION_EXPIRY, 0)]))
    wire.refused()
    durable(client, "device", version, 0)


@statement("MQTT-4.13.1-1", version=5)
def test_a_session_without_expiry_cannot_be_given_one_by_disconnect(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(disconnect(version, 0, [(SESSION_EXPIRY, 10)]))
    wire.refused(0x82)


@statement("MQTT-4.1.0-2", "MQTT-3.1.2-8", version=5)
def test_a_session_expires_and_its_will_with_it(client: Clients, topic: Topic, version: int) -> None:
    """The will's delay is longer than the session: its end publishes it."""
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    will = Will(topic("will"), properties=[(WILL_DELAY, 3600)])
    wire = client("device", version, properties=[(SESSION_EXPIRY, 1)], will=will)
    wire.subscribe((topic("a"), 1))
    wire.vanish()
    assert watcher.receive().payload == b"gone"
    client("device", version, clean=False, session_present=0)


@statement("MQTT-3.1.2-8", "MQTT-3.1.3-10", version=5)
def test_a_will_is_published_after_its_delay(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    pairs: Properties = [(USER_PROPERTY, (b"b", b"1")), (USER_PROPERTY, (b"a", b"2")), (USER_PROPERTY, (b"b", b"3"))]
    will = Will(topic("will"), properties=[(WILL_DELAY, 1), *pairs])
    client("device", version, properties=LONG, will=will).vanish()
    watcher.quiet()
    message = watcher.receive()
    assert (message.payload, message.properties) == (b"gone", pairs)


@statement("MQTT-3.1.3-9", "MQTT-3.1.2-8", version=5)
def test_a_client_that_comes_back_in_time_keeps_its_will_unsaid(client: Clients, topic: Topic, version: int) -> None:
    """A second session's will, of the same delay and lost later, tells when the first would have been published."""
    watcher = client("watcher", version)
    watcher.subscribe((topic("#"), 0))
    for name in ("device", "other"):
        will = Will(topic(name), properties=[(WILL_DELAY, 1)])
        client(name, version, properties=LONG, will=will).vanish()
        if name == "device":
            client("device", version, clean=False, properties=LONG, session_present=1)
    assert watcher.receive().topic.decode() == topic("other")
    watcher.quiet()


@statement("MQTT-3.1.2-8", version=5)
def test_a_clean_start_ends_the_session_and_publishes_its_waiting_will(
    client: Clients, topic: Topic, version: int
) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    will = Will(topic("will"), properties=[(WILL_DELAY, 3600)])
    client("device", version, properties=LONG, will=will).vanish()
    client("device", version)
    assert watcher.receive().payload == b"gone"


@statement("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.3.2-3", "MQTT-4.3.3-3", version=5)
@statement("MQTT-4.4.0-1", "MQTT-3.3.1-1", "MQTT-4.6.0-1", "MQTT-2.3.1-4", "MQTT-4.3.2-1", "MQTT-4.3.3-1", version=311)
def test_what_was_not_acknowledged_is_sent_again(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("#"), 2))
    publisher = client("publisher", version)
    for number in range(6):
        publisher.publish(topic("a"), b"%d" % number, qos=1 + number % 2)
    first = wire.pending()
    wire.vanish()
    again = durable(client, "device", version, 1)
    second = again.pending()
    assert [(m.packet_id, m.qos, m.payload) for m in second] == [(m.packet_id, m.qos, m.payload) for m in first]
    assert all(message.dup for message in second)
    assert not any(message.dup for message in first)


@statement("MQTT-4.4.0-1", "MQTT-4.3.3-5", "MQTT-4.3.3-6", version=5)
@statement("MQTT-4.4.0-1", "MQTT-4.3.3-1", version=311)
def test_after_pubrec_only_pubrel_is_sent_again(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    client("publisher", version).publish(topic("a"), b"x", qos=2)
    message = wire.expect(PUBLISH)
    wire.send(acknowledgement(PUBREC, message.packet_id))
    assert wire.expect(PUBREL).packet_id == message.packet_id
    wire.vanish()
    again = durable(client, "device", version, 1)
    found = again.pending()
    assert [(packet.kind, packet.packet_id) for packet in found] == [(PUBREL, message.packet_id)]
    again.send(acknowledgement(PUBCOMP, message.packet_id))
    again.vanish()
    durable(client, "device", version, 1).quiet()


@statement("MQTT-4.4.0-1", "MQTT-4.3.3-4", "MQTT-4.3.3-5", version=5)
@statement("MQTT-4.4.0-1", "MQTT-4.3.3-1", version=311)
def test_acknowledgements_of_the_former_connection_are_taken(client: Clients, topic: Topic, version: int) -> None:
    """Said at once, before anything is sent again, and said again then: nobody is cut off for them."""
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("#"), 2))
    publisher = client("publisher", version)
    for qos in (1, 2, 2):
        publisher.publish(topic("a"), b"x", qos=qos)
    once, received, released = (message.packet_id for message in wire.pending())
    wire.send(acknowledgement(PUBREC, released))
    assert wire.expect(PUBREL).packet_id == released
    wire.vanish()
    again = durable(client, "device", version, 1)
    answers = [(PUBACK, once), (PUBREC, received), (PUBCOMP, released)]
    again.send(*(acknowledgement(kind, packet_id) for kind, packet_id in answers))
    packet = None
    while packet is None or (packet.kind, packet.packet_id) != (PUBREL, received):
        packet = again.next()
        assert packet is not None, "the connection ended"
        kind = PUBCOMP if packet.kind == PUBREL else PUBACK if packet.qos == 1 else PUBREC
        again.send(acknowledgement(kind, packet.packet_id), acknowledgement(kind, packet.packet_id))
    publisher.publish(topic("a"), b"y")
    assert again.receive().payload == b"y"


@statement("MQTT-4.3.3-4", "MQTT-3.6.2-1", version=5)
@statement("MQTT-4.3.3-1", version=311)
def test_a_pubrec_of_nothing_is_answered_on_a_resumed_session(client: Clients, version: int) -> None:
    durable(client, "device", version, 0).vanish()
    wire = durable(client, "device", version, 1)
    for _ in range(2):
        wire.send(acknowledgement(PUBREC, 99))
        released = wire.expect(PUBREL)
        assert (released.packet_id, released.reason) == (99, 0x92 if version == V5 else 0)
        wire.send(acknowledgement(PUBCOMP, 99))


@statement("MQTT-4.4.0-2", version=5)
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_what_was_refused_is_not_sent_again(client: Clients, topic: Topic, version: int, qos: int, kind: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    client("publisher", version).publish(topic("a"), b"x", qos=qos)
    wire.send(acknowledgement(kind, wire.expect(PUBLISH).packet_id, 0x80))
    wire.quiet()
    wire.vanish()
    durable(client, "device", version, 1).quiet()


@statement("MQTT-4.3.3-10", "MQTT-4.3.3-11", version=5)
@statement("MQTT-4.3.3-2", version=311)
def test_a_qos_2_identifier_is_remembered_across_connections(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("a"), 0))
    wire = durable(client, "device", version, 0)
    wire.send(publish(version, topic("a"), b"once", qos=2, packet_id=5))
    assert wire.expect(PUBREC).packet_id == 5
    wire.vanish()
    again = durable(client, "device", version, 1)
    again.send(publish(version, topic("a"), b"once", qos=2, packet_id=5, dup=True))
    assert again.expect(PUBREC).packet_id == 5
    again.send(acknowledgement(PUBREL, 5))
    completed = again.expect(PUBCOMP)
    assert (completed.packet_id, completed.reason) == (5, 0)
    assert payloads(watcher.pending()) == [b"once"]


@statement("MQTT-4.6.0-6", version=5)
@statement("MQTT-4.6.0-1", "MQTT-4.6.0-6", version=311)
def test_messages_that_waited_keep_their_order(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"0")
    assert wire.expect(PUBLISH).payload == b"0"
    wire.vanish()
    for number in range(1, 60):
        publisher.publish(topic("a"), b"%d" % number, qos=1)
    again = durable(client, "device", version, 1)
    publisher.publish(topic("a"), b"60", qos=1)
    assert [again.receive_in_order() for _ in range(61)] == [b"%d" % number for number in range(61)]


@statement("MQTT-4.9.0-1", version=5)
def test_the_receive_maximum_is_the_connections_own(client: Clients, topic: Topic, version: int) -> None:
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 1))
    publisher = client("publisher", version)
    for number in range(4):
        publisher.publish(topic("a"), b"%d" % number)
    assert len(wire.pending()) == 4
    wire.vanish()
    again = durable(client, "device", version, 1, (RECEIVE_MAXIMUM, 1))
    seen = []
    for _ in range(4):
        message = again.expect(PUBLISH)
        again.quiet()
        seen.append(message.payload)
        again.send(acknowledgement(PUBACK, message.packet_id))
    assert seen == [b"0", b"1", b"2", b"3"]


@statement("MQTT-3.1.4-3", "MQTT-3.1.3-2", version=5)
@statement("MQTT-3.1.4-2", "MQTT-3.1.3-2", version=311)
def test_a_takeover_hands_the_session_over(client: Clients, topic: Topic, version: int) -> None:
    older = durable(client, "device", version, 0)
    older.subscribe((topic("a"), 1))
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"1")
    message = older.expect(PUBLISH)
    newer = durable(client, "device", version, 1)
    older.refused(0x8E)
    again = newer.receive()
    assert (again.packet_id, again.payload, again.dup) == (message.packet_id, b"1", True)
    publisher.publish(topic("a"), b"2")
    assert newer.receive().payload == b"2"


@statement("MQTT-3.1.3-7", "MQTT-3.2.2-16", version=5)
def test_an_assigned_identifier_can_be_come_back_with(client: Clients, topic: Topic, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "", properties=LONG))
    assigned = wire.expect(CONNACK).value(ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, bytes)
    wire.subscribe((topic("a"), 1))
    wire.vanish()
    client("publisher", version).publish(topic("a"), b"waits")
    again = client.opened(version)
    again.send(connect(version, assigned, clean=False, properties=LONG))
    assert again.expect(CONNACK).session_present == 1
    assert again.receive().payload == b"waits"


# Message expiry (section 3.3.2.3.3).


@statement("MQTT-3.3.2-5", version=5)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_expired_is_not_delivered(client: Clients, topic: Topic, version: int, qos: int) -> None:
    """A will with a delay of two seconds tells when the message's one second has passed."""
    watcher = client("watcher", version)
    watcher.subscribe((topic("clock"), 0))
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    wire.vanish()
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"short", qos=qos, properties=[(MESSAGE_EXPIRY, 1)])
    publisher.publish(topic("a"), b"long", qos=qos, properties=[(MESSAGE_EXPIRY, 1000)])
    publisher.publish(topic("a"), b"for ever", qos=qos)
    client("clock", version, properties=LONG, will=Will(topic("clock"), properties=[(WILL_DELAY, 2)])).vanish()
    watcher.receive()
    again = durable(client, "device", version, 1)
    assert [again.receive().payload for _ in range(2)] == [b"long", b"for ever"]
    again.quiet()


@statement("MQTT-3.3.2-6", version=5)
@pytest.mark.parametrize("retained", [False, True])
def test_the_expiry_that_is_sent_is_what_is_left(client: Clients, topic: Topic, version: int, retained: bool) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("clock"), 0))
    publisher = client("publisher", version)
    if not retained:
        wire = durable(client, "device", version, 0)
        wire.subscribe((topic("a"), 1))
        wire.vanish()
    publisher.publish(topic("a"), b"x", retain=retained, properties=[(MESSAGE_EXPIRY, 1000)])
    client("clock", version, properties=LONG, will=Will(topic("clock"), properties=[(WILL_DELAY, 2)])).vanish()
    watcher.receive()
    if retained:
        again = client("late", version)
        again.subscribe((topic("a"), 1))
    else:
        again = durable(client, "device", version, 1)
    left = again.receive().value(MESSAGE_EXPIRY)
    assert isinstance(left, int)
    assert 900 < left < 1000


@statement("MQTT-3.3.2-6", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_that_does_not_wait_keeps_its_expiry(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wire = client("device", version)
    wire.subscribe((topic("a"), 2))
    client("publisher", version).publish(topic("a"), b"x", qos=qos, properties=[(MESSAGE_EXPIRY, 1000)])
    left = wire.receive().value(MESSAGE_EXPIRY)
    assert left in range(900, 1001)


@statement("MQTT-4.3.3-7", "MQTT-4.3.3-13", version=5)
def test_a_message_that_was_sent_does_not_expire(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("clock"), 0))
    wire = durable(client, "device", version, 0)
    wire.subscribe((topic("a"), 2))
    publisher = client("publisher", version)
    publisher.send(publish(version, topic("a"), b"x", qos=2, packet_id=8, properties=[(MESSAGE_EXPIRY, 1)]))
    assert publisher.expect(PUBREC).packet_id == 8
    message = wire.expect(PUBLISH)
    wire.vanish()
    client("clock", version, properties=LONG, will=Will(topic("clock"), properties=[(WILL_DELAY, 2)])).vanish()
    watcher.receive()
    again = durable(client, "device", version, 1)
    resent = again.receive()
    assert (resent.packet_id, resent.payload, resent.dup) == (message.packet_id, b"x", True)
    publisher.send(acknowledgement(PUBREL, 8))
    assert publisher.expect(PUBCOMP).reason == 0
