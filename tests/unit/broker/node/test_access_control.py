"""Who is let in: bans, plugins, the chain; and what bans do to those who are inside."""

from __future__ import annotations

import asyncio
import time

import jwt
import pytest

from flockmq.auth.rule_sources import encoded
from flockmq.auth.stored_authorization import SentMessage
from flockmq.auth.stored_authorization import encode as encode_authorization
from flockmq.config.auth_settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    BuiltInSourceSettings,
    JwtSettings,
    RuleSettings,
)
from flockmq.config.values import Secret
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.packets import ConnectWill as PacketWill
from flockmq.mqtt.reason import Reason
from flockmq.node.access_control import EXPIRY_CHECK_S
from flockmq.protocol.channel import CONNECTED
from flockmq.protocol.client import ALLOWED, DENIED, UNKNOWN, PeerInfo, Principal
from flockmq.rlog.schema import BANS, RULES, Ban
from unit.broker.auth.test_scram import proved
from unit.broker.node.gate import FIRST, SCRAM, Make, auth, begun, challenge, changed, connack, is_let_in
from unit.broker.protocol.harness import Client, without_words

FOR_GOOD = Ban(0.0, "", "", 0.0)


async def test_a_banned_client_is_refused_before_anybody_is_asked(gate: Make) -> None:
    node = gate()
    node.plugins.known = Principal(b"jo")
    node.rlog.put([BANS.put(("clientid", "c"), FOR_GOOD)])
    assert connack(node)[1] == [encode.connack(5, Reason.BANNED)]
    assert node.auth.chain.results["banned"] == 1


@pytest.mark.parametrize("version", [4, 5])
async def test_a_node_whose_clients_others_take_lets_nobody_in(gate: Make, version: int) -> None:
    node = gate()
    node.access.sends_away = True
    client = node.node.opened()
    answer = node.node.feed(client, encode.connect(Connect(version, b"c")))
    assert answer == [encode.connack(version, Reason.USE_ANOTHER_SERVER)]
    assert client.has_ended()


async def test_who_reset_its_connection_behind_its_words_is_not_let_in_for_want_of_an_address(
    gate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Client, "peer", lambda client: PeerInfo(UNKNOWN, 0, "tcp:default"))
    client, answer = connack(gate(AuthenticationSettings()))
    assert answer == []
    assert client.has_ended()


async def test_a_plugin_decides_before_the_chain(gate: Make) -> None:
    node = gate(AuthenticationSettings(allow_anonymous=False))
    node.plugins.known = Principal(b"jo")
    client, answer = connack(node)
    assert is_let_in(answer)
    assert client.principal.username == b"jo"
    node.plugins.known = Reason.QUOTA_EXCEEDED
    assert connack(node)[1] == [encode.connack(5, Reason.QUOTA_EXCEEDED)]
    node.plugins.known = None
    assert connack(node)[1] == [encode.connack(5, Reason.NOT_AUTHORIZED)]


async def test_a_name_that_is_found_out_is_held_against_the_bans_too(gate: Make) -> None:
    node = gate()
    node.rlog.put([BANS.put(("username", "found-out"), FOR_GOOD)])
    node.plugins.known = Principal(b"found-out")
    assert connack(node, user_name=b"other")[1] == [encode.connack(5, Reason.BANNED)]


@pytest.mark.parametrize("key", [("clientid", "c"), ("username", "jo"), ("clientid_pattern", "?")])
async def test_a_ban_sends_away_who_is_here(gate: Make, key: tuple[str, str]) -> None:
    node = gate()
    client, _ = connack(node, user_name=b"jo")
    node.rlog.put([BANS.put(("clientid", "other"), FOR_GOOD), BANS.put(key, FOR_GOOD)])
    kicking = node.access._kicking
    assert kicking is not None
    await kicking
    node.node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.NOT_AUTHORIZED)]


