"""Topic aliases (section 3.3.2.3.4), both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBREC,
    TOPIC_ALIAS,
    TOPIC_ALIAS_MAXIMUM,
    Wire,
    connect,
    publish,
)

Topic = Callable[[str], str]


def publisher(client: Clients, version: int) -> tuple[Wire, int]:
    """A connection, and how many aliases the server takes on it."""
    wire = client.opened(version)
    wire.send(connect(version, client.id("publisher")))
    maximum = wire.expect(CONNACK).value(TOPIC_ALIAS_MAXIMUM)
    assert isinstance(maximum, int)
    assert maximum > 0
    return wire, maximum


@statement("MQTT-3.3.2-12", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_aliases_up_to_the_maximum_stand_for_their_topics(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire = client("subscriber", version)
    wire.subscribe((topic("+"), 0))
    sender, maximum = publisher(client, version)
    aliases = sorted({1, 2, maximum})
    for alias in aliases:
        for name in (topic(str(alias)), "", topic(f"new-{alias}"), ""):
            packet_id = 1 if qos else None
            payload = b"%d" % alias
            entries = [(TOPIC_ALIAS, alias)]
            sender.send(publish(version, name, payload, qos=qos, packet_id=packet_id, properties=entries))
            if qos:
                sender.expect(PUBACK if qos == 1 else PUBREC)
            if qos == 2:
                sender.send(b"\x62\x02\x00\x01")
                sender.expect(7)
    if qos == 0:
        sender.quiet()
    expected = [topic(name) for alias in aliases for name in (str(alias), str(alias), f"new-{alias}", f"new-{alias}")]
    found = wire.pending()
    assert [message.topic.decode() for message in found] == expected
    assert all(message.value(TOPIC_ALIAS) is None for message in found)


@statement("MQTT-3.3.2-7", version=5)
def test_aliases_end_with_their_connection(client: Clients, topic: Topic, version: int) -> None:
    sender, _ = publisher(client, version)
    sender.send(publish(version, topic("a"), properties=[(TOPIC_ALIAS, 1)]))
    sender.quiet()
    again, _ = publisher(client, version)
    again.send(publish(version, "", properties=[(TOPIC_ALIAS, 1)]))
    assert again.expect(DISCONNECT).reason == 0x82
    assert again.next() is None


@statement("MQTT-3.3.2-9", "MQTT-3.2.2-17", version=5)
def test_an_alias_just_above_the_maximum_is_refused(client: Clients, topic: Topic, version: int) -> None:
    sender, maximum = publisher(client, version)
    sender.send(publish(version, topic("a"), properties=[(TOPIC_ALIAS, maximum + 1)]))
    sender.refused(0x94)


@statement("MQTT-3.1.2-26", "MQTT-3.1.2-27", "MQTT-3.3.2-11", version=5)
@pytest.mark.parametrize("maximum", [None, 0, 1, 3])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_client_gets_no_alias_above_its_own_maximum(
    client: Clients, topic: Topic, version: int, maximum: int | None, qos: int
) -> None:
    entries = None if maximum is None else [(TOPIC_ALIAS_MAXIMUM, maximum)]
    wire = client("subscriber", version, properties=entries)
    wire.subscribe((topic("+"), qos))
    sender = client("publisher", version)
    names = [topic(str(number)) for number in (1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 1, 1)]
    for name in names:
        sender.publish(name, b"x", qos=qos)
    known: dict[int, bytes] = {}
    heard = []
    for _ in names:
        message = wire.receive()
        alias = message.value(TOPIC_ALIAS)
        if isinstance(alias, int):
            assert 0 < alias <= (maximum or 0)
            if message.topic:
                known[alias] = message.topic
        heard.append((message.topic or known[alias if isinstance(alias, int) else 0]).decode())
    assert heard == names
