"""One connection per client id: who is admitted, refused, kicked, and what the home is told."""

from __future__ import annotations

import logging

import pytest

from flockmq.home.service import Done, HomeUnreachable, Superseded
from flockmq.mqtt import encode
from flockmq.mqtt.errors import protocol_error
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.node.clients import VIOLATIONS_LOGGED_PER_S, Clients
from flockmq.session.channel import CLOSED, Channel
from flockmq.session.limits import Limits
from unit.broker.session.harness import Client, Node, Port


class Home:
    """Answers an attach when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, Done]] = []
        self.detached: list[tuple[bytes, int]] = []

    def attach(self, client_id: bytes, done: Done) -> None:
        self.asked.append((client_id, done))

    def detach(self, client_id: bytes, token: int) -> None:
        self.detached.append((client_id, token))


class Admitting(Port):
    """A node whose clients are real."""

    def __init__(self, limits: Limits | None = None) -> None:
        super().__init__()
        self.node = Node(limits)
        self.node.port = self
        self.home = Home()
        self.events: list[tuple[str, bytes, int, int]] = []
        self.clients = Clients(
            self.node.limits, self.node.router.counters, self.flush_soon, lambda *event: self.events.append(event)
        )
        self.clients.homes = self.home

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.clients.admit(channel, connect)

    def gone(self, channel: Channel) -> None:
        self.clients.gone(channel)

    def connecting(self, client_id: bytes = b"c", version: int = 5) -> Client:
        channel = self.node.opened()
        assert self.node.feed(channel, encode.connect(Connect(version, client_id))) == []
        return channel

    def answer(self, channel: Client, answer: int | Exception) -> bytes:
        _, done = self.home.asked.pop(0)
        done(answer)  # type: ignore[arg-type]
        self.node.turn()
        return b"".join(channel.packets())


@pytest.fixture
def admitting() -> Admitting:
    return Admitting()


def test_a_client_is_admitted_when_its_home_says_so(admitting: Admitting) -> None:
    client = admitting.connecting()
    connack = admitting.answer(client, 7)
    assert connack[0] == 0x20
    assert connack[3] == 0
    assert admitting.clients.by_id == {b"c": client}
    assert admitting.events == [("connected", b"c", 0, 5)]
    assert admitting.flushes == 1


@pytest.mark.parametrize("error", [Superseded("newer"), HomeUnreachable("away")])
def test_a_client_that_its_home_refuses_hears_that_the_server_is_unavailable(
    admitting: Admitting, error: Exception
) -> None:
    client = admitting.connecting()
    assert admitting.answer(client, error) == encode.connack(5, Reason.SERVER_UNAVAILABLE)
    assert client.state == CLOSED
    assert not admitting.clients.by_id
    assert not admitting.events


def test_a_client_that_left_while_its_home_was_asked_is_detached(admitting: Admitting) -> None:
    client = admitting.connecting()
    client.lost()
    assert admitting.answer(client, 7) == b""
    assert admitting.home.detached == [(b"c", 7)]
    assert not admitting.clients.by_id
    assert not admitting.events


def test_a_kicked_client_hears_why_and_its_home_that_it_is_gone(admitting: Admitting) -> None:
    client = admitting.connecting()
    admitting.answer(client, 7)
    assert not admitting.clients.kick(b"c", 6)
    assert admitting.clients.kick(b"c", 7)
    admitting.node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.SESSION_TAKEN_OVER)]
    assert admitting.home.detached == [(b"c", 7)]
    assert not admitting.clients.kick(b"c", 7)
    assert admitting.events[-1] == ("disconnected", b"c", Reason.SESSION_TAKEN_OVER, 5)


def test_a_client_that_is_still_to_be_admitted_cannot_be_kicked(admitting: Admitting) -> None:
    admitting.connecting()
    assert not admitting.clients.kick(b"c", 7)


def test_the_end_of_an_older_connection_leaves_the_newer_one(admitting: Admitting) -> None:
    older = admitting.connecting()
    admitting.answer(older, 7)
    newer = admitting.connecting()
    admitting.answer(newer, 8)
    older.lost()
    assert admitting.clients.by_id == {b"c": newer}
    assert list(admitting.clients.tokens()) == [(b"c", 8)]
    assert admitting.home.detached == [(b"c", 7)]


def test_an_assigned_client_id_is_told_and_needs_no_home(admitting: Admitting) -> None:
    channel = admitting.node.opened()
    (connack,) = admitting.node.feed(channel, encode.connect(Connect(5, b"")))
    assert channel.client_id() in connack
    assert not admitting.home.asked
    channel.lost()
    assert not admitting.home.detached


def test_a_session_expiry_is_answered_with_0(admitting: Admitting) -> None:
    channel = admitting.node.opened()
    wanted = Properties()
    wanted.session_expiry_interval = 100
    admitting.node.feed(channel, encode.connect(Connect(5, b"c", properties=wanted)))
    assert b"\x11\0\0\0\0" in admitting.answer(channel, 7)


def test_anonymous_clients_are_refused_where_they_are_not_allowed() -> None:
    admitting = Admitting(Limits(allow_anonymous=False))
    channel = admitting.node.opened()
    assert admitting.node.feed(channel, encode.connect(Connect(4, b"c"))) == [encode.connack(4, Reason.NOT_AUTHORIZED)]


def test_violations_are_a_few_lines_each_one_line(admitting: Admitting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = admitting.connecting(b"a\nforged line")
    for _ in range(VIOLATIONS_LOGGED_PER_S * 3):
        admitting.clients.violated(client, protocol_error("it did", "MQTT-0"))
    assert 0 < len(caplog.records) <= VIOLATIONS_LOGGED_PER_S
    assert all("\n" not in record.getMessage() for record in caplog.records)
