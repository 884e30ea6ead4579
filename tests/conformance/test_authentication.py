"""Who gets in: enhanced authentication (sections 3.15 and 4.12) by SCRAM-SHA-256, passwords, and what is forbidden.

The client's side of SCRAM is written here from RFC 5802 and RFC 7677.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import urllib.request
from collections.abc import Iterator

import pytest

from conformance.conftest import Clients
from conformance.statement import statement
from conformance.wire import (
    AUTH,
    AUTHENTICATION_DATA,
    AUTHENTICATION_METHOD,
    CONNACK,
    DISCONNECT,
    MAXIMUM_PACKET_SIZE,
    PATIENCE_S,
    PING,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    REASON_STRING,
    SUBACK,
    USER_PROPERTY,
    V5,
    Packet,
    Properties,
    Wire,
    acknowledgement,
    auth,
    connect,
    packet,
    publish,
    subscribe,
)
from integration.dev.commands import Commands

METHOD = b"SCRAM-SHA-256"
CONFIG = """
[authentication]
allow_anonymous = true
chain = [
  {{ mechanism = "scram:built_in_database" }},
  {{ mechanism = "password_based:built_in_database" }},
]
[management]
api_key_file = "{key}"
[authorization]
no_match = "allow"
sources = [ {{ type = "file", rules = [ {{ permit = "deny", topics = ["denied/#"] }} ] }} ]
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("node")
    key = folder / "key"
    key.write_text("a key of sixteen letters or more")
    config = folder / "flockmq.toml"
    config.write_text(CONFIG.format(key=key))
    commands = Commands()
    try:
        _, ports = commands.start_node("--config", str(config), "--data-dir", str(folder / "data"))
        for user_id, password in (("meter", "correct"), ("other", "else")):
            request = urllib.request.Request(
                f"http://127.0.0.1:{ports['management']}/api/v1/users",
                json.dumps({"user_id": user_id, "password": password}).encode(),
                {"Authorization": f"Bearer {key.read_text()}", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                assert answer.status in (200, 201)
        yield ports["mqtt"]
    finally:
        commands.end_all()


class Scram:
    """One exchange, from the client's side."""

    def __init__(self, user: str = "meter", password: str = "correct") -> None:
        self.bare = f"n={user},r=rOprNGfwEbeRWgbNEkqO"
        self.password = password
        self.signature = b""

    def first(self) -> bytes:
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        server = challenge.decode()
        fields = dict(field.split("=", 1) for field in server.split(","))
        assert fields["r"].startswith(self.bare.partition("r=")[2])
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, rounds)
        without_proof = f"c=biws,r={fields['r']}"
        message = f"{self.bare},{server},{without_proof}".encode()
        key = hmac.digest(salted, b"Client Key", "sha256")
        signed = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
        proof = bytes(one ^ other for one, other in zip(key, signed, strict=True))
        self.signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), message, "sha256")
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_proven_by(self, answer: Packet) -> bool:
        return answer.value(AUTHENTICATION_DATA) == b"v=" + base64.b64encode(self.signature)


def asked(client: Clients, scram: Scram, *more: tuple[int, int]) -> tuple[Wire, bytes]:
    """A connection in the middle of its exchange, and the server's challenge."""
    wire = client.opened(V5)
    entries: Properties = [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, scram.first()), *more]
    wire.send(connect(V5, client.id("meter"), properties=entries))
    return wire, challenge_of(wire)


def challenge_of(wire: Wire) -> bytes:
    answer = wire.expect(AUTH)
    assert answer.reason == 0x18
    assert answer.value(AUTHENTICATION_METHOD) == METHOD
    data = answer.value(AUTHENTICATION_DATA)
    assert isinstance(data, bytes)
    return data


def proof(scram: Scram, challenge: bytes, reason: int = 0x18, method: bytes = METHOD) -> bytes:
    return auth(reason, [(AUTHENTICATION_METHOD, method), (AUTHENTICATION_DATA, scram.final(challenge))])


def authenticated(client: Clients, scram: Scram) -> Wire:
    wire, challenge = asked(client, scram)
    wire.send(proof(scram, challenge))
    connack = wire.expect(CONNACK)
    assert connack.reason == 0
    assert connack.value(AUTHENTICATION_METHOD) == METHOD
    assert scram.is_proven_by(connack)
    return wire


