"""Why a client might publish what is published when it is gone, and whether it still may."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
import pytest

from flockmq.auth.authorizer import Authorizer
from flockmq.auth.bans import Bans, client_key
from flockmq.auth.rule_sources import HttpRules, LogRules, Source, encoded
from flockmq.auth.rules import Rules, Subject
from flockmq.auth.stored_authorization import (
    ITS_OWN,
    KNOWN,
    RETAIN,
    DeferredAuthorization,
    SentMessage,
    StoredAuthorization,
    decoded,
    encode,
)
from flockmq.auth.user_revocation import disabled
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import AuthorizationSettings, HttpSourceSettings, Permission, RuleSettings
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, ClientCertificate, PeerInfo, Principal
from flockmq.rlog.entry import Op
from flockmq.rlog.schema import BANS, RULES, USERS, Ban, User
from unit.broker.auth.harness import FakeLog

PEER: Final = PeerInfo("192.0.2.1", 1, "tcp:default", certificate=ClientCertificate("cn-1", "CN=cn-1"))
WILL: Final = SentMessage(b"left/c", 1, False)
ROW: Final = User("hash")
DENY: Final = RULES.put(("all", ""), encoded((RuleSettings(permit="deny", topics=("left/#",)),)))


class Asked(HttpRules):
    def __init__(self, answer: bool | Exception | None) -> None:
        super().__init__(HttpSourceSettings(url="http://localhost/"), "here", SYSTEM)
        self.answer = answer

    async def ask(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Node:
    """What a node knows when something is due: the log."""

    def __init__(self, *sources: Source | HttpRules, no_match: Permission | None = "allow") -> None:
        self.log = FakeLog()
        self.log.put([USERS.put("jo", ROW), USERS.put("c", ROW)])
        bans = Bans(SYSTEM.wall)
        self.log.on_change(BANS.name, bans)
        log_rules = LogRules(self.log.tables.rules.get)
        self.authorizer = Authorizer(AuthorizationSettings(no_match=no_match), [*sources, log_rules])
        self.log.on_change(RULES.name, self.authorizer)
        self.deferred_authorization = DeferredAuthorization(bans, self.log.tables.users.get, self.authorizer)

    def made(
        self, principal: Principal, said: SentMessage = WILL, published: bytes = b"", *, by_plugin: bool = False
    ) -> StoredAuthorization:
        made = self.deferred_authorization.make(b"c", principal, PEER, said, published, by_plugin=by_plugin)
        return decoded(encode(made), b"", None)

    def judge(self, authorization: StoredAuthorization, *ops: Op, said: SentMessage = WILL) -> int:
        """When these changes were made."""
        self.log.put(ops)
        return self.deferred_authorization.check(authorization, said)


JO: Final = Principal(b"jo", user_id=b"jo", user=ROW)
BOSS: Final = Principal(b"jo", superuser=True, user_id=b"jo", user=ROW)
C: Final = Principal(b"", user_id=b"c", user=ROW)
TOKEN: Final = Principal(b"jo", rules=Rules([RuleSettings(permit="allow", topics=("left/#",))]))
OUTSIDER: Final = Principal(b"jo", superuser=True)
"""Whom no row let in."""
FOR_GOOD: Final = Ban(0.0, "", "", 0.0)


@pytest.mark.parametrize(
    ("who", "change", "may"),
    [
        (JO, USERS.put("jo", User("another hash")), True),
        (JO, DENY, False),
        (JO, RULES.put(("username", "jo"), encoded((RuleSettings(permit="deny"),))), False),
        (JO, RULES.put(("username", "ann"), encoded((RuleSettings(permit="deny"),))), True),
        (JO, RULES.put(("all", ""), encoded((RuleSettings(permit="deny", ipaddr=("192.0.2.0/24",)),))), False),
        (
            JO,
            RULES.put(("all", ""), encoded((RuleSettings(permit="deny", topics=("left/${cert_common_name}",)),))),
            True,
        ),
        (JO, RULES.put(("all", ""), encoded((RuleSettings(permit="deny", retain=True),))), True),
        (JO, USERS.delete("jo"), False),
        (JO, USERS.put("jo", disabled(ROW)), False),
        (JO, USERS.delete("c"), True),
        (JO, BANS.put(("peerhost", "192.0.2.1"), FOR_GOOD), False),
        (JO, BANS.put(client_key("jo", "c", "192.0.2.1"), FOR_GOOD), False),
        (JO, BANS.put(client_key("jo", "c", "192.0.2.2"), FOR_GOOD), True),
        (C, USERS.delete("c"), False),
        (C, USERS.delete("jo"), True),
        (TOKEN, DENY, True),
        (TOKEN, USERS.delete("jo"), True),
        (TOKEN, BANS.put(("username", "jo"), FOR_GOOD), False),
        (OUTSIDER, DENY, True),
        (OUTSIDER, USERS.put("jo", disabled(ROW)), True),
        (BOSS, USERS.put("jo", User("another hash", is_superuser=True)), True),
        (BOSS, USERS.delete("jo"), False),
    ],
)
def test_what_changed_meanwhile_counts(who: Principal, change: Op, may: bool) -> None:
    node = Node()
    authorization = node.made(who)
    assert node.judge(authorization) == ALLOWED
    assert node.judge(authorization, change) == (ALLOWED if may else DENIED)


def test_who_was_a_superuser_goes_by_the_rules_now() -> None:
    node = Node()
    node.log.put([USERS.put("jo", User("hash", is_superuser=True)), DENY])
    authorization = node.made(BOSS)
    assert node.judge(authorization) == ALLOWED
    assert node.judge(authorization, USERS.put("jo", ROW)) == DENIED
    assert node.judge(authorization, RULES.delete(("all", ""))) == ALLOWED


def test_what_a_plugin_allowed_stands() -> None:
    node = Node()
    assert node.judge(node.made(JO, by_plugin=True), DENY) == ALLOWED


def test_where_no_rule_says_anything_it_is_as_it_is_for_who_is_connected() -> None:
    authorization = Node().made(JO)
    assert Node(no_match="deny").judge(authorization) == DENIED
    assert Node(no_match=None).judge(authorization) == DENIED, "there are rules to go by"


def test_it_is_the_topic_that_the_client_said_which_is_judged() -> None:
    node = Node()
    node.log.put([RULES.put(("all", ""), encoded((RuleSettings(permit="deny", topics=("tenant/#",)),)))])
    delayed = SentMessage(b"$delayed/5/left/c", 1, False)
    authorization = node.made(JO, delayed, b"$delayed/5/tenant/left/c")
    said = authorization.sent_message(b"tenant/left/c", 1, False)
    assert said.topic == b"left/c"
    assert node.judge(authorization, said=said) == ALLOWED
    assert node.made(JO, delayed, delayed.topic).topic == b"", "the message has it"


def test_whether_it_was_retained_is_as_the_client_said_it() -> None:
    authorization = Node().made(JO, SentMessage(b"a", 1, True))
    assert authorization.why & RETAIN
    assert authorization.sent_message(b"a", 1, False).retain
    assert authorization.subject().value("cert_common_name") == "cn-1"
    assert StoredAuthorization(b"c", b"jo").sent_message(b"a", 1, True).retain, (
        "of what nobody knows it is as the message is"
    )


@pytest.mark.parametrize("raw", [b"", b"?", b"\x93\x01\x02\x03"])
def test_of_whom_nobody_knows_why_bans_alone_are_looked_at(raw: bytes) -> None:
    node = Node(no_match="deny")
    authorization = decoded(raw, b"c", None)
    assert node.judge(authorization, DENY, USERS.delete("jo"), USERS.delete("c")) == ALLOWED
    assert node.judge(authorization, BANS.put(("clientid", "c"), FOR_GOOD)) == DENIED


def test_what_is_nobodys_is_banned_by_nobody() -> None:
    node = Node()
    assert node.judge(decoded(b"", b"", None), BANS.put(("clientid_pattern", "*"), FOR_GOOD)) == ALLOWED


def test_a_later_release_may_append_to_a_stored_authorization() -> None:
    fields = [*msgspec.structs.astuple(StoredAuthorization(b"c", b"jo", "192.0.2.1", KNOWN | ITS_OWN)), "more"]
    assert decoded(msgspec.msgpack.encode(fields), b"", None).why == KNOWN | ITS_OWN


@pytest.mark.parametrize(
    ("answer", "may"), [(True, True), (False, False), (None, True), (RuntimeError("a defect"), True)]
)
async def test_another_service_is_asked_and_stands_by_its_word_until_it_takes_it_back(
    answer: bool | Exception | None, may: bool
) -> None:
    node = Node(Asked(answer))
    authorization = node.made(JO)
    assert node.judge(authorization) == ASKED
    assert await node.deferred_authorization.is_still_allowed(authorization, WILL) is may


async def test_who_is_denied_before_is_not_asked_about() -> None:
    node = Node(LogRules(lambda key: encoded((RuleSettings(permit="deny"),)) if key[0] == "all" else None), Asked(True))
    assert node.judge(node.made(JO)) == DENIED
    await asyncio.sleep(0)
