"""Clients at the gate of a node: bans, plugins, the chain, exchanges of AUTH packets; and what reaches them inside."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from flockmq.auth.rule_sources import encoded
from flockmq.auth.scram import Verifier
from flockmq.auth.service import AuthService
from flockmq.auth.stored_authorization import SentMessage
from flockmq.auth.stored_authorization import encode as encode_authorization
from flockmq.auth.unknown_user_secret import UnknownUserSecret
from flockmq.auth.user_revocation import disabled
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import (
    AuthenticationSettings,
    AuthorizationSettings,
    BuiltInSourceSettings,
    FileSourceSettings,
    FlappingSettings,
    RuleSettings,
    ScramSettings,
)
from flockmq.mqtt import encode
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Auth as AuthPacket
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.packets import ConnectWill as PacketWill
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.node.access_control import EXPIRY_CHECK_S, AccessControl
from flockmq.protocol.channel import Channel
from flockmq.protocol.client import ALLOWED, DENIED, SUBSCRIBE, UNKNOWN, PeerInfo, Principal
from flockmq.rlog.entry import Op
from flockmq.rlog.schema import BANS, RULES, USERS, Ban, User
from flockmq.session.local_session import LocalSession
from unit.broker.auth.harness import FakeLog
from unit.broker.auth.test_scram import proved
from unit.broker.protocol.harness import Client, Node, Port, publish, without_words

METHOD = b"SCRAM-SHA-256"
FIRST = b"n,,n=jo,r=abc"
FOR_GOOD = Ban(0.0, "", "", 0.0)
SCRAM = AuthenticationSettings(chain=(ScramSettings(),))
OPEN = AuthenticationSettings(allow_anonymous=True)


class Hooks:
    """Plugins that say nothing, unless a test has them say something."""

    def __init__(self) -> None:
        self.known: Principal | int | None = None
        self.verdict: int | None = None
        self.asked: list[tuple[bytes, bytes]] = []

    def connecting(self, channel: Channel, connect: Connect) -> int:
        return Reason.SUCCESS

    def authenticate(self, channel: Channel, connect: Connect) -> Principal | int | None:
        return self.known

    def must_authenticate(self) -> bool:
        return self.known is not None

    def must_authorize(self) -> bool:
        return self.verdict is not None

    def authorize(
        self, channel: Channel, action: int, prefix: bytes, topic: bytes, qos: int, retain: bool
    ) -> int | None:
        self.asked.append((prefix, topic))
        return self.verdict


class Gate(Port):
    """A node whose clients meet its access, as `node.Node` has them meet."""

    def __init__(
        self, authentication: AuthenticationSettings, authorization: AuthorizationSettings, flapping: FlappingSettings
    ) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.channels: list[Channel] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens between a client's authentication and its CONNACK."""
        self.rlog = FakeLog()
        self.plugins = Hooks()
        rlog = self.rlog.as_rlog()
        unknown_user_secret = UnknownUserSecret(rlog, b"p", lambda: True, bytes)
        self.auth = AuthService(
            authentication,
            authorization,
            flapping,
            rlog,
            unknown_user_secret=unknown_user_secret,
            is_leader=lambda: False,
        )
        self.access = AccessControl(
            self.auth, self.plugins, self._admitted, self._find, lambda: self.channels, self.flush_soon, SYSTEM
        )

    def admit(self, channel: Channel, connect: Connect) -> None:
        self.access.admit(channel, connect)

    def continued(self, channel: Channel, packet: AuthPacket) -> None:
        self.access.continued(channel, packet)

    def authorize(
        self, channel: Channel, action: int, topic: bytes, qos: int, retain: bool, done: Callable[[int], None]
    ) -> int:
        return self.access.authorize(channel, action, topic, qos, retain, done)

    def gone(self, channel: Channel, session: LocalSession, will: Will | None) -> None:
        self.access.gone(channel, session.client_id)
        super().gone(channel, session, will)

    def _admitted(self, channel: Channel, connect: Connect, principal: Principal, extra: Properties | None) -> None:
        self.meanwhile()
        channel.principal = principal
        channel.set_must_authorize(self.access.must_authorize(principal))
        assert channel.session is not None
        channel.admitted(connect, 7, channel.session, False, extra)
        self.channels.append(channel)
        self.access.connected(channel)

    def _find(self, client_id: bytes) -> Channel | None:
        return next((one for one in self.channels if one.client_id() == client_id and not one.has_ended()), None)


