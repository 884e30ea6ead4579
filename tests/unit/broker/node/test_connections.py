"""One connection per client id: who is admitted, refused, kicked, and what the home is told."""

from __future__ import annotations

import logging

import pytest

from flockmq.bounds import REFUSALS_LOGGED_PER_S
from flockmq.clock import SYSTEM
from flockmq.entropy import SYSTEM as SYSTEM_ENTROPY
from flockmq.mqtt import encode
from flockmq.mqtt.errors import protocol_error
from flockmq.mqtt.message import Will as LastWill
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.node.connections import Connections
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.protocol.client import ALLOWED, ANONYMOUS, ASKED, DENIED, UNDECIDED, Principal
from flockmq.quotas import UNLIMITED, Quotas
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remote_session import RemoteSession
from flockmq.session_rpc.attach_result import Admission, AttachError, Done, OtherUser, OwnerUnreachable, Superseded
from flockmq.session_rpc.clean_session_wills import will_origin
from flockmq.session_rpc.messages import Answered, Opening, Question, is_clean_session, user_of
from flockmq.session_rpc.remote_sessions import RemoteSessions
from unit.broker.protocol.harness import Client, Node, Port, publish, without_words

HOME = "core@1"
PUBLISH = publish(5, "t", "hello", qos=1, packet_id=1)


class Home:
    """Answers an attach when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, Opening | None, Done]] = []
        self.detached: list[tuple[bytes, int, int, bool]] = []
        self.evicted: list[tuple[bytes, int, int, float, Opening | None]] = []
        self.nonces: list[bytes] = []
        """Of the openings of those that are detached."""
        self.confirmed: list[tuple[bytes, int]] = []

    def attach(self, client_id: bytes, opening: Opening | None, done: Done) -> None:
        self.asked.append((client_id, opening, done))

    def detach(
        self, client_id: bytes, token: int, expiry_s: int = -1, *, with_will: bool = False, nonce: bytes = b""
    ) -> None:
        self.detached.append((client_id, token, expiry_s, with_will))
        self.nonces.append(nonce)

    def evict(
        self, client_id: bytes, token: int, expiry_s: int, nonce: bytes, hold_s: float, guest: Opening | None
    ) -> None:
        self.evicted.append((client_id, token, expiry_s, hold_s, guest))
        self.nonces.append(nonce)

    def confirm(self, client_id: bytes, token: int) -> None:
        self.confirmed.append((client_id, token))

    def owner(self, slot: int) -> str:
        return HOME

    def report(self, client_id: bytes, token: int, pairs: bytes) -> None:
        raise AssertionError("nothing was answered")

    def ask(self, client_id: bytes, token: int, question: Question, answered: Answered) -> None:
        raise AssertionError("nothing was asked for")


class Admitting(Port):
    """A node whose clients are real, and who watches them."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.home = Home()
        self.user = b""
        """Who the next client is."""
        self.events: list[tuple[str, bytes, int, int]] = []
        self.left: list[LastWill | None] = []
        """The wills of connections that are gone."""
        router = self.node.router
        self.fronts = RemoteSessions(
            router.turn, self.flush_soon, lambda channel, filter: None, SYSTEM_ENTROPY.token_bytes
        )
        self.clients = Connections(
            self.sessions,
            self.fronts,
            router.counters,
            self.flush_soon,
            lambda *event: self.events.append(event),
            SYSTEM,
            SYSTEM_ENTROPY.token_bytes,
        )
        self.clients.owners = self.fronts.owners = self.home
        self.clients.watcher = self

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.clients.authenticated(channel, connect, Principal(self.user) if self.user else ANONYMOUS)

    def gone(self, channel: Channel, session: LocalSession, will: LastWill | None) -> None:
        self.left.append(will)
        self.clients.gone(channel, session, will)

    def connected(self, channel: Channel, connect: Connect, session: LocalSession, is_present: bool) -> None: ...
    def disconnected(self, channel: Channel, session: LocalSession) -> None: ...
    def taken_over(self, client_id: bytes) -> None: ...

    def connecting(
        self,
        client_id: bytes = b"c",
        version: int = 5,
        *,
        clean: bool = True,
        expiry_s: int = 0,
        will: ConnectWill | None = None,
    ) -> Client:
        channel = self.node.opened()
        properties = expiring(expiry_s) if expiry_s else None
        connect = Connect(version, client_id, clean_start=clean, will=will, properties=properties)
        assert self.node.feed(channel, encode.connect(connect)) == []
        return channel

    def answer(
        self, channel: Client, answer: int | AttachError, *, lasts: bool = False, present: bool = False
    ) -> bytes:
        _, _, done = self.home.asked.pop(0)
        done(Admission(answer, lasts, present) if isinstance(answer, int) else answer)
        self.node.turn()
        return b"".join(channel.packets())

    def lasting(self, token: int, version: int = 5, will: ConnectWill | None = None) -> Client:
        """Connected; its session, which ends an hour after it left, runs at its home."""
        client = self.connecting(version=version, clean=False, expiry_s=3600 if version == 5 else 0, will=will)
        assert self.answer(client, token, lasts=True)[3] == 0
        return client

    def tokens(self) -> list[tuple[bytes, int]]:
        return [(connection.client_id, connection.token) for connection in self.clients.connections()]