def ends(wire: Wire, *kinds: int) -> None:
    """At most one packet of these kinds, with a reason of 0x80 or more, and the end."""
    found = wire.next()
    if found is not None:
        assert found.kind in kinds
        assert found.reason >= 0x80
        assert wire.next() is None


@statement("MQTT-4.12.0-2", "MQTT-4.12.0-5", "MQTT-3.15.2-1", version=5)
def test_an_exchange_lets_the_client_in(client: Clients) -> None:
    wire = authenticated(client, Scram())
    wire.subscribe((client.id("a"), 0))


@statement("MQTT-3.15.2-2", "MQTT-3.15.2-3", version=5)
def test_auth_keeps_below_the_clients_maximum_packet_size(client: Clients, version: int) -> None:
    wire = client.opened(version)
    begun: Properties = [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, Scram().first())]
    wire.send(connect(version, client.id("meter"), properties=[*begun, (MAXIMUM_PACKET_SIZE, 180)]))
    answer = wire.expect(AUTH)
    assert answer.size <= 180
    assert answer.values(REASON_STRING) + answer.values(USER_PROPERTY) == []


@statement("MQTT-4.12.0-4", "MQTT-3.1.4-2", version=5)
@pytest.mark.parametrize(("user", "password"), [("meter", "wrong"), ("nobody", "correct"), ("meter", "else")])
def test_a_wrong_proof_is_refused(client: Clients, version: int, user: str, password: str) -> None:
    scram = Scram(user, password)
    wire = client.opened(version)
    entries = [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, scram.first())]
    wire.send(connect(version, client.id("meter"), properties=entries))
    answer = wire.next()
    assert answer is not None
    if answer.kind == AUTH:
        data = answer.value(AUTHENTICATION_DATA)
        assert isinstance(data, bytes)
        wire.send(proof(scram, data), publish(version, "a", b"behind"))
        answer = wire.expect(CONNACK)
    assert answer.reason in (0x86, 0x87)
    assert wire.next() is None


@statement("MQTT-4.12.0-4", version=5)
@pytest.mark.parametrize(
    "data", [b"", b"\0\xff", b"n,,", b"n,,n=meter,r=", b"p=tls-unique,,n=meter,r=abc", b"x" * 4000]
)
def test_data_that_is_no_scram_is_refused(client: Clients, version: int, data: bytes) -> None:
    wire = client.opened(version)
    entries = [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, data)]
    wire.send(connect(version, client.id("meter"), properties=entries))
    ends(wire, CONNACK)


@statement("MQTT-3.1.2-30", "MQTT-4.12.0-3", version=5)
@pytest.mark.parametrize(
    "sent", [PING, publish(V5, "a"), subscribe(V5, 1, ("a", 0))], ids=["ping", "publish", "subscribe"]
)
def test_other_packets_amid_the_exchange_are_refused(client: Clients, sent: bytes) -> None:
    wire, _ = asked(client, Scram())
    wire.send(sent)
    ends(wire, CONNACK)


@statement("MQTT-4.12.0-3", "MQTT-4.12.0-5", version=5)
@pytest.mark.parametrize(("reason", "method"), [(0x19, METHOD), (0x00, METHOD), (0x18, b"SCRAM-SHA-1"), (0x42, METHOD)])
def test_an_answer_with_another_reason_or_method_is_refused(client: Clients, reason: int, method: bytes) -> None:
    scram = Scram()
    wire, challenge = asked(client, scram)
    wire.send(proof(scram, challenge, reason, method))
    ends(wire, CONNACK)


@statement("MQTT-3.1.2-30", version=5)
def test_a_client_may_leave_amid_the_exchange(client: Clients) -> None:
    wire, _ = asked(client, Scram())
    wire.send(b"\xe0\x00")
    assert wire.next() is None


@statement("MQTT-4.12.0-7", "MQTT-4.12.0-6", version=5)
@pytest.mark.parametrize("reason", [0x18, 0x19])
def test_auth_without_a_method_in_connect_is_refused(client: Clients, version: int, reason: int) -> None:
    wire = client("plain", version)
    wire.send(auth(reason, [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, Scram().first())]))
    wire.refused(0x82)


@statement("MQTT-3.15.2-1", version=5)
@pytest.mark.parametrize(
    "sent", [packet(0xF0, b"\x01\x00"), packet(0xF0, b"\x18"), packet(0xF0, b"\x18\x00"), b"\xf0\0"]
)
def test_an_auth_that_is_none_is_refused(client: Clients, sent: bytes) -> None:
    wire = authenticated(client, Scram())
    wire.send(sent)
    assert wire.expect(DISCONNECT).reason in (0x81, 0x82)
    assert wire.next() is None


