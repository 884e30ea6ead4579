"""What is asked in which order, what is kept for how long, and what a change of rules forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

import pytest

from flockmq.auth.authorizer import Authorizer
from flockmq.auth.rule_sources import HttpRules, LogRules, Source, encoded
from flockmq.auth.rules import Rules, Subject
from flockmq.clock import SYSTEM
from flockmq.config.auth_settings import AuthorizationSettings, CacheSettings, HttpSourceSettings, RuleSettings
from flockmq.protocol.client import (
    ALLOWED,
    ANONYMOUS,
    ASKED,
    DENIED,
    PUBLISH,
    SUBSCRIBE,
    UNDECIDED,
    PeerInfo,
    Principal,
)
from flockmq.rlog.schema import RULES
from unit.broker.auth.harness import FakeLog

PEER = PeerInfo("192.0.2.1", 1, "tcp:default")
JO = Principal(b"jo")
CONNECTION = "jo's"


class Counted:
    """A source that counts how often it is asked."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked = 0

    def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        self.asked += 1
        return self.answer


def may(authorizer: Authorizer, topic: str, principal: Principal = JO, client: str = "c", action: int = PUBLISH) -> int:
    return authorizer.check(client.encode(), principal, lambda: PEER, action, topic.encode(), 0, False)


def test_the_first_source_with_something_to_say_decides() -> None:
    silent, yes, no = Counted(None), Counted(True), Counted(False)
    assert may(Authorizer(AuthorizationSettings(), [silent, yes, no]), "a") == ALLOWED
    assert may(Authorizer(AuthorizationSettings(), [silent, no, yes]), "a") == DENIED
    assert (silent.asked, yes.asked, no.asked) == (2, 1, 1)


def test_where_nothing_fits() -> None:
    silent: list[Source] = [Counted(None)]
    assert may(Authorizer(AuthorizationSettings(), silent), "a") == DENIED, "there are rules to go by"
    assert may(Authorizer(AuthorizationSettings(no_match="allow"), silent), "a") == ALLOWED
    assert may(Authorizer(AuthorizationSettings(), []), "a") == ALLOWED
    assert may(Authorizer(AuthorizationSettings(no_match="deny"), []), "a") == DENIED


def test_a_clients_own_rules_come_first_and_make_up_all_it_may_where_there_are_no_others() -> None:
    own = Principal(
        b"jo", rules=Rules([RuleSettings(permit="deny", topics=("a",)), RuleSettings(permit="allow", topics=("b",))])
    )
    yes = Counted(True)
    authorizer = Authorizer(AuthorizationSettings(), [yes])
    assert [may(authorizer, topic, own) for topic in ("a", "b", "c")] == [DENIED, ALLOWED, ALLOWED]
    assert yes.asked == 1
    alone = Authorizer(AuthorizationSettings(), [])
    assert [may(alone, topic, own) for topic in ("a", "b", "c")] == [DENIED, ALLOWED, DENIED]


def test_who_needs_no_check() -> None:
    boss, own = Principal(b"boss", superuser=True), Principal(b"jo", rules=Rules([]))
    assert not Authorizer(AuthorizationSettings(), []).must_check(ANONYMOUS)
    assert Authorizer(AuthorizationSettings(), []).must_check(own)
    assert Authorizer(AuthorizationSettings(no_match="deny"), []).must_check(ANONYMOUS)
    strict = Authorizer(AuthorizationSettings(), [Counted(False)])
    assert strict.must_check(ANONYMOUS)
    assert not strict.must_check(boss)
    assert may(strict, "a", boss) == ALLOWED


def test_answers_are_kept_for_their_time_and_no_longer() -> None:
    now = [0.0]
    source = Counted(True)
    authorizer = Authorizer(AuthorizationSettings(cache=CacheSettings(ttl=10.0)), [source], lambda: now[0])
    assert [may(authorizer, "a"), may(authorizer, "a")] == [ALLOWED, ALLOWED]
    assert source.asked == 1
    assert authorizer.results["kept"] == 1
    may(authorizer, "a", action=SUBSCRIBE)
    assert source.asked == 2, "another action is another question"
    source.answer = False
    now[0] = 9.9
    assert may(authorizer, "a") == ALLOWED
    now[0] = 10.0
    assert may(authorizer, "a") == DENIED


def test_each_client_keeps_so_many_answers_the_oldest_goes() -> None:
    source = Counted(True)
    authorizer = Authorizer(AuthorizationSettings(cache=CacheSettings(max_size=2)), [source])
    for topic in ("a", "b", "c"):
        may(authorizer, topic)
    may(authorizer, "b")
    assert source.asked == 3
    may(authorizer, "a")
    assert source.asked == 4