Make = Callable[..., Gate]


@pytest.fixture
async def gate() -> AsyncIterator[Make]:
    made: list[Gate] = []

    def make(
        authentication: AuthenticationSettings = OPEN,
        authorization: AuthorizationSettings = AuthorizationSettings(),  # noqa: B008
        flapping: FlappingSettings = FlappingSettings(),  # noqa: B008
    ) -> Gate:
        made.append(Gate(authentication, authorization, flapping))
        return made[-1]

    yield make
    for one in made:
        one.auth.pool.close()


def connack(gate: Gate, **more: Any) -> tuple[Client, list[bytes]]:
    client = gate.node.opened()
    answer = gate.node.feed(client, encode.connect(Connect(5, b"c", **more)))
    return client, without_words(answer)


def is_let_in(answer: list[bytes]) -> bool:
    return len(answer) == 1 and answer[0][0] == 0x20 and answer[0][3] == 0


def auth(data: bytes | None, reason: int = Reason.CONTINUE_AUTHENTICATION) -> bytes:
    return encode.auth(reason, said(data))


def said(data: bytes | None) -> Properties:
    properties = Properties()
    properties.authentication_method = METHOD
    properties.authentication_data = data
    return properties


def begun(gate: Gate, data: bytes | None = FIRST) -> tuple[Client, list[bytes]]:
    gate.rlog.put([USERS.put("jo", User("", str(Verifier.made("pw", 4096))))])
    return connack(gate, properties=said(data))


def challenge(packets: list[bytes]) -> bytes:
    (packet,) = packets
    assert (packet[0], packet[2]) == (0xF0, Reason.CONTINUE_AUTHENTICATION)
    return packet[packet.index(b"r=abc") :]


# --- connecting -----------------------------------------------------------------------------------------------------


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


# --- exchanges ------------------------------------------------------------------------------------------------------


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


# --- inside ---------------------------------------------------------------------------------------------------------


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


GONE = [encode.disconnect(5, Reason.NOT_AUTHORIZED)]
AS_IT_WAS = User("hash", "verifier", is_superuser=True)


async def changed(node: Gate, *ops: Op) -> None:
    node.rlog.put(ops)
    if node.access._kicking is not None:
        await node.access._kicking
    node.node.turn()


@pytest.mark.parametrize(
    ("op", "goes"),
    [
        (USERS.delete("jo"), True),
        (USERS.put("jo", User("other", "verifier", is_superuser=True)), True),
        (USERS.put("jo", User("hash", "other", is_superuser=True)), True),
        (USERS.put("jo", User("hash", "verifier", is_superuser=False)), True),
        (USERS.put("jo", disabled(AS_IT_WAS)), True),
        (USERS.put("jo", AS_IT_WAS), False),
        (USERS.delete("ann"), False),
    ],
)
async def test_a_user_that_loses_something_is_sent_away(gate: Make, op: Op, goes: bool) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS), USERS.put("ann", User("hash"))])
    node.plugins.known = Principal(b"jo", superuser=True, user_id=b"jo", user=AS_IT_WAS)
    client, _ = connack(node)
    await changed(node, op)
    assert without_words(client.packets()) == (GONE if goes else [])


