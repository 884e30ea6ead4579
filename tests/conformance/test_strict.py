"""What a server may refuse, and this one does where `mqtt.strict_mode` asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    CONNACK,
    CONTENT_TYPE,
    PUBACK,
    PUBREC,
    USER_PROPERTY,
    V5,
    V31,
    Properties,
    Will,
    connect,
    publish,
    subscribe,
    unsubscribe,
)
from integration.dev.commands import Commands

Topic = Callable[[str], str]
PAYLOAD_FORMAT = 0x01
DOUBTFUL = ["\x01", "\x9f", "\ufdd0", "\uffff", "\U0010fffe"]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    commands = Commands()
    try:
        folder = str(tmp_path_factory.mktemp("node"))
        _, ports = commands.start_node("--data-dir", folder, environment={"FLOCKMQ_MQTT__STRICT_MODE": "true"})
        yield ports["mqtt"]
    finally:
        commands.end_all()


@statement("MQTT-1.5.4-1", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", version=5)
@statement("MQTT-1.5.3-1", "MQTT-3.3.2-1", "MQTT-3.8.3-1", "MQTT-3.10.3-1", version=311)
@pytest.mark.parametrize("character", DOUBTFUL, ids=ascii)
@pytest.mark.parametrize("kind", ["publish", "subscribe", "unsubscribe"])
def test_doubtful_characters_in_topics_are_refused(
    client: Clients, topic: Topic, version: int, kind: str, character: str
) -> None:
    bad = f"a/{character}"
    wire = client("c", version)
    wire.send(
        {
            "publish": publish(version, bad, qos=1, packet_id=1),
            "subscribe": subscribe(version, 1, (bad, 0)),
            "unsubscribe": unsubscribe(version, 1, bad),
        }[kind]
    )
    wire.refused(0x81)


@statement("MQTT-1.5.4-1", "MQTT-1.5.7-1", version=5)
@pytest.mark.parametrize("entry", [(CONTENT_TYPE, b"\x02"), (USER_PROPERTY, (b"\x02", b""))], ids=["text", "pair"])
def test_doubtful_characters_in_properties_are_refused(
    client: Clients, topic: Topic, version: int, entry: tuple[int, bytes | tuple[bytes, bytes]]
) -> None:
    wire = client("c", version)
    wire.send(publish(version, topic("a"), properties=[entry]))
    wire.refused(0x81)


@statement("MQTT-1.5.4-1", version=5)
@statement("MQTT-1.5.3-1", version=311)
@pytest.mark.parametrize("field", ["client id", "user name", "will topic"])
def test_doubtful_characters_in_connect_are_refused(client: Clients, version: int, field: str) -> None:
    wire = client.opened(version)
    bad = b"\x7f"
    wire.send(
        connect(
            version,
            bad if field == "client id" else "c",
            user_name=bad if field == "user name" else None,
            will=Will("\x7f") if field == "will topic" else None,
        )
    )
    if version == V5:
        assert wire.expect(CONNACK).reason == 0x81
    assert wire.next() is None


@statement("MQTT-3.3.1-1", version=5)
@statement("MQTT-3.3.1-1", version=311)
def test_a_qos_2_message_that_comes_again_without_dup_is_refused(client: Clients, topic: Topic, version: int) -> None:
    wire = client("c", version)
    for dup in (False, True):
        wire.send(publish(version, topic("a"), qos=2, packet_id=5, dup=dup))
        assert wire.expect(PUBREC).packet_id == 5
    wire.send(publish(version, topic("a"), qos=2, packet_id=5))
    wire.refused(0x82)


@statement("MQTT-3.4.2-1", "MQTT-3.5.2-1", version=5)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_that_is_not_the_text_it_says_is_refused(
    client: Clients, topic: Topic, version: int, qos: int
) -> None:
    wire, said = client("c", version), [(PAYLOAD_FORMAT, 1)]
    packet_id = 1 if qos else None
    wire.send(publish(version, topic("a"), b"\xff", qos=qos, packet_id=packet_id, properties=said))
    if qos:
        assert wire.expect(PUBACK if qos == 1 else PUBREC).reason == 0x99
        wire.send(publish(version, topic("a"), "é".encode(), qos=qos, packet_id=1, properties=said))
        assert wire.expect(PUBACK if qos == 1 else PUBREC).reason < 0x80
    else:
        wire.refused(0x99)


@statement("MQTT-3.1.4-1", version=5)
def test_a_will_that_is_not_the_text_it_says_is_refused(client: Clients, topic: Topic, version: int) -> None:
    said: Properties = [(PAYLOAD_FORMAT, 1)]
    wire = client.opened(version)
    wire.send(connect(version, "c", will=Will(topic("a"), payload=b"\xff", properties=said)))
    assert wire.expect(CONNACK).reason == 0x99
    assert wire.next() is None


def test_a_client_identifier_above_23_characters_is_refused_before_311(client: Clients) -> None:
    for length, code in ((23, 0), (24, 2)):
        wire = client.opened(V31)
        wire.send(connect(V31, "x" * length))
        assert wire.expect(CONNACK).reason == code
