"""SUBSCRIBE and UNSUBSCRIBE (sections 3.8 to 3.11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SESSION_EXPIRY,
    SUBACK,
    SUBSCRIPTION_ID,
    UNSUBACK,
    V5,
    V311,
    acknowledgement,
    payloads,
    publish,
    subscribe,
    unsubscribe,
)

Topic = Callable[[str], str]
SUBSCRIBE_REASONS = {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}
UNSUBSCRIBE_REASONS = {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}


@statement("MQTT-3.8.3-2", version=5)
@statement("MQTT-3.8.3-3", version=311)
def test_a_subscribe_without_a_filter_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1))
    wire.refused(0x82)


@statement("MQTT-3.10.3-2", version=5)
@statement("MQTT-3.10.3-2", version=311)
def test_an_unsubscribe_without_a_filter_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(unsubscribe(version, 1))
    wire.refused(0x82)


@statement("MQTT-3.8.3-5", version=5)
@pytest.mark.parametrize("options", [0x40, 0x80, 0xC0], ids=hex)
def test_reserved_option_bits_are_refused(client: Clients, version: int, options: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, ("a", options)))
    wire.refused(0x81)


@statement("MQTT-4.13.1-1", version=5)
@pytest.mark.parametrize("options", [0x03, 0x30], ids=["qos-3", "retain-handling-3"])
def test_option_values_that_do_not_exist_are_refused(client: Clients, version: int, options: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, ("a", options)))
    wire.refused(0x82)


@statement("MQTT-4.13.1-1", version=5)
def test_subscription_identifier_0_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, ("a", 0), properties=[(SUBSCRIPTION_ID, 0)]))
    wire.refused(0x82)


@statement("MQTT-3-8.3-4", version=311)
@pytest.mark.parametrize("options", [0x03, 0x04, 0x08, 0x10, 0x80, 0xFF], ids=hex)
def test_reserved_bits_and_qos_3_end_the_connection(client: Clients, version: int, options: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, ("a", options)))
    wire.refused()


@statement("MQTT-3.8.3-3", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_no_local_keeps_a_clients_own_messages_from_it(client: Clients, topic: Topic, version: int, qos: int) -> None:
    wire = client("own", version)
    wire.subscribe((topic("a"), 0x04 | 2), (topic("b"), 2))
    wire.publish(topic("a"), b"own", qos=qos)
    client("other", version).publish(topic("a"), b"another's", qos=qos)
    assert wire.receive().payload == b"another's"
    wire.quiet()


@statement("MQTT-3.8.3-3", version=5)
@pytest.mark.parametrize("session_expiry_s", [0, 60])
@pytest.mark.parametrize("qos", [0, 1])
def test_no_local_keeps_a_clients_own_delayed_messages_from_it(
    client: Clients, topic: Topic, version: int, qos: int, session_expiry_s: int
) -> None:
    wire = client("own", version, properties=[(SESSION_EXPIRY, session_expiry_s)])
    wire.subscribe((topic("a"), 0x04 | 1))
    wire.publish(f"$delayed/1/{topic('a')}", b"own", qos=qos)
    client("other", version).publish(f"$delayed/1/{topic('a')}", b"another's", qos=qos)
    assert wire.receive().payload == b"another's"
    wire.quiet()


@statement("MQTT-3.8.3-4", version=5)
def test_no_local_on_a_shared_subscription_is_refused(client: Clients, version: int) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, ("$share/group/a", 0x04)))
    wire.refused(0x82)


@statement("MQTT-4.8.2-1", "MQTT-4.8.2-2", version=5)
@pytest.mark.parametrize(
    "bad",
    ["$share//a", "$share/", "$share/g", "$share/g/", "$share/g+/a", "$share/#/a", "$share/+/a"],
    ids=["no-name", "nothing", "no-slash", "no-filter", "plus-in-name", "hash", "plus"],
)
def test_a_misshapen_shared_subscription_is_refused(client: Clients, version: int, bad: str) -> None:
    wire = client("refused", version)
    wire.send(subscribe(version, 1, (bad, 0)))
    assert wire.expect(DISCONNECT).reason in (0x81, 0x82, 0x8F)
    assert wire.next() is None


@statement("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5", "MQTT-3.8.4-6", "MQTT-3.8.4-7", version=5)
@statement("MQTT-3.9.3-1", "MQTT-3.9.3-2", version=5)
@statement("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-4", "MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2", version=311)
def test_suback_answers_each_filter_in_order(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wanted = [2, 0, 1, 1, 2, 0, 0]
    filters = [(topic(f"{number}/+"), qos) for number, qos in enumerate(wanted)]
    wire.send(subscribe(version, 4711, *filters))
    suback = wire.expect(SUBACK)
    assert (suback.packet_id, suback.reasons) == (4711, wanted)
    assert set(suback.reasons) <= SUBSCRIBE_REASONS


@statement("MQTT-3.8.4-5", version=5)
@statement("MQTT-3.8.4-4", version=311)
def test_many_filters_in_one_subscribe_work_like_many_subscribes(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wire.subscribe((topic("a"), 0), (topic("a"), 2), (topic("b"), 1))
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"a", qos=2)
    publisher.publish(topic("b"), b"b", qos=2)
    assert [(m.payload, m.qos) for m in (wire.receive(), wire.receive())] == [(b"a", 2), (b"b", 1)]


@statement("MQTT-3.8.4-3", "MQTT-3.8.4-4", version=5)
@statement("MQTT-3.8.4-3", version=311)
def test_an_identical_filter_replaces_the_subscription(client: Clients, topic: Topic, version: int) -> None:
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"kept", retain=True)
    wire = client("c", version)
    wire.subscribe((topic("a"), 2))
    assert wire.receive().payload == b"kept"
    wire.subscribe((topic("a"), 0))
    assert wire.receive().payload == b"kept"
    publisher.publish(topic("a"), b"live", qos=2)
    message = wire.receive()
    assert (message.payload, message.qos) == (b"live", 0)
    wire.quiet()


@statement("MQTT-3.8.4-4", version=5)
@statement("MQTT-3.8.4-3", version=311)
def test_replacing_a_subscription_loses_no_message(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wire.subscribe((topic("a"), 0))
    publisher = client("publisher", version)
    for number in range(20):
        wire.send(subscribe(version, number + 1, (topic("a"), 0)))
        publisher.publish(topic("a"), b"%d" % number)
    assert payloads(wire.pending()) == [b"%d" % number for number in range(20)]


@statement("MQTT-3.8.4-8", version=5)
@statement("MQTT-3.8.4-6", version=311)
@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("publishers_version", [V311, V5])
def test_the_lower_qos_counts(
    client: Clients, topic: Topic, version: int, granted: int, published: int, publishers_version: int
) -> None:
    wire = client("c", version)
    wire.subscribe((topic("a"), granted))
    client("publisher", publishers_version).publish(topic("a"), b"x", qos=published)
    assert wire.receive().qos == min(granted, published)


@statement("MQTT-3.10.4-1", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", version=5)
@statement("MQTT-3.11.3-1", "MQTT-3.11.3-2", version=5)
@statement("MQTT-3.10.4-1", "MQTT-3.10.4-4", "MQTT-3.10.4-5", "MQTT-3.10.4-6", version=311)
def test_unsuback_answers_each_filter_in_order(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wire.subscribe((topic("a/+"), 1), (topic("b/#"), 1), (topic("c"), 1))
    asked = [topic(rest) for rest in ("a/x", "a/+", "A/+", "b/#", "b", "a/+")]
    wire.send(unsubscribe(version, 513, *asked))
    unsuback = wire.expect(UNSUBACK)
    assert unsuback.packet_id == 513
    assert unsuback.reasons == ([0x11, 0, 0x11, 0, 0x11, 0x11] if version == V5 else [])
    assert set(unsuback.reasons) <= UNSUBSCRIBE_REASONS
    publisher = client("publisher", version)
    for rest in ("a/x", "b", "c"):
        publisher.publish(topic(rest), rest.encode())
    assert wire.receive().payload == b"c"
    wire.quiet()


@statement("MQTT-3.10.4-5", version=5)
@statement("MQTT-3.10.4-5", version=311)
def test_unsuback_comes_also_when_nothing_was_subscribed(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    wire.send(unsubscribe(version, 2, topic("never")))
    assert wire.expect(UNSUBACK).packet_id == 2


@statement("MQTT-3.10.4-2", "MQTT-3.10.4-3", version=5)
@statement("MQTT-3.10.4-2", "MQTT-3.10.4-3", version=311)
@pytest.mark.parametrize("qos", [1, 2])
def test_unsubscribe_stops_new_messages_and_completes_those_under_way(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire = client("c", version)
    wire.subscribe((topic("a"), 2))
    publisher = client("publisher", version)
    publisher.publish(topic("a"), b"before", qos=qos)
    message = wire.expect(PUBLISH)
    wire.send(unsubscribe(version, 2, topic("a")))
    assert wire.expect(UNSUBACK).packet_id == 2
    publisher.publish(topic("a"), b"after", qos=qos)
    if qos == 1:
        wire.send(acknowledgement(PUBACK, message.packet_id))
    else:
        wire.send(acknowledgement(PUBREC, message.packet_id))
        assert wire.expect(PUBREL).packet_id == message.packet_id
        wire.send(acknowledgement(PUBCOMP, message.packet_id))
    wire.quiet()


@statement("MQTT-3.8.4-8", version=5)
def test_a_message_behind_suback_reaches_the_subscriber_at_once(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    for number in range(10):
        wire.subscribe((topic(f"{number}"), 0))
        wire.send(publish(version, topic(f"{number}"), b"%d" % number))
        assert wire.receive().payload == b"%d" % number
