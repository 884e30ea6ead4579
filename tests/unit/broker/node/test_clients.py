"""One connection per client id: who is admitted, refused, kicked, and what the home is told."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from flockmq.home.service import Done, HomeUnreachable, Superseded
from flockmq.mqtt import encode
from flockmq.mqtt.errors import protocol_error
from flockmq.mqtt.packets import Connect, Will
from flockmq.mqtt.reason import Reason
from flockmq.node.clients import VIOLATIONS_LOGGED_PER_S, Clients
from flockmq.session.channel import CLOSED, Channel
from flockmq.session.opening import Will as LastWill
from flockmq.session.port import ALLOWED, ASKED, DENIED
from flockmq.session.principal import ANONYMOUS
from flockmq.session.session import Session
from unit.broker.session.harness import Client, Node, Port, without_words


class Home:
    """Answers an attach when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, Done]] = []
        self.detached: list[tuple[bytes, int]] = []

    def attach(self, client_id: bytes, clean: bool, done: Done) -> None:
        self.asked.append((client_id, done))

    def detach(self, client_id: bytes, token: int) -> None:
        self.detached.append((client_id, token))


class Handovers:
    """Gives nothing away, and takes nothing over; `hold` keeps back who waits for the routes of a session."""

    def __init__(self) -> None:
        self.given: list[tuple[bytes, int, str]] = []
        self.hold = False
        self.held: list[Callable[[], None]] = []

    def give(self, session: Session, token: int, to: str) -> None:
        self.given.append((session.client_id, token, to))

    def take(self, client_id: bytes, token: int, clean: bool, then: Callable[[], None]) -> None:
        if self.hold:
            self.held.append(then)
        else:
            then()