def expiring(interval_s: int) -> Properties:
    properties = Properties()
    properties.session_expiry_interval = interval_s
    return properties


@pytest.fixture
def admitting() -> Admitting:
    return Admitting()


def test_that_a_connection_is_gone_is_said_with_the_nonce_of_its_opening(admitting: Admitting) -> None:
    """By which its home knows whether a later one came."""
    client = admitting.lasting(7)
    opening = admitting.fronts.opening(7)
    assert opening is not None
    client.lost()
    early = admitting.connecting(client_id=b"gone before it is admitted", clean=False, expiry_s=60)
    (_, asked, _) = admitting.home.asked[0]
    assert asked is not None
    early.lost()
    admitting.answer(early, 8, lasts=True)
    assert admitting.home.nonces == [opening.nonce, asked.nonce]


@pytest.mark.parametrize("present", [False, True])
def test_the_owner_is_told_that_the_client_got_the_CONNACK_of_its_new_session(
    admitting: Admitting, present: bool
) -> None:
    admitting.answer(admitting.connecting(client_id=b"new", clean=False, expiry_s=60), 7, lasts=True, present=present)
    early = admitting.connecting(client_id=b"early", clean=False, expiry_s=60)
    early.lost()
    admitting.answer(early, 8, lasts=True)
    assert admitting.home.confirmed == ([] if present else [(b"new", 7)])


@pytest.mark.parametrize("has_rules", [False, True])
def test_anonymous_clients_share_a_principal_where_no_rules_apply(admitting: Admitting, has_rules: bool) -> None:
    """Decisions are cached by the principal."""
    admitting.clients.must_authorize = lambda _: has_rules
    client = admitting.connecting()
    admitting.clients.authenticated(client, Connect(5, b"c"), own := Principal(b""))
    assert client.principal is (own if has_rules else ANONYMOUS)


def test_a_client_is_admitted_when_its_home_says_so(admitting: Admitting) -> None:
    client = admitting.connecting()
    connack = admitting.answer(client, 7)
    assert connack[0] == 0x20
    assert connack[3] == 0
    assert admitting.clients.by_id == {b"c": client}
    assert admitting.events == [("connected", b"c", 0, 5)]
    assert admitting.flushes == 1


@pytest.mark.parametrize("error", [Superseded("newer"), OwnerUnreachable("away")])
def test_a_client_that_its_home_refuses_hears_that_the_server_is_unavailable(
    admitting: Admitting, error: AttachError
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
    assert admitting.home.detached == [(b"c", 7, 0, False)]
    assert not admitting.clients.by_id
    assert not admitting.events


def test_a_kicked_client_hears_why_and_its_home_that_it_is_gone(admitting: Admitting) -> None:
    client = admitting.connecting()
    admitting.answer(client, 7)
    assert not admitting.clients.kick(b"c", 6)
    assert admitting.clients.kick(b"c", 7)
    admitting.node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.SESSION_TAKEN_OVER)]
    assert admitting.home.detached == [(b"c", 7, -1, False)]
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
    assert older.state == CLOSED, "its new home has not heard of it"
    older.lost()
    assert admitting.clients.by_id == {b"c": newer}
    assert admitting.tokens() == [(b"c", 8)]
    assert admitting.home.detached == [(b"c", 7, -1, False)]