def test_without_a_ttl_nothing_is_kept() -> None:
    source = Counted(True)
    authorizer = Authorizer(AuthorizationSettings(cache=CacheSettings(ttl=0.0)), [source])
    may(authorizer, "a")
    may(authorizer, "a")
    assert source.asked == 2
    assert authorizer.cached == 0


def test_nobody_gets_what_was_kept_for_another_under_the_same_client_id() -> None:
    rules = Rules([RuleSettings(permit="allow", username="boss")])
    authorizer = Authorizer(AuthorizationSettings(), [rules])
    assert may(authorizer, "a", Principal(b"boss")) == ALLOWED
    assert may(authorizer, "a", Principal(b"jo")) == DENIED
    assert may(authorizer, "a", Principal(b"boss"), client="") == ALLOWED
    assert may(authorizer, "a", Principal(b"jo"), client="") == DENIED


def test_what_is_kept_goes_with_its_client_and_with_no_other_of_its_client_id() -> None:
    jo, stranger = Principal(b"jo"), Principal(b"")
    authorizer = Authorizer(AuthorizationSettings(), [Rules([RuleSettings(permit="allow", username="jo")])])
    assert may(authorizer, "a", jo) == ALLOWED
    authorizer.forget(b"c", stranger)
    assert authorizer.cached == 1
    authorizer.forget(b"c", jo)
    assert authorizer.cached == 0