class Admitting(Port):
    """A node whose clients are real."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.home = Home()
        self.handovers = Handovers()
        self.events: list[tuple[str, bytes, int, int]] = []
        self.clients = Clients(
            "me@1", self.sessions, self.node.router.counters, self.flush_soon, lambda *event: self.events.append(event)
        )
        self.clients.homes = self.home
        self.clients.handovers = self.handovers

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.clients.authenticated(channel, connect, ANONYMOUS)

    def gone(self, channel: Channel, session: Session, will: LastWill | None) -> None:
        self.clients.gone(channel, session, will)

    def connecting(self, client_id: bytes = b"c", version: int = 5, *, clean: bool = True) -> Client:
        """With `clean` False in version 4: a session that lasts."""
        channel = self.node.opened()
        assert self.node.feed(channel, encode.connect(Connect(version, client_id, clean_start=clean))) == []
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
    assert not admitting.clients.kick(b"c", 6, "other@1", True)
    assert admitting.clients.kick(b"c", 7, "other@1", True)
    admitting.node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.SESSION_TAKEN_OVER)]
    assert admitting.home.detached == [(b"c", 7)]
    assert not admitting.clients.kick(b"c", 7, "other@1", True)
    assert admitting.events[-1] == ("disconnected", b"c", Reason.SESSION_TAKEN_OVER, 5)


def test_a_client_that_is_still_to_be_admitted_cannot_be_kicked(admitting: Admitting) -> None:
    admitting.connecting()
    assert not admitting.clients.kick(b"c", 7, "other@1", True)


def test_the_end_of_an_older_connection_leaves_the_newer_one(admitting: Admitting) -> None:
    older = admitting.connecting()
    admitting.answer(older, 7)
    newer = admitting.connecting()
    admitting.answer(newer, 8)
    older.lost()
    assert admitting.clients.by_id == {b"c": newer}
    assert list(admitting.clients.tokens()) == [(b"c", 8)]
    assert admitting.home.detached == [(b"c", 7)]


def test_MQTT_3_1_3_7_an_assigned_client_id_is_told_and_is_like_any_other(admitting: Admitting) -> None:
    channel = admitting.node.opened()
    assert admitting.node.feed(channel, encode.connect(Connect(5, b""))) == []
    assigned = channel.client_id()
    assert admitting.home.asked[0][0] == assigned
    assert assigned in admitting.answer(channel, 7)
    channel.lost()
    assert admitting.home.detached == [(assigned, 7)]


def test_a_session_that_lasts_keeps_its_place_at_the_home(admitting: Admitting) -> None:
    client = admitting.connecting(version=4, clean=False)
    admitting.answer(client, 7)
    client.lost()
    assert not admitting.home.detached
    assert list(admitting.clients.tokens()) == [(b"c", 7)]


def test_a_kicked_session_stays_for_a_newcomer_on_the_same_node(admitting: Admitting) -> None:
    client = admitting.connecting(version=4, clean=False)
    admitting.answer(client, 7)
    newer = admitting.connecting(version=4, clean=False)
    assert admitting.clients.kick(b"c", 7, "me@1", False)
    assert admitting.home.detached == [(b"c", 7)]
    assert admitting.answer(newer, 8) == encode.connack(4, 0, True)
    assert list(admitting.clients.tokens()) == [(b"c", 8)]


def test_a_kicked_session_is_given_to_a_newcomer_on_another_node(admitting: Admitting) -> None:
    client = admitting.connecting(version=4, clean=False)
    admitting.answer(client, 7)
    client.lost()
    assert admitting.clients.kick(b"c", 7, "other@1", False)
    assert admitting.handovers.given == [(b"c", 7, "other@1")]
    assert not admitting.home.detached


def test_a_kicked_session_ends_for_a_newcomer_that_starts_clean(admitting: Admitting) -> None:
    client = admitting.connecting(version=4, clean=False)
    admitting.answer(client, 7)
    client.lost()
    assert admitting.clients.kick(b"c", 7, "other@1", True)
    assert not admitting.handovers.given
    assert admitting.home.detached == [(b"c", 7)]
    assert admitting.sessions_gone == [b"c"]


def test_a_client_that_left_before_it_had_its_session_leaves_it_there(admitting: Admitting) -> None:
    admitting.answer(first := admitting.connecting(version=4, clean=False), 7)
    first.lost()
    second = admitting.connecting(version=4, clean=False)
    second.lost()
    admitting.clients.kick(b"c", 7, "me@1", False)
    admitting.answer(second, 8)
    assert list(admitting.clients.tokens()) == [(b"c", 8)]
    assert admitting.home.detached == [(b"c", 7)]


def test_violations_are_a_few_lines_each_one_line(admitting: Admitting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = admitting.connecting(b"a\nforged line")
    for _ in range(VIOLATIONS_LOGGED_PER_S * 3):
        admitting.clients.violated(client, protocol_error("it did", "MQTT-0"))
    assert 0 < len(caplog.records) <= VIOLATIONS_LOGGED_PER_S
    assert all("\n" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("verdict", [ALLOWED, DENIED, ASKED])
def test_a_will_is_authorized_before_its_client_is_admitted(admitting: Admitting, verdict: int) -> None:
    admitting.verdicts[b"w"] = verdict
    admitting.clients.must_authorize = lambda principal: True
    channel = admitting.node.opened()
    will = Will(b"w", b"gone", 1, False, None)
    answer = admitting.node.feed(channel, encode.connect(Connect(5, b"c", will=will)))
    if verdict == ASKED:
        admitting.asked[0][2](False)
        admitting.node.turn()
        answer = channel.packets()
    if verdict == ALLOWED:
        assert admitting.answer(channel, 7)[3] == 0
    else:
        assert without_words(answer) == [encode.connack(5, Reason.NOT_AUTHORIZED)]


def test_an_older_connection_that_its_new_home_has_not_heard_of_is_closed(admitting: Admitting) -> None:
    older = admitting.connecting(version=4, clean=False)
    admitting.answer(older, 7)
    newer = admitting.connecting(version=4, clean=False)
    assert admitting.answer(newer, 8) == encode.connack(4, 0, True)
    assert older.state == CLOSED
    older.lost()
    assert list(admitting.clients.tokens()) == [(b"c", 8)]
    assert not admitting.sessions.away


@pytest.mark.parametrize("to", ["other@1", "me@1"])
def test_a_client_is_kicked_while_the_routes_of_its_session_are_written(admitting: Admitting, to: str) -> None:
    admitting.answer(first := admitting.connecting(version=4, clean=False), 6)
    first.lost()
    admitting.handovers.hold = True
    client = admitting.connecting(version=4, clean=False)
    admitting.answer(client, 7)
    assert list(admitting.clients.tokens()) == [(b"c", 7), (b"c", 6)]
    admitting.sessions.keep(b"c", 7)  # as the session that comes has it
    assert admitting.clients.kick(b"c", 7, to, False)
    admitting.handovers.held[0]()
    admitting.node.turn()
    assert client.packets() == [encode.connack(4, Reason.SERVER_UNAVAILABLE)]
    assert admitting.handovers.given == ([(b"c", 7, to)] if to == "other@1" else [])
    assert admitting.home.detached == ([(b"c", 7)] if to == "me@1" else [])
    assert not admitting.clients.by_id