@statement("MQTT-4.12.1-1", "MQTT-4.12.0-5", version=5)
def test_a_client_may_authenticate_again_while_its_traffic_goes_on(client: Clients, version: int) -> None:
    wire = authenticated(client, Scram())
    wire.subscribe((client.id("a"), 0))
    again = Scram()
    wire.send(auth(0x19, [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, again.first())]))
    challenge = challenge_of(wire)
    wire.send(publish(version, client.id("a"), b"amid"))
    assert wire.receive().payload == b"amid"
    wire.send(proof(again, challenge))
    answer = wire.expect(AUTH)
    assert (answer.reason, answer.value(AUTHENTICATION_METHOD)) == (0x00, METHOD)
    assert again.is_proven_by(answer)
    wire.quiet()


@statement("MQTT-4.12.1-2", version=5)
def test_a_failed_re_authentication_ends_the_connection(client: Clients) -> None:
    wire = authenticated(client, Scram())
    again = Scram(password="forgotten")
    wire.send(auth(0x19, [(AUTHENTICATION_METHOD, METHOD), (AUTHENTICATION_DATA, again.first())]))
    wire.send(proof(again, challenge_of(wire)))
    assert wire.expect(DISCONNECT).reason in (0x86, 0x87)
    assert wire.next() is None


@statement("MQTT-4.12.1-1", version=5)
def test_another_method_for_a_re_authentication_is_refused(client: Clients) -> None:
    wire = authenticated(client, Scram())
    wire.send(auth(0x19, [(AUTHENTICATION_METHOD, b"SCRAM-SHA-1"), (AUTHENTICATION_DATA, Scram().first())]))
    assert wire.expect(DISCONNECT).reason in (0x82, 0x87, 0x8C)
    assert wire.next() is None


@statement("MQTT-3.1.4-2", version=5)
@statement("MQTT-3.1.2-19", "MQTT-3.1.2-21", version=311)
@pytest.mark.parametrize(("password", "welcome"), [(b"correct", True), (b"wrong", False), (b"", False)])
def test_a_password_decides(client: Clients, version: int, password: bytes, welcome: bool) -> None:
    wire = client.opened(version)
    wire.send(connect(version, client.id("meter"), user_name=b"meter", password=password))
    reason = wire.expect(CONNACK).reason
    if welcome:
        assert reason == 0
        wire.quiet()
    else:
        assert reason in ((0x86, 0x87) if version == V5 else (4, 5))
        assert wire.next() is None


@statement("MQTT-3.3.5-2", version=311)
@pytest.mark.parametrize("qos", [1, 2])
def test_a_forbidden_publish_is_acknowledged_and_goes_nowhere(client: Clients, version: int, qos: int) -> None:
    wire = client("c", version)
    wire.send(publish(version, "denied/a", qos=qos, packet_id=3, retain=True))
    found = wire.next()
    assert found is None or (found.kind, found.packet_id) == (PUBACK if qos == 1 else PUBREC, 3)


@statement("MQTT-4.3.3-9", "MQTT-3.5.2-1", version=5)
def test_after_a_pubrec_that_refuses_the_identifier_means_a_new_message(client: Clients, version: int) -> None:
    watcher = client("watcher", version)
    watcher.subscribe((client.id("allowed"), 0))
    wire = client("c", version)
    wire.send(publish(version, "denied/a", b"no", qos=2, packet_id=3))
    refused = wire.expect(PUBREC)
    assert (refused.packet_id, refused.reason) == (3, 0x87)
    wire.send(publish(version, client.id("allowed"), b"yes", qos=2, packet_id=3))
    taken = wire.expect(PUBREC)
    assert (taken.packet_id, taken.reason) == (3, 0)
    wire.send(acknowledgement(PUBREL, 3))
    assert wire.expect(PUBCOMP).reason == 0
    assert watcher.receive().payload == b"yes"


@statement("MQTT-3.9.3-2", "MQTT-3.4.2-1", version=5)
@statement("MQTT-3.9.3-2", version=311)
def test_a_forbidden_subscription_says_so(client: Clients, version: int) -> None:
    wire = client("c", version)
    wire.send(subscribe(version, 1, ("denied/a", 1), (client.id("b"), 1)))
    assert wire.expect(SUBACK).reasons == ([0x87, 1] if version == V5 else [0x80, 1])