@pytest.mark.parametrize(("letters", "is_within"), [(1003, True), (1004, False), (60_000, False)])
async def test_a_client_id_that_is_made_of_a_name_is_no_longer_than_one_that_a_client_chooses(
    gate: Make, letters: int, is_within: bool
) -> None:
    tokens = JwtSettings(algorithm="hmac-based", secret=Secret("s" * 32), clientid="${username}-*")
    node = gate(AuthenticationSettings(chain=(tokens,)))
    token = jwt.encode({}, "s" * 32, "HS256").encode()
    client = node.node.opened()
    named = Connect(5, b"", user_name=b"n" * letters, password=token)
    answer = node.node.feed(client, encode.connect(named))
    if is_within:
        assert client.state == CONNECTED
        assert len(client.client_id()) == client.limits.max_clientid_len
    else:
        assert without_words(answer) == [encode.connack(5, Reason.CLIENT_IDENTIFIER_NOT_VALID)]


async def test_a_ban_that_comes_amid_authentication_holds(gate: Make) -> None:
    node = gate(SCRAM)
    client, answer = begun(node)
    node.rlog.put([BANS.put(("clientid", "c"), FOR_GOOD)])
    last = node.node.feed(client, auth(proved("pw", FIRST, challenge(answer))))
    assert without_words(last) == [encode.connack(5, Reason.BANNED)]


async def test_a_ban_that_comes_before_connack_ends_the_connection_at_once(gate: Make) -> None:
    node = gate()
    node.meanwhile = lambda: node.rlog.put([BANS.put(("clientid", "c"), FOR_GOOD)])
    _, answer = connack(node)
    assert answer[0][0] == 0x20
    assert answer[1:] == [encode.disconnect(5, Reason.NOT_AUTHORIZED)]


@pytest.mark.parametrize("plugin", [None, ALLOWED, DENIED])
@pytest.mark.parametrize("rules", [True, False])
async def test_a_will_is_left_to_who_may_have_it_when_the_connection_ends(
    gate: Make, rules: bool, plugin: int | None
) -> None:
    node = gate(authorization=AuthorizationSettings(sources=(BuiltInSourceSettings(),), no_match="allow"))
    client, _ = connack(node, will=PacketWill(b"$delayed/5/w", b"gone", 0, False, None))
    will = client.will
    assert will is not None
    will.authorization = encode_authorization(node.access.authorization(client, SentMessage(b"$delayed/5/w", 0, False)))
    assert node.access.may_leave(client, will)
    if rules:
        node.rlog.put([RULES.put(("all", ""), encoded((RuleSettings(permit="deny", topics=("w",)),)))])
    node.plugins.verdict = plugin
    assert node.access.may_leave(client, will) == (not rules if plugin is None else plugin == ALLOWED)
    assert plugin is None or node.plugins.asked[-1] == (b"", b"w")
    client.principal = Principal(b"", superuser=True)
    assert node.access.may_leave(client, will)


@pytest.mark.parametrize("banned", [True, False])
async def test_who_is_sent_away_leaves_no_will(gate: Make, banned: bool) -> None:
    node = gate()
    client, _ = connack(node, will=PacketWill(b"w", b"gone", 0, False, None))
    assert client.will is not None
    if banned:
        await changed(node, BANS.put(("clientid", "c"), FOR_GOOD))
    else:
        client.lost()
    assert [message.topic for message in node.published] == ([] if banned else [b"w"])
    assert client.router.counters.dropped_revoked == banned


async def test_a_client_goes_when_its_right_runs_out(gate: Make) -> None:
    node = gate()
    node.plugins.known = Principal(b"jo", expires_at_s=time.time() + 0.01)
    client, answer = connack(node)
    assert is_let_in(answer)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(node.access.watch(), 2 * EXPIRY_CHECK_S)
    node.node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.MAXIMUM_CONNECT_TIME)]


async def test_a_second_connection_that_comes_to_nothing_does_not_prolong_the_right_of_the_first(
    gate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = gate()
    node.plugins.known = Principal(b"jo", expires_at_s=time.time() + 0.01)
    client, _ = connack(node)
    monkeypatch.setattr(node.access, "_admit", lambda *_: None)
    second, _ = connack(node)
    second.refuse(Reason.SERVER_UNAVAILABLE)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(node.access.watch(), 2 * EXPIRY_CHECK_S)
    node.node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.MAXIMUM_CONNECT_TIME)]
