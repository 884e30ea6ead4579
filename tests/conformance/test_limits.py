"""What a server may leave out (section 3.2.2.3): a zone with less than everything says so, and refuses the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    CONNACK,
    DISCONNECT,
    MAXIMUM_QOS,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    V5,
    V311,
    Properties,
    Will,
    connect,
    publish,
    subscribe,
)
from integration.dev.commands import Commands

ZONE = {
    "FLOCKMQ_MQTT__MAX_QOS_ALLOWED": "1",
    "FLOCKMQ_MQTT__RETAIN_AVAILABLE": "false",
    "FLOCKMQ_MQTT__WILDCARD_SUBSCRIPTION": "false",
    "FLOCKMQ_MQTT__SHARED_SUBSCRIPTION": "false",
    "FLOCKMQ_MQTT__MAX_CLIENTID_LEN": "100",
    "FLOCKMQ_MQTT__SERVER_KEEPALIVE": "1",
    "FLOCKMQ_MQTT__RESPONSE_INFORMATION": "answers/",
}


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    commands = Commands()
    try:
        _, ports = commands.start_node("--data-dir", str(tmp_path_factory.mktemp("node")), environment=ZONE)
        yield ports["mqtt"]
    finally:
        commands.end_all()


def offered(client: Clients, name: str, properties: Properties | None = None) -> Properties:
    wire = client.opened(V5)
    wire.send(connect(V5, name, properties=properties))
    connack = wire.expect(CONNACK)
    assert connack.reason == 0
    return connack.properties


@statement("MQTT-3.2.2-9", "MQTT-3.2.2-10", version=5)
def test_the_maximum_qos_is_said_and_subscriptions_of_any_qos_are_taken(client: Clients, version: int) -> None:
    assert (MAXIMUM_QOS, 1) in offered(client, "c")
    wire = client("s", version)
    wire.send(subscribe(version, 1, ("a", 0), ("b", 1), ("c", 2)))
    assert wire.expect(9).reasons == [0, 1, 1]


@statement("MQTT-3.2.2-11", version=5)
def test_a_message_above_the_maximum_qos_is_refused(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(publish(version, "a", qos=2, packet_id=1))
    wire.refused(0x9B)


@statement("MQTT-3.2.2-12", version=5)
def test_a_will_above_the_maximum_qos_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", will=Will("t", qos=2)))
    assert wire.expect(CONNACK).reason == 0x9B
    assert wire.next() is None


@statement("MQTT-3.2.2-13", version=5)
def test_a_retained_will_is_refused_where_nothing_is_retained(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", will=Will("t", retain=True)))
    assert wire.expect(CONNACK).reason == 0x9A
    assert wire.next() is None


@statement("MQTT-3.2.2-14", version=5)
def test_a_retained_message_is_refused_where_nothing_is_retained(client: Clients, version: int) -> None:
    assert (RETAIN_AVAILABLE, 0) in offered(client, "c")
    wire = client("r", version)
    wire.send(publish(version, "a", retain=True))
    wire.refused(0x9A)


@statement("MQTT-3.8.3-2", version=311)
def test_wildcards_are_refused_where_there_are_none(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(subscribe(version, 1, ("a/+", 0), ("a", 0), ("#", 1)))
    assert wire.expect(9).reasons == [0x80, 0, 0x80]


@statement("MQTT-3.9.3-2", version=5)
def test_a_subscription_that_is_not_offered_gets_its_reason(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(subscribe(version, 1, ("a/+", 0), ("$share/g/a", 0), ("a", 0)))
    assert wire.expect(9).reasons == [0xA2, 0x9E, 0]


@statement("MQTT-3.1.3-8", version=5)
@statement("MQTT-3.1.3-9", version=311)
def test_a_client_identifier_that_is_too_long_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "x" * 101))
    assert wire.expect(CONNACK).reason == (0x85 if version == V5 else 0x02)
    assert wire.next() is None


@statement("MQTT-3.1.2-28", version=5)
@pytest.mark.parametrize("asked", [None, 0, 1])
def test_response_information_comes_to_those_who_ask(client: Clients, asked: int | None) -> None:
    found = offered(client, client.id("c"), None if asked is None else [(0x19, asked)])
    assert ((0x1A, b"answers/") in found) is (asked == 1)


@statement("MQTT-3.2.2-22", version=5)
def test_a_server_keep_alive_is_said_and_kept(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", keep_alive_s=1000))
    assert wire.expect(CONNACK).value(SERVER_KEEP_ALIVE) == 1
    assert wire.expect(DISCONNECT).reason == 0x8D
    assert wire.next() is None
    assert version != V311
