"""Connections of clients: admitted by the owner of the client id, kicked, closed, and told to it when they are gone."""

from __future__ import annotations

import logging

import pytest

from flockmq.bounds import REFUSALS_LOGGED_PER_S
from flockmq.mqtt import encode
from flockmq.mqtt.errors import protocol_error
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.client import ANONYMOUS, Principal
from flockmq.session.limits import Limits
from flockmq.session.remote_session import RemoteSession
from flockmq.session_rpc.messages import AttachError, OwnerUnreachable, Superseded
from unit.broker.node.admitting import OWNER, Admitting, expiring
from unit.broker.protocol.harness import publish, without_words

PUBLISH = publish(5, "t", "hello", qos=1, packet_id=1)


def test_that_a_connection_is_gone_is_said_with_the_nonce_of_its_request(admitting: Admitting) -> None:
    """By which its owner knows whether a later one came."""
    client = admitting.durable(7)
    request = admitting.proxies.request(7)
    assert request is not None
    client.lost()
    early = admitting.connecting(client_id=b"gone before it is admitted", clean=False, expiry_s=60)
    (_, asked, _) = admitting.owner.asked[0]
    assert asked is not None
    early.lost()
    admitting.answer(early, 8, lasts=True)
    assert admitting.owner.nonces == [request.nonce, asked.nonce]


@pytest.mark.parametrize("present", [False, True])
def test_the_owner_is_told_that_the_client_got_the_CONNACK_of_its_new_session(
    admitting: Admitting, present: bool
) -> None:
    admitting.answer(admitting.connecting(client_id=b"new", clean=False, expiry_s=60), 7, lasts=True, present=present)
    early = admitting.connecting(client_id=b"early", clean=False, expiry_s=60)
    early.lost()
    admitting.answer(early, 8, lasts=True)
    assert admitting.owner.confirmed == ([] if present else [(b"new", 7)])


@pytest.mark.parametrize("has_rules", [False, True])
def test_anonymous_clients_share_a_principal_where_no_rules_apply(admitting: Admitting, has_rules: bool) -> None:
    """Decisions are cached by the principal."""
    admitting.clients.must_authorize = lambda _: has_rules
    client = admitting.connecting()
    admitting.clients.authenticated(client, Connect(5, b"c"), own := Principal(b""))
    assert client.principal is (own if has_rules else ANONYMOUS)


def test_a_client_is_admitted_when_its_owner_says_so(admitting: Admitting) -> None:
    client = admitting.connecting()
    connack = admitting.answer(client, 7)
    assert connack[0] == 0x20
    assert connack[3] == 0
    assert admitting.clients.by_id == {b"c": client}
    assert admitting.events == [("connected", b"c", 0, 5)]
    assert admitting.flushes == 1


@pytest.mark.parametrize("error", [Superseded("newer"), OwnerUnreachable("away")])
def test_a_client_that_its_owner_refuses_hears_that_the_server_is_unavailable(
    admitting: Admitting, error: AttachError
) -> None:
    client = admitting.connecting()
    assert admitting.answer(client, error) == encode.connack(5, Reason.SERVER_UNAVAILABLE)
    assert client.state == CLOSED
    assert not admitting.clients.by_id
    assert not admitting.events


def test_a_client_that_left_while_its_owner_was_asked_is_detached(admitting: Admitting) -> None:
    client = admitting.connecting()
    client.lost()
    assert admitting.answer(client, 7) == b""
    assert admitting.owner.detached == [(b"c", 7, -1, False)]
    assert not admitting.clients.by_id
    assert not admitting.events


@pytest.mark.parametrize("lasts", [False, True])
def test_a_client_that_allows_no_packet_as_large_as_its_CONNACK_was_never_connected(
    admitting: Admitting, lasts: bool
) -> None:
    own = expiring(60 if lasts else 0)
    own.maximum_packet_size = 10
    will = ConnectWill(b"t", b"gone", 0, False, None)
    client = admitting.node.opened()
    admitting.node.feed(client, encode.connect(Connect(5, b"c", clean_start=not lasts, will=will, properties=own)))
    assert admitting.answer(client, 7, lasts=lasts) == b""
    assert client.state == CLOSED
    assert admitting.owner.detached == [(b"c", 7, -1, False)]
    assert admitting.left == [None]
    assert not admitting.owner.confirmed
    assert not admitting.events
    assert not admitting.clients.by_id
    assert len(admitting.proxies) == 0


def test_a_kicked_client_hears_why_and_its_owner_that_it_is_gone(admitting: Admitting) -> None:
    client = admitting.connecting()
    admitting.answer(client, 7)
    assert not admitting.clients.kick(b"c", 6)
    assert admitting.clients.kick(b"c", 7)
    admitting.node.turn()
    assert client.packets() == [encode.disconnect(5, Reason.SESSION_TAKEN_OVER)]
    assert admitting.owner.detached == [(b"c", 7, -1, False)]
    assert not admitting.clients.kick(b"c", 7)
    assert [event[0] for event in admitting.events] == ["connected", "taken_over", "disconnected"]
    assert admitting.events[-1] == ("disconnected", b"c", Reason.SESSION_TAKEN_OVER, 5)


def test_a_client_that_is_still_to_be_admitted_cannot_be_kicked(admitting: Admitting) -> None:
    admitting.connecting()
    assert not admitting.clients.kick(b"c", 7)