class Logged:
    """An authorizer whose rules are in the log."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.changes = 0
        self.authorizer = Authorizer(AuthorizationSettings(), [LogRules(self._rules)])
        self.authorizer.on_change = self._changed
        self.log.on_change(RULES.name, self.authorizer)

    def _rules(self, key: tuple[str, str]) -> bytes | None:
        return self.log.tables.rules.get(key)

    def _changed(self) -> None:
        self.changes += 1

    def put(self, of: str, who: str, *rules: RuleSettings) -> None:
        self.log.put([RULES.put((of, who), encoded(rules))])


def test_rules_of_the_client_id_then_of_the_user_then_of_all() -> None:
    logged = Logged()
    logged.put("all", "", RuleSettings(permit="allow", topics=("a",)))
    logged.put("username", "jo", RuleSettings(permit="deny", topics=("a", "b")))
    logged.put("clientid", "c", RuleSettings(permit="allow", topics=("b",)))
    assert may(logged.authorizer, "a", ANONYMOUS, client="x") == ALLOWED
    assert may(logged.authorizer, "a", client="x") == DENIED
    assert may(logged.authorizer, "a") == DENIED
    assert may(logged.authorizer, "b") == ALLOWED
    assert may(logged.authorizer, "c") == DENIED


def test_a_fingerprint_is_another_when_other_rules_hold_for_the_client() -> None:
    logged = Logged()
    authorizer = logged.authorizer
    jo, jos_address = Principal(b"jo"), PeerInfo("10.0.0.1", 1, "tcp:default")
    elsewhere = PeerInfo("10.0.0.2", 1, "tcp:default")

    def fingerprint(principal: Principal = jo, peer: PeerInfo = jos_address) -> bytes | None:
        return authorizer.fingerprint(b"c", principal, lambda: peer)

    seen = [fingerprint()]
    assert fingerprint(peer=elsewhere) == seen[0], "no rule asks where it is"
    for of, who in (("all", ""), ("username", "jo"), ("clientid", "c")):
        logged.put(of, who, RuleSettings(permit="deny", topics=(of,)))
        seen.append(fingerprint())
    logged.put("username", "ann", RuleSettings(permit="deny"))
    logged.put("clientid", "d", RuleSettings(permit="deny"))
    assert fingerprint() == seen[-1], "these are others'"
    seen += [fingerprint(Principal(b"jo", rules=Rules([RuleSettings(permit="allow")]))), fingerprint(Principal(b"ann"))]
    logged.put("all", "", RuleSettings(permit="deny", ipaddr=("10.0.0.2",)))
    seen += [fingerprint(), fingerprint(peer=elsewhere)]
    assert len(set(seen)) == len(seen)
    assert {len(one or b"") for one in seen} == {8}
    assert fingerprint(Principal(b"jo", superuser=True)) is None
    assert Authorizer(AuthorizationSettings(), ()).fingerprint(b"c", jo, lambda: jos_address) is None


def test_of_who_is_away_names_alone_are_known() -> None:
    logged = Logged()
    authorizer = logged.authorizer

    def fingerprint(principal: Principal) -> bytes | None:
        return authorizer.fingerprint(b"c", principal, lambda: PeerInfo("10.0.0.1", 1, "tcp:default"))

    logged.put("username", "jo", RuleSettings(permit="deny", topics=("a",)))
    logged.put("username", "ann", RuleSettings(permit="allow"))
    by_name = authorizer.fingerprint_by_name(b"c", b"jo")
    assert by_name == fingerprint(Principal(b"jo"))
    assert by_name != fingerprint(Principal(b"jo", rules=Rules([RuleSettings(permit="allow")])))
    assert authorizer.is_denied_by_name(b"c", b"jo", SUBSCRIBE, b"a", 0)
    assert not authorizer.is_denied_by_name(b"c", b"ann", SUBSCRIBE, b"a", 0)
    logged.put("all", "", RuleSettings(permit="deny", ipaddr=("10.0.0.2",)))
    assert authorizer.fingerprint_by_name(b"c", b"jo") == b""
    assert Authorizer(AuthorizationSettings(), ()).fingerprint_by_name(b"c", b"jo") == b""


def test_a_change_of_rules_forgets_what_it_may_have_changed() -> None:
    logged = Logged()
    logged.put("username", "jo", RuleSettings(permit="allow"))
    assert may(logged.authorizer, "a") == ALLOWED
    logged.put("username", "jo", RuleSettings(permit="deny"))
    assert may(logged.authorizer, "a") == DENIED
    logged.put("clientid", "c", RuleSettings(permit="allow"))
    assert may(logged.authorizer, "a") == ALLOWED
    logged.log.put([RULES.delete(("clientid", "c"))])
    assert may(logged.authorizer, "a") == DENIED
    assert logged.changes == 4


def test_a_new_table_is_read_anew() -> None:
    logged = Logged()
    logged.put("username", "jo", RuleSettings(permit="allow"))
    assert may(logged.authorizer, "a") == ALLOWED
    fresh = logged.log.tables.shards["auth"].fresh()
    logged.log.tables.swap(fresh)
    assert may(logged.authorizer, "a") == DENIED
    logged.put("username", "jo", RuleSettings(permit="allow"))
    assert may(logged.authorizer, "a") == ALLOWED, "the listener went with the table"


def test_rules_of_a_newer_node_permit_nothing(caplog: pytest.LogCaptureFixture) -> None:
    logged = Logged()
    logged.log.put([RULES.put(("username", "jo"), b'[{"permit":"allow","moon":"full"}]')])
    logged.put("all", "", RuleSettings(permit="allow"))
    assert may(logged.authorizer, "a") == DENIED
    assert "can't be read, and permit nothing" in caplog.text


class Asked(HttpRules):
    """A service whose answers a test gives."""

    def __init__(self) -> None:
        super().__init__(HttpSourceSettings(url="http://service"), "here", SYSTEM)
        self.answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

    async def ask(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
        return await self.answer


async def answered(authorizer: Authorizer, service: Asked, meanwhile: Callable[[], None]) -> int:
    """What a client hears whose answer comes after something else happened."""
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    assert may(authorizer, "a") == ASKED
    authorizer.ask(b"c", JO, lambda: PEER, PUBLISH, b"a", 0, False, CONNECTION, heard.set_result)
    meanwhile()
    service.answer.set_result(True)
    return await heard


async def test_an_answer_is_kept_if_its_client_stays_and_the_rules_do() -> None:
    def make() -> tuple[Authorizer, Asked]:
        service = Asked()
        return Authorizer(AuthorizationSettings(), [service]), service

    authorizer, service = make()
    assert await answered(authorizer, service, lambda: None) == ALLOWED
    assert may(authorizer, "a") == ALLOWED
    authorizer, service = make()
    assert await answered(authorizer, service, lambda: authorizer.forget(b"c", JO)) == ALLOWED
    assert authorizer.cached == 0, "nothing is kept of who is gone"
    authorizer, service = make()
    assert await answered(authorizer, service, lambda: authorizer.put(("all", ""), b"", None)) == ALLOWED
    assert may(authorizer, "a") == ASKED, "it was asked under other rules"


async def test_what_stands_behind_a_service_is_judged_in_the_users_turn_and_what_stands_before_it_once() -> None:
    service, before, behind = (
        Asked(),
        Counted(None),
        Rules([RuleSettings(permit="deny", topics=("a",)) for _ in range(10)]),
    )
    own = Principal(
        b"jo", rules=Rules([RuleSettings(permit="deny", topics=("#",), username="else*") for _ in range(20)])
    )
    authorizer = Authorizer(AuthorizationSettings(), [before, service, behind])
    turns: list[bytes] = []

    async def in_turn(user: bytes, judge: Callable[[], bool | None]) -> bool | None:
        turns.append(user)
        return judge()

    authorizer.in_turn = in_turn
    assert may(authorizer, "a", own) == ASKED
    looked_at = authorizer.looked_at
    assert looked_at >= 20, "its own are judged before the service is asked"
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    authorizer.ask(b"c", own, lambda: PEER, PUBLISH, b"a", 0, False, CONNECTION, heard.set_result)
    service.answer.set_result(None)
    assert await heard == DENIED
    assert (before.asked, turns) == (1, [b"jo"])
    assert 0 < authorizer.looked_at - looked_at < 20


async def test_a_source_that_fails_permits_nothing_denies_nothing_and_leaves_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Asked()
    authorizer = Authorizer(AuthorizationSettings(), [service])
    heard: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    service.answer.set_exception(RuntimeError("a defect"))
    authorizer.ask(b"c", JO, lambda: PEER, PUBLISH, b"a", 0, False, CONNECTION, heard.set_result)
    assert await asyncio.wait_for(heard, 5.0) == UNDECIDED
    assert "a defect" in caplog.text


@pytest.mark.parametrize("no_match", [None, "allow", "deny"])
@pytest.mark.parametrize("sources", [[], [Counted(None)]])
@pytest.mark.parametrize("filter", ["$SYS/#", "$SYS/brokers/+/clients/#", "$SYS/+/n1/+/c/connected", "$SYS/brokers/#"])
def test_only_superusers_hear_of_other_clients(
    no_match: Literal["allow", "deny"] | None, sources: list[Source], filter: str
) -> None:
    authorizer = Authorizer(AuthorizationSettings(no_match=no_match), sources)
    assert may(authorizer, filter, action=SUBSCRIBE) == DENIED
    assert may(authorizer, filter, ANONYMOUS, action=SUBSCRIBE) == DENIED
    assert may(authorizer, filter, Principal(b"root", superuser=True), action=SUBSCRIBE) == ALLOWED


@pytest.mark.parametrize(
    "filter", ["$SYS/broker/#", "$SYS/brokers", "$SYS/brokers/+/stats/#", "$SYS/brokers/n1/uptime"]
)
def test_what_tells_of_nobody_is_for_everybody(filter: str) -> None:
    assert may(Authorizer(AuthorizationSettings(), []), filter, action=SUBSCRIBE) == ALLOWED


def test_a_rule_may_say_who_else_hears_of_clients() -> None:
    rules = Rules([RuleSettings(permit="allow", action="subscribe", topics=("$SYS/#",), username="jo")])

    class Source:
        def decide(self, subject: Subject, action: int, topic: bytes, qos: int, retain: bool) -> bool | None:
            return rules.decide(subject, action, topic, qos, retain)

    authorizer = Authorizer(AuthorizationSettings(no_match="allow"), [Source()])
    assert may(authorizer, "$SYS/brokers/+/clients/#", action=SUBSCRIBE) == ALLOWED
    assert may(authorizer, "$SYS/brokers/+/clients/#", Principal(b"ann"), action=SUBSCRIBE) == DENIED


def test_other_settings_make_earlier_decisions_void() -> None:
    changes: list[tuple[str, str] | None] = []
    authorizer = Authorizer(AuthorizationSettings(no_match="allow"), [Counted(None)])
    authorizer.on_rules = changes.append
    assert may(authorizer, "a") == ALLOWED
    authorizer.configure(AuthorizationSettings(no_match="deny", deny_action="disconnect"))
    assert (may(authorizer, "a"), authorizer.disconnects, authorizer.revoking_disconnects) == (DENIED, True, False)
    authorizer.configure(AuthorizationSettings(no_match="deny", revoked_subscriptions="disconnect"))
    assert (authorizer.disconnects, authorizer.revoking_disconnects) == (False, True)
    assert changes == [None], "only another no_match decides otherwise"


def test_who_needed_no_check_may_need_one_under_other_settings() -> None:
    authorizer = Authorizer(AuthorizationSettings(), [])
    assert not authorizer.must_check(ANONYMOUS)
    authorizer.configure(AuthorizationSettings(no_match="deny"))
    assert authorizer.must_check(ANONYMOUS)
