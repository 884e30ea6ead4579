"""A session whose client comes back by other rules: nothing is sent before its subscriptions are judged by them."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import bounds
from flockmq.durable.session_fields import AUTHORIZED_RULES, asked_field
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import DURABLE, PRESENT, UNAUTHORIZED
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, another, request

ONE, OTHER = b"rules 01", b"rules 02"


def by(rules: bytes | None, nonce: int = 1) -> messages.SessionRequest:
    return msgspec.structs.replace(request(nonce), rules=rules)


def left_behind(owner: Owner, rules: bytes | None = ONE) -> None:
    """Subscribed to `a/#` and `b`, by these rules; then its client went."""
    owner.open(1, by(rules))
    owner.subscribe(1)
    owner.ask(1, messages.SubscribeQuestion([messages.WantedSubscription(b"b", 1, b"asked for")], b""), 2, 1)
    owner.service.leave(ID, 1, -1, False)
    owner.packets()


def page(answers: list[bytes]) -> messages.Page:
    (answer,) = answers
    return messages.decode_page(answer)


async def test_by_the_same_rules_it_goes_on_at_once(owner: Owner) -> None:
    left_behind(owner)
    owner.take(1)
    assert owner.open(2, by(ONE, 2)) == [DURABLE | PRESENT]
    assert owner.payloads() == [b"1"]


@pytest.mark.parametrize(("before", "now"), [(ONE, OTHER), (None, ONE), (b"", b""), (ONE, b"")])
async def test_by_others_it_waits(owner: Owner, before: bytes | None, now: bytes) -> None:
    left_behind(owner, before)
    owner.take(1)
    assert owner.open(2, by(now, 2)) == [DURABLE | PRESENT | UNAUTHORIZED]
    owner.take(2)
    assert owner.payloads() == []
    assert page(owner.ask(2, messages.SubscriptionsQuestion(0))) == ([(b"a/#", b"a/#", 1), (b"b", b"asked for", 1)], 0)
    (answer,) = owner.ask(2, messages.ReauthorizedQuestion([b"b"], now), 2, 1)
    assert messages.decode_reasons(answer) == [0]
    assert owner.payloads() == [b"1", b"2"], "what may come comes"
    assert page(owner.ask(2, messages.SubscriptionsQuestion(0), 3, 2)) == ([(b"a/#", b"a/#", 1)], 0)


async def test_what_waits_by_what_is_denied_goes_nowhere(redis: Redis, owner: Owner) -> None:
    left_behind(owner)
    owner.take(1, 2)
    owner.open(2, by(OTHER, 2))
    owner.ask(2, messages.ReauthorizedQuestion([b"a/#"], OTHER))
    assert owner.payloads() == []
    counters = owner.router.counters
    assert (counters.dropped_revoked, counters.subscriptions_revoked) == (2, 1)
    assert not [field for field in redis.slot(SLOT).sessions[ID] if field[:1] == b"q"]
    assert redis.slot(SLOT).sessions[ID][AUTHORIZED_RULES] == OTHER
    owner.service.leave(ID, 2, -1, False)
    assert owner.open(3, by(OTHER, 3)) == [DURABLE | PRESENT]


async def test_what_comes_at_qos_0_waits_too(owner: Owner) -> None:
    left_behind(owner)
    owner.open(2, by(OTHER, 2))
    owner.take_run("1")
    owner.take_run("2", topic="b")
    assert owner.packets() == []
    owner.ask(2, messages.ReauthorizedQuestion([b"b"], OTHER))
    owner.take_run("3")
    assert owner.payloads_of_run() == [b"1", b"3"]
    assert owner.router.counters.dropped_revoked == 1


async def test_who_was_not_judged_when_its_node_died_is_the_next_time(owner: Owner) -> None:
    left_behind(owner)
    owner.open(2, by(OTHER, 2))
    owner.service.leave(ID, 2, -1, False)
    assert owner.open(3, by(OTHER, 3)) == [DURABLE | PRESENT | UNAUTHORIZED]


async def test_the_next_owner_waits_for_it_too(redis: Redis, owner: Owner) -> None:
    left_behind(owner)
    owner.take(1)
    owner.open(2, by(OTHER, 2))
    following = await another(redis)
    assert following.service.resume(ID, REPLICANT, 2, by(OTHER, 2), b"")
    assert following.payloads() == []
    following.ask(2, messages.ReauthorizedQuestion([], OTHER))
    assert following.payloads() == [b"1"]


@pytest.mark.parametrize("rules", [None, OTHER])
async def test_the_next_owner_of_who_was_judged_waits_for_nothing(
    redis: Redis, owner: Owner, rules: bytes | None
) -> None:
    """Its node says so; or it didn't hear of that yet, and Redis has it."""
    left_behind(owner)
    owner.open(2, by(OTHER, 2))
    owner.ask(2, messages.ReauthorizedQuestion([], OTHER))
    owner.take(1)
    following = await another(redis)
    assert following.service.resume(ID, REPLICANT, 2, by(rules, 2), b"")
    assert following.payloads() == [b"1"]
    assert redis.slot(SLOT).sessions[ID][asked_field(b"b")] == b"asked for"


async def test_who_may_do_everything_is_judged_when_it_may_no_more(owner: Owner) -> None:
    left_behind(owner)
    assert owner.open(2, by(None, 2)) == [DURABLE | PRESENT]
    owner.service.leave(ID, 2, -1, False)
    assert owner.open(3, by(ONE, 3)) == [DURABLE | PRESENT | UNAUTHORIZED]


async def test_who_has_no_subscription_needs_no_judgement(owner: Owner) -> None:
    owner.open(1, by(ONE))
    owner.service.leave(ID, 1, -1, False)
    assert owner.open(2, by(OTHER, 2)) == [DURABLE | PRESENT]
    owner.service.leave(ID, 2, -1, False)
    assert owner.open(3, by(OTHER, 3)) == [DURABLE | PRESENT]


async def test_many_subscriptions_come_in_pages(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STANDING_PAGE_BYTES", 100)
    owner.open(1, by(ONE))
    filters = [b"filter/%d" % number for number in range(20)]
    owner.ask(1, messages.SubscribeQuestion([messages.WantedSubscription(filter, 1) for filter in filters], b""))
    read: list[bytes] = []
    after, number, pages = 0, 2, 0
    while pages == 0 or after:
        held, after = page(owner.ask(1, messages.SubscriptionsQuestion(after), number, number - 1))
        read += [filter for filter, _, _ in held]
        number, pages = number + 1, pages + 1
    assert read == filters
    assert pages > 1
