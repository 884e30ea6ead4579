"""Wills of connections: who may leave one, and who publishes it."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect, ConnectWill
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, UNDECIDED
from flockmq.quotas import UNLIMITED, Quotas
from flockmq.session_rpc.clean_session_wills import will_origin
from flockmq.session_rpc.messages import SessionRequest, is_clean_session
from unit.broker.node.admitting import Admitting
from unit.broker.protocol.harness import without_words


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
    assert admitting.owner.asked == []


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


def will_of_a_guest(admitting: Admitting) -> SessionRequest:
    (connection,) = admitting.clients.connections()
    assert connection.request is not None
    return connection.request


def test_the_owner_of_a_client_whose_session_is_here_has_its_will(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    client = admitting.connecting(will=WILL)
    _, request, _ = admitting.owner.asked[0]
    assert request is not None
    assert is_clean_session(request)
    admitting.answer(client, 7)
    assert will_of_a_guest(admitting) == request, "and so has the next one"
    client.close(Reason.UNSPECIFIED_ERROR)
    assert [will is not None and will.message.origin for will in admitting.left] == [will_origin(request.nonce)]
    assert admitting.owner.detached == [(b"c", 7, 0, False)], "-1 with a nonce is of one that was refused"
    assert not admitting.clients.registrations.has_will(7)


def test_as_long_as_a_node_does_not_know_that_owners_keep_wills_none_is_told(admitting: Admitting) -> None:
    client = admitting.connecting(will=WILL)
    assert admitting.owner.asked[0][1] is None
    admitting.answer(client, 7)
    assert [connection.request for connection in admitting.clients.connections()] == [None]
    admitting.clients.registrations.owners_keep_wills = lambda: True
    assert is_clean_session(will_of_a_guest(admitting)), "from then on"


def test_who_asked_for_a_session_and_found_none_leaves_its_will_at_its_owner(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    client = admitting.connecting(clean=False, will=WILL)
    admitting.answer(client, 7, lasts=False)
    assert is_clean_session(will_of_a_guest(admitting))


def test_the_will_of_who_is_sent_to_other_nodes_is_left_to_its_owner(admitting: Admitting) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.clients.hold_s = 30.0
    client = admitting.connecting(will=WILL)
    _, request, _ = admitting.owner.asked[0]
    admitting.answer(client, 7)
    client.send_away(True)
    assert admitting.owner.evicted == [(b"c", 7, -1, 30.0, request)]
    assert admitting.owner.detached == []
    assert not admitting.published
    client = admitting.durable(8, will=WILL)
    client.send_away(True)
    assert admitting.owner.evicted[1:] == [(b"c", 8, 3600, 30.0, None)]
    assert len(set(admitting.owner.nonces)) == 2


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
def test_other_ends_have_no_will_held_back(admitting: Admitting, hold_s: float) -> None:
    admitting.clients.registrations.owners_keep_wills = lambda: True
    admitting.clients.hold_s = hold_s
    for token, will in ((7, WILL), (8, None)):
        client = admitting.connecting(will=will)
        admitting.answer(client, token)
        client.send_away(to_others=not hold_s or will is None)
    assert admitting.owner.evicted == []
    assert [token for _, token, _, _ in admitting.owner.detached] == [7, 8]