def test_MQTT_3_1_3_7_an_assigned_client_id_is_told_and_is_like_any_other(admitting: Admitting) -> None:
    channel = admitting.node.opened()
    assert admitting.node.feed(channel, encode.connect(Connect(5, b""))) == []
    assigned = channel.client_id()
    assert admitting.home.asked[0][0] == assigned
    assert assigned in admitting.answer(channel, 7)
    channel.lost()
    assert admitting.home.detached == [(assigned, 7, -1, False)]


def test_a_session_that_ends_with_its_connection_is_opened_nowhere_else(admitting: Admitting) -> None:
    client = admitting.connecting()
    assert admitting.home.asked[0][1] is None, "whatever is there ends"
    admitting.answer(client, 7)
    assert not isinstance(client.session, RemoteSession)


def test_its_home_hears_what_a_session_that_lasts_asks_for(admitting: Admitting) -> None:
    admitting.connecting(b"a", clean=False, expiry_s=60, will=ConnectWill(b"w", b"gone", 1, False, None))
    admitting.connecting(b"b", version=4, clean=False)
    admitting.connecting(b"c", clean=False)
    five, four, maybe = (opening for _, opening, _ in admitting.home.asked)
    assert five is not None
    assert four is not None
    assert maybe is not None
    assert (five.version, five.clean_start, five.expiry_s, five.zone) == (5, False, 60, "default")
    assert five.will is not None
    assert b"gone" in five.will.packet
    assert (four.version, four.expiry_s, four.will) == (4, Limits().session_expiry_interval, None)
    assert maybe.expiry_s == 0, "it may be there already"
    assert len({five.nonce, four.nonce, maybe.nonce}) == 3


def test_a_session_that_lasts_has_a_front_here(admitting: Admitting) -> None:
    client = admitting.connecting(clean=False, expiry_s=60)
    connack = admitting.answer(client, 7, lasts=True, present=True)
    assert connack[2:4] == b"\1\0", "session present"
    assert isinstance(client.session, RemoteSession)
    (connection,) = admitting.clients.connections()
    assert connection.opening is not None
    assert (connection.client_id, connection.token, connection.opening.expiry_s) == (b"c", 7, 60)
    admitting.fronts.delivered(HOME, 7, PUBLISH)
    admitting.node.turn()
    assert client.packets() == [PUBLISH]


def test_what_a_home_sends_that_was_is_not_heard(admitting: Admitting) -> None:
    client = admitting.lasting(7)
    admitting.fronts.delivered("former@1", 7, PUBLISH)
    admitting.fronts.delivered(HOME, 6, PUBLISH)
    admitting.node.turn()
    assert client.packets() == []


@pytest.mark.parametrize("kept", [-1, 0, 120])
def test_its_home_hears_what_DISCONNECT_said_of_the_will_and_the_expiry(admitting: Admitting, kept: int) -> None:
    client = admitting.lasting(7, will=ConnectWill(b"w", b"gone", 1, False, None))
    if kept < 0:
        client.lost()
    else:
        admitting.node.feed(client, encode.disconnect(5, 0, expiring(kept)))
    assert admitting.home.detached == [(b"c", 7, 3600 if kept < 0 else kept, kept < 0)]
    assert admitting.tokens() == []
    assert len(admitting.fronts) == 0
    assert not admitting.published, "its home does that"


@pytest.mark.parametrize(("present", "expiry_s"), [(True, 60), (False, 0)])
def test_a_client_that_left_before_it_had_its_session_leaves_it_there_unless_it_began_with_it(
    admitting: Admitting, present: bool, expiry_s: int
) -> None:
    client = admitting.connecting(clean=False, expiry_s=60, will=ConnectWill(b"w", b"gone", 1, False, None))
    client.lost()
    admitting.answer(client, 8, lasts=True, present=present)
    assert admitting.home.detached == [(b"c", 8, expiry_s, False)]
    assert len(admitting.fronts) == 0


def test_a_client_whose_session_has_no_room_is_cut_off(admitting: Admitting) -> None:
    client = admitting.lasting(7)
    admitting.clients.overflow(b"c", 6)
    assert client.state != CLOSED
    admitting.clients.overflow(b"c", 7)
    admitting.node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.QUOTA_EXCEEDED)]


