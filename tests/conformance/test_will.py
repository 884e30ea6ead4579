"""Wills (sections 3.1.2.5 to 3.1.2.7, 3.14.4): published when a connection ends without DISCONNECT, as they said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import DISCONNECT, V5, Will, disconnect

Topic = Callable[[str], str]


@statement("MQTT-3.1.2-7", "MQTT-3.1.2-8", "MQTT-3.1.2-14", version=5)
@statement("MQTT-3.1.2-8", "MQTT-3.1.2-16", version=311)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_is_published_when_the_connection_is_lost(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 2))
    client("mortal", version, will=Will(topic("will"), qos=qos)).vanish()
    message = watcher.receive()
    assert (message.payload, message.qos, message.retain) == (b"gone", qos, False)
    late = client("late", version)
    late.subscribe((topic("will"), 0))
    late.quiet()


@statement("MQTT-3.1.2-15", version=5)
@statement("MQTT-3.1.2-17", version=311)
def test_a_retained_will_is_retained(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 1))
    client("mortal", version, will=Will(topic("will"), qos=1, retain=True)).vanish()
    assert watcher.receive().payload == b"gone"
    late = client("late", version)
    late.subscribe((topic("will"), 1))
    message = late.receive()
    assert (message.payload, message.retain) == (b"gone", True)


@statement("MQTT-3.1.2-10", "MQTT-3.14.4-3", version=5)
@statement("MQTT-3.1.2-10", "MQTT-3.14.4-3", version=311)
def test_disconnect_discards_the_will(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    wire = client("polite", version, will=Will(topic("will")))
    wire.send(disconnect(version))
    wire.refused()
    watcher.quiet()


@statement("MQTT-3.1.2-8", version=5)
def test_disconnect_with_will_publishes_it(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    wire = client("dramatic", version, will=Will(topic("will")))
    wire.send(disconnect(version, 0x04))
    wire.refused()
    assert watcher.receive().payload == b"gone"


@statement("MQTT-3.1.2-12", version=311)
def test_without_a_will_nothing_is_published(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("#"), 0))
    wire = client("plain", version)
    wire.send(b"\xff\xff")
    wire.refused()
    watcher.quiet()


@statement("MQTT-3.1.2-10", version=5)
@statement("MQTT-3.1.2-10", version=311)
def test_a_will_is_published_once(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    client("mortal", version, will=Will(topic("will"))).vanish()
    assert watcher.receive().payload == b"gone"
    client("mortal", version).vanish()
    client("mortal", version)
    watcher.quiet()


@statement("MQTT-3.1.2-8", version=5)
@statement("MQTT-3.1.2-8", version=311)
def test_a_connection_that_is_taken_over_publishes_its_will(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    older = client("same", version, will=Will(topic("will")))
    client("same", version)
    if version == V5:
        older.expect(DISCONNECT)
    assert watcher.receive().payload == b"gone"
