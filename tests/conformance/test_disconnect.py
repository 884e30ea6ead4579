"""DISCONNECT (section 3.14) and errors (section 4.13)."""

from __future__ import annotations

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    DISCONNECT,
    MAXIMUM_PACKET_SIZE,
    PING,
    REASON_STRING,
    SERVER_REFERENCE,
    SESSION_EXPIRY,
    USER_PROPERTY,
    connect,
    disconnect,
    publish,
)


@statement("MQTT-3.14.4-1", "MQTT-3.14.4-2", version=5)
@statement("MQTT-3.14.4-3", version=311)
def test_disconnect_closes_the_connection_without_an_answer(client: Clients, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((client.id("topic"), 0))
    wire = client("c", version)
    wire.send(disconnect(version), publish(version, client.id("topic"), b"behind"), PING)
    wire.refused()
    watcher.quiet()


@statement("MQTT-3.14.2-1", version=5)
@pytest.mark.parametrize(
    "reason", [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99], ids=hex
)
def test_a_clients_disconnect_reasons_are_taken(client: Clients, version: int, reason: int) -> None:
    wire = client("c", version)
    wire.send(disconnect(version, reason, [(REASON_STRING, b"why"), (USER_PROPERTY, (b"a", b"b"))]))
    wire.refused()


@statement("MQTT-3.14.2-1", version=5)
@pytest.mark.parametrize("reason", [0x01, 0x18, 0x7F, 0x8B, 0x8E, 0x9C, 0xFF], ids=hex)
def test_reasons_that_a_client_cannot_have_are_refused(client: Clients, version: int, reason: int) -> None:
    wire = client("c", version)
    wire.send(disconnect(version, reason))
    wire.refused(0x82)


@statement("MQTT-4.13.1-1", version=5)
def test_a_server_reference_from_a_client_is_refused(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(disconnect(version, 0, [(SERVER_REFERENCE, b"elsewhere")]))
    assert wire.expect(DISCONNECT).reason in (0x81, 0x82)
    assert wire.next() is None


@statement("MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2", "MQTT-4.13.2-1", version=5)
@pytest.mark.parametrize(
    "sent", [b"\xff\xff", b"\x00\x00", connect(5, "again"), b"\x30\xff\xff\xff\x7f"], ids=["ff", "00", "again", "large"]
)
def test_the_servers_disconnect_says_why_and_is_its_last_packet(client: Clients, version: int, sent: bytes) -> None:
    wire = client("c", version)
    wire.send(sent, PING, PING)
    last = wire.expect(DISCONNECT)
    assert last.reason >= 0x80
    assert last.value(SESSION_EXPIRY) is None
    assert wire.next() is None


@statement("MQTT-3.14.2-3", "MQTT-3.14.2-4", version=5)
@pytest.mark.parametrize("maximum", [20, 40])
def test_disconnect_keeps_below_the_clients_maximum_packet_size(client: Clients, version: int, maximum: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, client.id("c"), properties=[(MAXIMUM_PACKET_SIZE, maximum)]))
    assert wire.next() is not None
    wire.send(b"\xff\xff")
    assert wire.expect(DISCONNECT).size <= maximum
    assert wire.next() is None


@statement("MQTT-3.14.0-1", version=5)
def test_no_disconnect_comes_before_connack(client: Clients, version: int) -> None:
    for sent in (PING, b"\xff\xff", connect(version, "c", flags=0x01)):
        wire = client.opened(version)
        wire.send(sent)
        while (found := wire.next()) is not None:
            assert found.kind != DISCONNECT


@statement("MQTT-3.14.4-3", version=311)
def test_bytes_behind_disconnect_change_nothing(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(disconnect(version), b"\xff" * 100)
    wire.refused()