def test_a_client_that_is_closed_takes_its_session_with_it(admitting: Admitting) -> None:
    admitting.lasting(7, will=ConnectWill(b"w", b"gone", 1, False, None))
    assert admitting.clients.close(b"c", Reason.ADMINISTRATIVE_ACTION)
    assert not admitting.clients.close(b"c", Reason.ADMINISTRATIVE_ACTION)
    assert admitting.home.detached == [(b"c", 7, 0, True)]


def test_violations_are_a_few_lines_each_one_line(admitting: Admitting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = admitting.connecting(b"a\nforged line")
    for _ in range(REFUSALS_LOGGED_PER_S * 3):
        admitting.clients.violated(client, protocol_error("it did", "MQTT-0"))
    assert 0 < len(caplog.records) <= REFUSALS_LOGGED_PER_S
    assert all("\n" not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("verdict", [ALLOWED, DENIED, ASKED, UNDECIDED])
def test_a_will_is_authorized_before_its_client_is_admitted(admitting: Admitting, verdict: int) -> None:
    admitting.verdicts[b"w"] = ASKED if verdict == UNDECIDED else verdict
    admitting.clients.must_authorize = lambda principal: True
    channel = admitting.node.opened()
    will = ConnectWill(b"w", b"gone", 1, False, None)
    answer = admitting.node.feed(channel, encode.connect(Connect(5, b"c", will=will)))
    if verdict in (ASKED, UNDECIDED):
        admitting.asked[0][2](UNDECIDED if verdict == UNDECIDED else DENIED)
        admitting.node.turn()
        answer = channel.packets()
    if verdict == ALLOWED:
        assert admitting.answer(channel, 7)[3] == 0
    else:
        reason = Reason.SERVER_UNAVAILABLE if verdict == UNDECIDED else Reason.NOT_AUTHORIZED
        assert without_words(answer) == [encode.connack(5, reason)]


@pytest.mark.parametrize(
    "topic",
    [b"$SYS/x", b"$share/g/t", b"$exclusive/t", b"$delayed/0/t", b"$delayed/4294968/t", b"$delayed/5/$share/g/t"],
)
@pytest.mark.parametrize(("version", "reason"), [(5, Reason.TOPIC_NAME_INVALID), (4, Reason.NOT_AUTHORIZED)])
def test_who_leaves_a_will_that_nobody_could_publish_is_refused(
    admitting: Admitting, version: int, reason: int, topic: bytes
) -> None:
    channel = admitting.node.opened()
    will = ConnectWill(topic, b"gone", 1, False, None)
    answer = admitting.node.feed(channel, encode.connect(Connect(version, b"c", will=will)))
    assert without_words(answer) == [encode.connack(version, reason)]
    assert admitting.home.asked == []


WILL = ConnectWill(b"w", b"gone", 1, False, None)


def test_the_will_of_a_session_that_ends_with_its_connection_is_of_its_users_quota(admitting: Admitting) -> None:
    quotas = Quotas(UNLIMITED._replace(queued_bytes=100))
    admitting.clients.usage, admitting.user = quotas.of, b"eve"
    admitting.clients.registrations.owners_keep_wills = lambda: True
    large = ConnectWill(b"w", b"x" * 60, 1, False, None)
    first = admitting.connecting(b"first", will=large)
    assert admitting.answer(first, 7)[3] == 0
    assert quotas.of(b"eve").queued_bytes > 60
    second = admitting.node.opened()
    refused = admitting.node.feed(second, encode.connect(Connect(5, b"second", will=large)))
    assert without_words(refused) == [encode.connack(5, Reason.QUOTA_EXCEEDED)]
    assert admitting.answer(admitting.connecting(b"second"), 8)[3] == 0, "without a will"
    first.lost()
    assert quotas.of(b"eve").queued_bytes == 0
    assert admitting.answer(admitting.connecting(b"third", will=large), 9)[3] == 0


def will_of_a_guest(admitting: Admitting) -> Opening:
    (connection,) = admitting.clients.connections()
    assert connection.opening is not None
    return connection.opening


def test_the_home_of_a_client_whose_session_is_here_has_its_will(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    client = admitting.connecting(will=WILL)
    _, opening, _ = admitting.home.asked[0]
    assert opening is not None
    assert is_clean_session(opening)
    admitting.answer(client, 7)
    assert will_of_a_guest(admitting) == opening, "and so has the next one"
    client.close(Reason.UNSPECIFIED_ERROR)
    assert [will is not None and will.message.origin for will in admitting.left] == [will_origin(opening.nonce)]
    assert admitting.home.detached == [(b"c", 7, -1, False)]
    assert not admitting.clients.registrations.has_will(7)


def test_as_long_as_a_node_does_not_know_that_owners_keep_wills_none_is_told(admitting: Admitting) -> None:
    client = admitting.connecting(will=WILL)
    assert admitting.home.asked[0][1] is None
    admitting.answer(client, 7)
    assert [connection.opening for connection in admitting.clients.connections()] == [None]
    admitting.clients.registrations.owners_keep_wills = lambda: True
    assert is_clean_session(will_of_a_guest(admitting)), "from then on"


def test_who_asked_for_a_session_and_found_none_leaves_its_will_at_its_home(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    client = admitting.connecting(clean=False, will=WILL)
    admitting.answer(client, 7, lasts=False)
    assert is_clean_session(will_of_a_guest(admitting))


@pytest.mark.parametrize("lasts", [True, False])
@pytest.mark.parametrize(
    ("binding", "identifies", "user", "bound_to"),
    [
        ("auto", True, b"jo", b"jo"),
        ("auto", True, b"", b""),
        ("auto", False, b"jo", None),
        ("user", False, b"jo", b"jo"),
        ("none", True, b"jo", None),
    ],
)
def test_a_home_is_told_whose_a_client_id_is(
    admitting: Admitting, lasts: bool, binding: str, identifies: bool, user: bytes, bound_to: bytes | None
) -> None:
    admitting.node.limits.client_id_binding = binding
    admitting.clients.registrations.identifies = lambda: identifies
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.user = user
    client = admitting.connecting(clean=not lasts, expiry_s=60 if lasts else 0)
    [(_, opening, _)] = admitting.home.asked
    assert user_of(opening) == bound_to
    assert opening is None or is_clean_session(opening) != lasts
    admitting.answer(client, 7, lasts=lasts)
    [connection] = admitting.clients.connections()
    assert user_of(connection.opening) == bound_to, "the next home is told, too"


@pytest.mark.parametrize(("version", "said"), [(5, Reason.CLIENT_IDENTIFIER_NOT_VALID), (4, 2)])
def test_a_client_id_of_another_user_is_refused(admitting: Admitting, version: int, said: int) -> None:
    client = admitting.connecting(version=version)
    assert admitting.answer(client, OtherUser("it is another user's"))[3] == said


def test_another_users_connection_here_stays_though_its_home_is_new(admitting: Admitting) -> None:
    admitting.clients.registrations.identifies = lambda: True
    admitting.user = b"jo"
    client = admitting.connecting()
    admitting.answer(client, 7)
    admitting.user = b"eve"
    channel = admitting.node.opened()
    answer = b"".join(admitting.node.feed(channel, encode.connect(Connect(5, b"c", clean_start=True))))
    assert answer[3] == Reason.CLIENT_IDENTIFIER_NOT_VALID
    assert admitting.home.asked == []
    assert admitting.tokens() == [(b"c", 7)]


def test_the_will_of_who_is_sent_to_other_nodes_is_left_to_its_home(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.clients.hold_s = 30.0
    client = admitting.connecting(will=WILL)
    _, opening, _ = admitting.home.asked[0]
    admitting.answer(client, 7)
    client.send_away(True)
    assert admitting.home.evicted == [(b"c", 7, -1, 30.0, opening)]
    assert admitting.home.detached == []
    assert not admitting.published
    client = admitting.lasting(8, will=WILL)
    client.send_away(True)
    assert admitting.home.evicted[1:] == [(b"c", 8, 3600, 30.0, None)]
    assert len(set(admitting.home.nonces)) == 2


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
def test_other_ends_have_no_will_held_back(admitting: Admitting, hold_s: float) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.clients.hold_s = hold_s
    for token, will in ((7, WILL), (8, None)):
        client = admitting.connecting(will=will)
        admitting.answer(client, token)
        client.send_away(to_others=not hold_s or will is None)
    assert admitting.home.evicted == []
    assert [token for _, token, _, _ in admitting.home.detached] == [7, 8]