def test_the_end_of_an_older_connection_leaves_the_newer_one(admitting: Admitting) -> None:
    older = admitting.connecting()
    admitting.answer(older, 7)
    newer = admitting.connecting()
    admitting.answer(newer, 8)
    assert older.state == CLOSED, "its new owner has not heard of it"
    older.lost()
    assert admitting.clients.by_id == {b"c": newer}
    assert admitting.tokens() == [(b"c", 8)]
    assert admitting.owner.detached == [(b"c", 7, -1, False)]


def test_MQTT_3_1_3_7_an_assigned_client_id_is_told_and_is_like_any_other(admitting: Admitting) -> None:
    channel = admitting.node.opened()
    assert admitting.node.feed(channel, encode.connect(Connect(5, b""))) == []
    assigned = channel.client_id()
    assert admitting.owner.asked[0][0] == assigned
    assert assigned in admitting.answer(channel, 7)
    channel.lost()
    assert admitting.owner.detached == [(assigned, 7, -1, False)]


def test_a_session_that_ends_with_its_connection_is_opened_nowhere_else(admitting: Admitting) -> None:
    client = admitting.connecting()
    assert admitting.owner.asked[0][1] is None, "whatever is there ends"
    admitting.answer(client, 7)
    assert not isinstance(client.session, RemoteSession)


def test_its_owner_hears_what_a_durable_session_asks_for(admitting: Admitting) -> None:
    admitting.connecting(b"a", clean=False, expiry_s=60, will=ConnectWill(b"w", b"gone", 1, False, None))
    admitting.connecting(b"b", version=4, clean=False)
    admitting.connecting(b"c", clean=False)
    five, four, maybe = (request for _, request, _ in admitting.owner.asked)
    assert five is not None
    assert four is not None
    assert maybe is not None
    assert (five.version, five.clean_start, five.expiry_s, five.zone) == (5, False, 60, "default")
    assert five.will is not None
    assert b"gone" in five.will.packet
    assert (four.version, four.expiry_s, four.will) == (4, Limits().session_expiry_interval, None)
    assert maybe.expiry_s == 0, "it may be there already"
    assert len({five.nonce, four.nonce, maybe.nonce}) == 3


def test_a_durable_session_has_a_session_proxy_here(admitting: Admitting) -> None:
    client = admitting.connecting(clean=False, expiry_s=60)
    connack = admitting.answer(client, 7, lasts=True, present=True)
    assert connack[2:4] == b"\1\0", "session present"
    assert isinstance(client.session, RemoteSession)
    (connection,) = admitting.clients.connections()
    assert connection.request is not None
    assert (connection.client_id, connection.token, connection.request.expiry_s) == (b"c", 7, 60)
    admitting.proxies.delivered(OWNER, 7, PUBLISH)
    admitting.node.turn()
    assert client.packets() == [PUBLISH]


def test_what_an_owner_sends_that_was_is_not_heard(admitting: Admitting) -> None:
    client = admitting.durable(7)
    admitting.proxies.delivered("former@1", 7, PUBLISH)
    admitting.proxies.delivered(OWNER, 6, PUBLISH)
    admitting.node.turn()
    assert client.packets() == []


@pytest.mark.parametrize("kept", [-1, 0, 120])
def test_its_owner_hears_what_DISCONNECT_said_of_the_will_and_the_expiry(admitting: Admitting, kept: int) -> None:
    client = admitting.durable(7, will=ConnectWill(b"w", b"gone", 1, False, None))
    if kept < 0:
        client.lost()
    else:
        admitting.node.feed(client, encode.disconnect(5, 0, expiring(kept)))
    assert admitting.owner.detached == [(b"c", 7, 3600 if kept < 0 else kept, kept < 0)]
    assert admitting.tokens() == []
    assert len(admitting.proxies) == 0
    assert not admitting.published, "its owner does that"


@pytest.mark.parametrize(("present", "expiry_s"), [(True, -1), (False, 0)])
def test_a_client_that_left_before_it_had_its_session_leaves_it_there_unless_it_began_with_it(
    admitting: Admitting, present: bool, expiry_s: int
) -> None:
    client = admitting.connecting(clean=False, expiry_s=60, will=ConnectWill(b"w", b"gone", 1, False, None))
    client.lost()
    admitting.answer(client, 8, lasts=True, present=present)
    assert admitting.owner.detached == [(b"c", 8, expiry_s, False)]
    assert len(admitting.proxies) == 0


def test_a_client_whose_session_has_no_room_is_cut_off(admitting: Admitting) -> None:
    client = admitting.durable(7)
    admitting.clients.overflow(b"c", 6)
    assert client.state != CLOSED
    admitting.clients.overflow(b"c", 7)
    admitting.node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.QUOTA_EXCEEDED)]


def test_a_client_that_is_closed_takes_its_session_with_it(admitting: Admitting) -> None:
    admitting.durable(7, will=ConnectWill(b"w", b"gone", 1, False, None))
    assert admitting.clients.close(b"c", Reason.ADMINISTRATIVE_ACTION)
    assert not admitting.clients.close(b"c", Reason.ADMINISTRATIVE_ACTION)
    assert admitting.owner.detached == [(b"c", 7, 0, True)]


def test_violations_are_a_few_lines_each_one_line(admitting: Admitting, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = admitting.connecting(b"a\nforged line")
    for _ in range(REFUSALS_LOGGED_PER_S * 3):
        admitting.clients.violated(client, protocol_error("it did", "MQTT-0"))
    assert 0 < len(caplog.records) <= REFUSALS_LOGGED_PER_S
    assert all("\n" not in record.getMessage() for record in caplog.records)