async def test_what_comes_to_a_user_sends_nobody_away(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", User("hash"))])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=User("hash"))
    client, _ = connack(node)
    await changed(node, USERS.put("jo", User("hash", "verifier", is_superuser=True)))
    assert not client.packets()


async def test_only_those_go_whom_the_log_let_in(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo")
    client, _ = connack(node)
    await changed(node, USERS.delete("jo"))
    assert not client.packets(), "a token said who it is"


async def test_a_user_deleted_before_connack_goes_at_once(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=AS_IT_WAS)
    node.meanwhile = lambda: node.rlog.put([USERS.delete("jo")])
    assert connack(node)[1][1:] == GONE


async def test_a_table_that_was_read_anew_is_held_against_everybody(gate: Make) -> None:
    node = gate()
    node.rlog.put([USERS.put("jo", AS_IT_WAS)])
    node.plugins.known = Principal(b"jo", user_id=b"jo", user=AS_IT_WAS)
    client, _ = connack(node)
    node.auth.user_revocation.swap(node.auth.user_revocation.fresh())
    await changed(node)
    assert not client.packets(), "nothing was lost"


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


async def test_a_plugin_has_the_first_word_and_rules_the_next(gate: Make) -> None:
    node = gate(OPEN, AuthorizationSettings(sources=(BuiltInSourceSettings(),)))
    client, _ = connack(node)
    refused = [encode.pub_ack(4, 5, 1, Reason.NOT_AUTHORIZED)]
    assert node.node.feed(client, publish(5, "a", qos=1, packet_id=1)) == refused
    node.plugins.verdict = ALLOWED
    assert node.node.feed(client, publish(5, "a", qos=1, packet_id=1)) != refused
    node.plugins.verdict = DENIED
    assert node.node.feed(client, publish(5, "b", qos=1, packet_id=1)) == refused


@pytest.mark.parametrize("prefix", ["$share/g/", "$exclusive/", "$delayed/5/", "$share/g/$exclusive/"])
async def test_rules_and_plugins_judge_what_stands_behind_prefixes(gate: Make, prefix: str) -> None:
    node = gate(
        OPEN, AuthorizationSettings(sources=(FileSourceSettings(rules=(RuleSettings(permit="allow", topics=("t",)),)),))
    )
    client, _ = connack(node)
    verdicts = [
        node.access.authorize(client, SUBSCRIBE, f"{prefix}{topic}".encode(), 0, False, lambda _: None)
        for topic in ("t", "x", "#")
    ]
    assert verdicts == [ALLOWED, DENIED, DENIED]
    assert node.plugins.asked == [(prefix.encode(), topic) for topic in (b"t", b"x", b"#")]


async def test_who_may_do_everything_is_never_asked_about(gate: Make) -> None:
    node = gate(OPEN, AuthorizationSettings(no_match="deny"))
    node.plugins.verdict = DENIED
    assert not node.access.must_authorize(Principal(b"boss", superuser=True))
    assert node.access.must_authorize(Principal(b"jo"))


async def test_only_ends_that_are_the_clients_doing_count_as_flapping(gate: Make) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    for reason in (Reason.SERVER_SHUTTING_DOWN, Reason.SESSION_TAKEN_OVER, Reason.QUOTA_EXCEEDED) * 3:
        connack(node)[0].close(reason)
        assert len(node.rlog.tables.bans) == 0
    for _ in range(2):
        connack(node)[0].lost()
    assert node.rlog.tables.bans.get(("client", '["","c",""]')) is not None
    assert connack(node)[1] == [encode.connack(5, Reason.BANNED)]
    assert not node.access._hosts


async def test_nobody_has_another_one_banned_by_coming_and_going_in_its_name(
    gate: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    at, who = PeerInfo("192.0.2.66", 1, "tcp:default"), Principal(b"mallory")
    monkeypatch.setattr(Client, "peer", lambda client: at)
    node.plugins.known = who
    for _ in range(2):
        connack(node)[0].lost()
    assert len(node.rlog.tables.bans) == 1
    assert connack(node)[1] == [encode.connack(5, Reason.BANNED)]
    who = node.plugins.known = Principal(b"victim")
    assert is_let_in(connack(node)[1]), "another user of this client id and address"
    node.plugins.known, at = Principal(b"mallory"), PeerInfo("192.0.2.1", 1, "tcp:default")
    assert is_let_in(connack(node)[1]), "the same user and client id elsewhere"


@pytest.mark.parametrize(
    ("binding", "username", "counts"), [("user", b"jo", True), ("user", b"", False), ("none", b"jo", False)]
)
async def test_who_is_put_off_counts_where_only_its_own_user_can_do_so(
    gate: Make, binding: str, username: bytes, counts: bool
) -> None:
    node = gate(OPEN, flapping=FlappingSettings(enable=True, max_count=2))
    node.node.limits.client_id_binding = binding
    node.plugins.known = Principal(username)
    for _ in range(2):
        connack(node)[0].close(Reason.SESSION_TAKEN_OVER)
    assert len(node.rlog.tables.bans) == counts


async def test_nothing_is_kept_of_clients_while_flapping_isnt_minded(gate: Make) -> None:
    node = gate(OPEN)
    connack(node)
    assert not node.access._hosts
