"""Authentication by AUTH packets: who proves itself is let in, and stays the same user."""

from __future__ import annotations

from flockmq.auth.scram import Verifier
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.rlog.schema import USERS, User
from unit.broker.auth.test_scram import proved
from unit.broker.node.gate import FIRST, METHOD, OPEN, SCRAM, Make, auth, begun, challenge, connack, said
from unit.broker.protocol.harness import without_words


async def test_an_exchange_lets_in_who_proves_itself(gate: Make) -> None:
    node = gate(SCRAM)
    client, answer = begun(node)
    question = challenge(answer)
    (packet,) = node.node.feed(client, auth(proved("pw", FIRST, question)))
    assert (packet[0], packet[3]) == (0x20, 0)
    assert METHOD in packet
    assert b"v=" in packet
    assert client.principal.username == b"jo"


async def test_an_exchange_that_fails_ends_in_a_refusal(gate: Make) -> None:
    node = gate(SCRAM)
    client, answer = begun(node)
    wrong = proved("wrong", FIRST, challenge(answer))
    assert without_words(node.node.feed(client, auth(wrong))) == [encode.connack(5, Reason.BAD_USER_NAME_OR_PASSWORD)]
    assert client.has_ended()
    assert begun(node, None)[1] == [encode.connack(5, Reason.BAD_USER_NAME_OR_PASSWORD)]


async def test_who_leaves_amid_an_exchange_leaves_nothing(gate: Make) -> None:
    node = gate(SCRAM)
    client, _ = begun(node)
    client.lost()
    assert not node.access._exchanges


async def test_a_method_that_there_isnt_is_refused(gate: Make) -> None:
    assert connack(gate(OPEN), properties=said(FIRST))[1] == [encode.connack(5, Reason.BAD_AUTHENTICATION_METHOD)]


async def test_reauthentication_is_of_the_same_user(gate: Make) -> None:
    node = gate(SCRAM)
    client, answer = begun(node)
    node.node.feed(client, auth(proved("pw", FIRST, challenge(answer))))
    question = challenge(node.node.feed(client, auth(FIRST, Reason.RE_AUTHENTICATE)))
    (done,) = node.node.feed(client, auth(proved("pw", FIRST, question)))
    assert (done[0], done[2]) == (0xF0, 0)
    node.rlog.put([USERS.put("ann", User("", str(Verifier.made("pw", 4096))))])
    first = FIRST.replace(b"jo", b"ann")
    question = challenge(node.node.feed(client, auth(first, Reason.RE_AUTHENTICATE)))
    answer = node.node.feed(client, auth(proved("pw", first, question)))
    assert without_words(answer) == [encode.disconnect(5, Reason.NOT_AUTHORIZED)]


async def test_an_auth_packet_that_continues_nothing_is_a_violation(gate: Make) -> None:
    node = gate(SCRAM)
    client, answer = begun(node)
    node.node.feed(client, auth(proved("pw", FIRST, challenge(answer))))
    assert without_words(node.node.feed(client, auth(b"x"))) == [encode.disconnect(5, Reason.PROTOCOL_ERROR)]
