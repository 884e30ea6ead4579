"""CONNECT and CONNACK (sections 3.1 and 3.2): what is accepted, what is refused, and how."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    ASSIGNED_CLIENT_ID,
    AUTHENTICATION_METHOD,
    CONNACK,
    MAXIMUM_PACKET_SIZE,
    MAXIMUM_QOS,
    PING,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREL,
    REASON_STRING,
    REQUEST_PROBLEM,
    REQUEST_RESPONSE,
    RESPONSE_INFORMATION,
    SERVER_KEEP_ALIVE,
    SUBACK,
    UNSUBACK,
    USER_PROPERTY,
    V5,
    V311,
    Will,
    Wire,
    acknowledgement,
    connect,
    packet,
    publish,
    subscribe,
    text,
    unsubscribe,
)

Topic = Callable[[str], str]

ILL_FORMED = b"\xed\xa0\x80"  # a surrogate
CONNECT_REASONS = {
    *(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
}  # section 3.2.2.2


def is_refused(wire: Wire, reason: int | None, return_code: int | None = None) -> None:
    """CONNACK with `reason` (5.0) or `return_code` (3.1.1; None: no CONNACK), Session Present 0, and the end."""
    expected = reason if wire.version == V5 else return_code
    if expected is not None:
        connack = wire.expect(CONNACK)
        assert connack.reason == expected
        assert connack.session_present == 0
        assert wire.version != V5 or connack.reason in CONNECT_REASONS
    assert wire.next() is None


@statement("MQTT-3.1.0-1", version=5)
@statement("MQTT-3.1.0-1", version=311)
@pytest.mark.parametrize("first", [PING, publish(V311, "a"), b"\xe0\x00"], ids=["ping", "publish", "disconnect"])
def test_anything_before_connect_ends_the_connection(client: Clients, version: int, first: bytes) -> None:
    wire = client.opened(version)
    wire.send(first)
    wire.refused()


@statement("MQTT-3.1.0-2", "MQTT-3.2.0-2", version=5)
@statement("MQTT-3.1.0-2", version=311)
def test_a_second_connect_ends_the_connection(client: Clients, version: int) -> None:
    wire = client("twice", version)
    wire.send(connect(version, "again"))
    wire.refused(0x82)


@statement("MQTT-3.1.2-1", "MQTT-3.2.2-7", "MQTT-3.2.2-8", version=5)
@statement("MQTT-3.1.2-1", version=311)
@pytest.mark.parametrize("name", [b"mqtt", b"MQTTX", b"MQIsdp"])
def test_another_protocol_name_is_refused(client: Clients, version: int, name: bytes) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", name=name))
    is_refused(wire, 0x84, 0x01)


@statement("MQTT-3.1.2-2", "MQTT-3.2.2-6", "MQTT-3.14.0-1", version=5)
@statement("MQTT-3.1.2-2", "MQTT-3.2.2-4", "MQTT-3.2.2-5", version=311)
@pytest.mark.parametrize("level", [0, 1, 2, 6, 255])
def test_another_protocol_version_is_refused(client: Clients, version: int, level: int) -> None:
    answered = V5 if level > V5 else V311  # in the version that is nearest to the one asked for
    if version != answered:
        version = answered
    wire = client.opened(version)
    wire.send(connect(version, "c", level=level))
    is_refused(wire, 0x84, 0x01)


@statement("MQTT-3.1.2-3", "MQTT-3.1.4-1", "MQTT-4.13.1-1", "MQTT-4.13.2-1", version=5)
@statement("MQTT-3.1.2-3", "MQTT-3.1.4-1", "MQTT-3.2.2-6", version=311)
def test_the_reserved_flag_of_connect_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", flags=0x03))
    is_refused(wire, 0x81)


@statement("MQTT-1.5.5-1", version=5)
def test_a_padded_remaining_length_of_connect_is_refused(client: Clients, version: int) -> None:
    sent = connect(version, "c")
    wire = client.opened(version)
    wire.send(bytes((sent[0], sent[1] | 0x80, 0)) + sent[2:])
    is_refused(wire, 0x81)


@statement("MQTT-3.1.2-11", "MQTT-3.1.2-12", "MQTT-3.1.2-13", version=5)
@statement("MQTT-3.1.2-11", "MQTT-3.1.2-13", "MQTT-3.1.2-14", "MQTT-3.1.2-15", version=311)
@pytest.mark.parametrize("flags", [0x0A, 0x12, 0x22, 0x1E], ids=["qos-1", "qos-2", "retain", "will-qos-3"])
def test_will_flags_that_contradict_themselves_are_refused(client: Clients, version: int, flags: int) -> None:
    wire = client.opened(version)
    will = Will("t") if flags & 4 else None
    wire.send(connect(version, "c", will=will, flags=flags))
    is_refused(wire, 0x81)


@statement("MQTT-3.1.2-9", "MQTT-3.1.2-17", "MQTT-3.1.2-19", "MQTT-3.1.3-3", version=5)
@statement("MQTT-3.1.2-9", "MQTT-3.1.2-19", "MQTT-3.1.2-21", "MQTT-3.1.3-3", version=311)
@pytest.mark.parametrize("flags", [0x06, 0x82, 0xC2], ids=["will", "user-name", "password"])
def test_fields_that_the_flags_promise_must_be_there(client: Clients, version: int, flags: int) -> None:
    user_name = b"u" if flags == 0xC2 else None
    wire = client.opened(version)
    wire.send(connect(version, "c", user_name=user_name, flags=flags))
    is_refused(wire, 0x81)


@statement("MQTT-3.1.3-3", version=5)
@statement("MQTT-3.1.3-3", version=311)
def test_a_connect_without_a_client_identifier_field_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(packet(0x10, text("MQTT"), bytes((version, 2, 0, 0)), b"\0" if version == V5 else b""))
    is_refused(wire, 0x81)


@statement("MQTT-3.1.2-11", "MQTT-3.1.2-16", "MQTT-3.1.2-18", version=5)
@statement("MQTT-3.1.2-11", "MQTT-3.1.2-18", "MQTT-3.1.2-20", version=311)
@pytest.mark.parametrize("flags", [0x02, 0x82], ids=["user-name", "password"])
def test_fields_that_the_flags_deny_must_not_be_there(client: Clients, version: int, flags: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", user_name=b"u", password=b"p" if flags == 0x82 else None, flags=flags))
    is_refused(wire, 0x81)


@statement("MQTT-3.1.2-22", version=311)
def test_a_password_without_a_user_name_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "c", password=b"p"))
    is_refused(wire, 0x81)


@statement("MQTT-1.5.4-1", "MQTT-3.1.3-4", "MQTT-3.1.3-11", "MQTT-3.1.3-12", version=5)
@statement("MQTT-1.5.3-1", "MQTT-3.1.3-4", "MQTT-3.1.3-10", "MQTT-3.1.3-11", version=311)
@pytest.mark.parametrize("field", ["client-id", "will-topic", "user-name"])
@pytest.mark.parametrize("bad", [ILL_FORMED, b"\xff", b"a\0b"], ids=["surrogate", "byte-ff", "nul"])
def test_strings_of_connect_are_checked(client: Clients, version: int, field: str, bad: bytes) -> None:
    wire = client.opened(version)
    wire.send(
        connect(
            version,
            bad if field == "client-id" else "c",
            will=Will(bad) if field == "will-topic" else None,
            user_name=bad if field == "user-name" else None,
        )
    )
    is_refused(wire, 0x81)


@statement("MQTT-3.1.3-1", "MQTT-3.1.3-10", "MQTT-3.1.2-7", version=5)
@statement("MQTT-3.1.3-1", "MQTT-3.1.2-9", version=311)
def test_all_fields_of_connect_are_read_in_their_order(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("#"), 2))
    wire = client.opened(version)
    pairs = [(USER_PROPERTY, (b"b", b"1")), (USER_PROPERTY, (b"a", b"2")), (USER_PROPERTY, (b"b", b"3"))]
    will = Will(topic("will"), b"the last word", 2, properties=[*pairs])
    wire.send(connect(version, client.id("whole"), will=will, user_name=b"user", password=b"\0\xff"))
    assert wire.expect(CONNACK).reason == 0
    wire.vanish()
    message = watcher.receive()
    assert (message.topic, message.payload, message.qos) == (topic("will").encode(), b"the last word", 2)
    assert message.properties == (pairs if version == V5 else [])


@statement("MQTT-3.1.3-5", version=5)
@statement("MQTT-3.1.3-5", version=311)
@pytest.mark.parametrize(
    "name", ["0", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"], ids=lambda name: name[:3]
)
def test_client_identifiers_of_letters_and_digits_are_allowed(client: Clients, version: int, name: str) -> None:
    wire = client.opened(version)
    wire.send(connect(version, name))
    assert wire.expect(CONNACK).reason == 0


@statement("MQTT-3.1.3-6", "MQTT-3.1.3-7", "MQTT-3.2.2-16", version=5)
def test_an_empty_client_identifier_gets_one_of_its_own(client: Clients, version: int) -> None:
    assigned = []
    for clean in (True, False):
        wire = client.opened(version)
        wire.send(connect(version, "", clean=clean))
        connack = wire.expect(CONNACK)
        assert (connack.reason, connack.session_present) == (0, 0)
        assigned.append(connack.value(ASSIGNED_CLIENT_ID))
    assert all(assigned)
    assert assigned[0] != assigned[1]


@statement("MQTT-3.1.3-6", version=311)
def test_clients_with_empty_identifiers_do_not_meet(client: Clients, version: int) -> None:
    one, other = client.opened(version), client.opened(version)
    for wire in (one, other):
        wire.send(connect(version, ""))
        assert wire.expect(CONNACK).reason == 0
    one.quiet()
    other.quiet()


@statement("MQTT-3.1.3-7", "MQTT-3.1.3-8", "MQTT-3.1.3-9", version=311)
def test_an_empty_client_identifier_for_a_kept_session_is_rejected(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, "", clean=False))
    is_refused(wire, None, 0x02)


@statement("MQTT-3.1.2-22", "MQTT-3.2.2-22", version=5)
@statement("MQTT-3.1.2-24", version=311)
def test_a_silent_client_is_disconnected_as_if_the_network_had_failed(
    client: Clients, topic: Topic, version: int
) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("will"), 0))
    wire = client.opened(version)
    wire.send(connect(version, client.id("silent"), keep_alive_s=1, will=Will(topic("will"))))
    assert wire.expect(CONNACK).value(SERVER_KEEP_ALIVE) is None
    wire.refused(0x8D)
    assert watcher.receive().payload == b"gone"


@statement("MQTT-3.1.2-28", version=5)
def test_response_information_comes_only_to_those_who_ask(client: Clients, version: int) -> None:
    for entries in ([], [(REQUEST_RESPONSE, 0)]):
        wire = client.opened(version)
        wire.send(connect(version, client.id("c"), properties=entries))
        assert wire.expect(CONNACK).value(RESPONSE_INFORMATION) is None


@statement("MQTT-3.1.2-29", version=5)
def test_without_request_problem_information_no_problem_is_explained(
    client: Clients, topic: Topic, version: int
) -> None:
    wire = client("terse", version, properties=[(REQUEST_PROBLEM, 0)])
    wire.send(
        acknowledgement(PUBREL, 77),
        unsubscribe(version, 1, topic("never")),
        subscribe(version, 2, (topic("a"), 0)),
        publish(version, topic("nobody"), qos=1, packet_id=3),
    )
    answers = [wire.next() for _ in range(4)]
    assert {answer.kind for answer in answers if answer} == {PUBCOMP, UNSUBACK, SUBACK, PUBACK}
    for answer in answers:
        assert answer is not None
        assert answer.values(REASON_STRING) + answer.values(USER_PROPERTY) == []


@statement("MQTT-3.1.4-3", "MQTT-3.1.3-2", version=5)
@statement("MQTT-3.1.4-2", "MQTT-3.1.3-2", version=311)
def test_a_newer_connection_of_a_client_identifier_ends_the_older(client: Clients, version: int) -> None:
    older = client("same", version)
    other = client("other", version)
    newer = client("same", version)
    older.refused(0x8E)
    newer.quiet()
    other.quiet()


@statement("MQTT-3.1.4-6", version=5)
@statement("MQTT-3.1.4-5", version=311)
def test_what_comes_behind_a_refused_connect_is_not_processed(client: Clients, topic: Topic, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((topic("#"), 0))
    wire = client.opened(version)
    refused = connect(version, "c", level=2 if version == V311 else 9)
    wire.send(refused, publish(version, topic("behind"), b"no"))
    is_refused(wire, 0x84, 0x01)
    watcher.quiet()


@statement("MQTT-3.1.4-4", "MQTT-3.1.4-5", "MQTT-3.2.0-1", "MQTT-3.2.2-1", "MQTT-3.2.2-2", version=5)
@statement("MQTT-3.1.4-3", "MQTT-3.1.4-4", "MQTT-3.2.0-1", "MQTT-3.2.2-1", version=311)
def test_connack_comes_first_also_when_packets_follow_connect_at_once(
    client: Clients, topic: Topic, version: int
) -> None:
    wire = client.opened(version)
    wire.send(
        connect(version, client.id("hasty")),
        subscribe(version, 1, (topic("a"), 0)),
        publish(version, topic("a"), b"at once"),
        PING,
    )
    connack = wire.expect(CONNACK)
    assert (connack.reason, connack.session_present) == (0, 0)
    answers = [wire.next() for _ in range(3)]  # in an order of the server's choice
    assert {answer.kind for answer in answers if answer} == {PUBLISH, PINGRESP, SUBACK}


@statement("MQTT-3.2.2-3", "MQTT-3.1.2-6", version=5)
@statement("MQTT-3.2.2-3", version=311)
def test_without_a_session_there_is_none_present(client: Clients, version: int) -> None:
    client("nobody", version, clean=False, session_present=0)


@statement("MQTT-3.2.2-19", "MQTT-3.2.2-20", "MQTT-3.1.2-24", version=5)
def test_connack_keeps_below_the_clients_maximum_packet_size(client: Clients, version: int) -> None:
    for maximum in (10, 30, 64, 1000):
        wire = client.opened(version)
        entries = [(MAXIMUM_PACKET_SIZE, maximum), (AUTHENTICATION_METHOD, b"no such method")]
        wire.send(connect(version, client.id("small"), properties=entries))
        assert wire.expect(CONNACK).size <= maximum


@statement("MQTT-4.12.0-1", version=5)
def test_an_unknown_authentication_method_is_refused(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, client.id("c"), properties=[(AUTHENTICATION_METHOD, b"no such method")]))
    is_refused(wire, 0x8C)


@statement("MQTT-4.12.0-6", version=5)
def test_without_an_authentication_method_none_is_answered(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, client.id("c")))
    assert wire.expect(CONNACK).value(AUTHENTICATION_METHOD) is None


@statement("MQTT-7.0.0-2", "MQTT-7.1.1-1", version=311)
@statement("MQTT-4.2-1", version=5)
def test_a_client_of_the_specification_alone_can_do_its_work_over_tcp(
    client: Clients, topic: Topic, version: int
) -> None:
    wire = client("plain", version)
    wire.subscribe((topic("a"), 2))
    wire.send(publish(version, topic("a"), b"0"))
    wire.send(publish(version, topic("a"), b"1", qos=1, packet_id=1))
    assert wire.expect(PUBLISH).payload == b"0"
    answers = [wire.next() for _ in range(2)]
    assert {answer.kind for answer in answers if answer} == {PUBLISH, PUBACK}


@statement("MQTT-3.2.2-9", "MQTT-3.2.2-10", version=5)
def test_all_three_qos_are_supported_and_so_no_maximum_is_said(client: Clients, topic: Topic, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, client.id("c")))
    assert wire.expect(CONNACK).value(MAXIMUM_QOS) is None
    wire.subscribe((topic("a"), 0), (topic("b"), 1), (topic("c"), 2))


@statement("MQTT-3.1.3-7", version=5)
def test_an_assigned_identifier_is_used_as_if_the_client_had_sent_it(client: Clients, version: int) -> None:
    wire = client.opened(version)
    wire.send(connect(version, ""))
    assigned = wire.expect(CONNACK).value(ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, bytes)
    newer = client.opened(version)
    newer.send(connect(version, assigned))
    assert newer.expect(CONNACK).reason == 0
    wire.refused(0x8E)
