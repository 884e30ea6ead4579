"""What users have, and what one may have at most."""

from __future__ import annotations

import gc
from functools import partial

import pytest

from flockmq import bounds
from flockmq.quotas import INFINITE, NOTHING, UNLIMITED, Held, Quotas, default_limits, may_grant, most, over

LIMITS = Held(sessions=4, queued_bytes=1000, subscriptions=4, subscription_bytes=100, retained_bytes=1000)
MIB = 1024 * 1024


def test_what_a_user_has_here_and_elsewhere_counts() -> None:
    quotas = Quotas(LIMITS)
    eve = quotas.of(b"eve")
    eve.began()
    assert eve.may_begin()
    quotas.elsewhere = {b"eve": Held(sessions=3), b"jo": Held(sessions=9)}
    assert not eve.may_begin()
    assert quotas.refused["sessions"] == 1
    assert quotas.total(b"eve") == Held(sessions=4)
    eve.ended()
    assert eve.may_begin()


@pytest.mark.parametrize(
    ("untold", "more", "may"),
    [(0, 1, True), (10, 0, True), (9, 1, True), (10, 1, False), (0, 640, True), (1, 640, False), (-5, 11, True)],
)
def test_a_node_grants_a_share_before_others_are_told(untold: int, more: int, may: bool) -> None:
    assert may_grant(untold, more, 10 * bounds.QUOTA_SHARES) is may


def test_what_is_beyond_a_share_waits_until_others_were_told() -> None:
    quotas = Quotas(LIMITS)
    quotas.must_report = lambda: True
    eve, one, then = quotas.of(b"eve"), Held(sessions=1), list[int]()
    told: list[bool] = []
    quotas.on_growth = lambda: told.append(True)
    assert not eve.must_wait(one)
    eve.began()
    assert eve.must_wait(one)
    assert not eve.must_wait(Held(subscriptions=1)), "of another quota it has nothing"

    def begin(number: int) -> None:
        then.append(number)
        if eve.may_begin():
            eve.began()

    for number in range(4):
        eve.wait(one, partial(begin, number))
    assert (then, bool(told)) == ([], True)
    for number in range(3):
        quotas.largest()
        quotas.report_sent()
        assert then[number] == number
    assert eve.sessions == 4
    assert then == [0, 1, 2, 3], "who would be refused waits no longer"
    assert quotas.waiting == {}


def test_filters_count_by_number_and_by_bytes() -> None:
    quotas = Quotas(LIMITS)
    eve = quotas.of(b"eve")
    eve.subscribed(b"x" * 60)
    assert eve.may_subscribe(b"x" * 40)
    assert not eve.may_subscribe(b"x" * 41)
    for _ in range(3):
        eve.subscribed(b"x")
    assert not eve.may_subscribe(b"x")
    eve.unsubscribed(b"x")
    assert eve.may_subscribe(b"x")
    assert (quotas.refused["subscriptions"], quotas.refused["subscription_bytes"]) == (1, 1)


def test_the_last_of_a_quota_is_for_clients_that_are_connected() -> None:
    eve = Quotas(LIMITS).of(b"eve")
    eve.queued(750)
    assert not eve.may_queue(1, is_away=True)
    assert eve.may_queue(250, is_away=False)
    assert not eve.may_queue(251, is_away=False)


def test_a_user_of_whom_nothing_is_left_takes_no_memory() -> None:
    quotas = Quotas(LIMITS)
    eve = quotas.of(b"eve")
    assert quotas.of(b"eve") is eve
    eve.began()
    eve.ended()
    assert quotas.largest() == {}
    del eve
    gc.collect()
    assert quotas.total(b"eve") == NOTHING
    assert len(quotas._of) == 0


def test_others_hear_of_those_alone_who_have_a_part_of_a_quota() -> None:
    quotas = Quotas(UNLIMITED._replace(subscriptions=1000))
    little, much = quotas.of(b"little"), quotas.of(b"much")
    for _ in range(9):
        little.subscribed(b"x")
        much.subscribed(b"x")
    assert quotas.largest() == {}
    much.subscribed(b"x")
    assert quotas.largest() == {b"much": Held(subscriptions=10, subscription_bytes=10)}
    much.unsubscribed(b"x")
    assert quotas.largest() == {}
    much.subscribed(b"x")
    assert list(quotas.largest()) == [b"much"], "again"


def test_so_many_users_are_told_of_at_most() -> None:
    users = {b"%d" % number: Held(sessions=number) for number in range(10 * bounds.QUOTA_USERS_TOLD_MAX)}
    told = most(users, LIMITS)
    assert len(told) == bounds.QUOTA_USERS_TOLD_MAX
    assert min(held.sessions for held in told.values()) == 9 * bounds.QUOTA_USERS_TOLD_MAX


@pytest.mark.parametrize("redis_bytes", [64 * MIB, 1024 * MIB, 64 * 1024 * MIB])
def test_by_default_no_user_makes_redis_short_of_memory(redis_bytes: int) -> None:
    limits = default_limits(redis_bytes)
    written_takes = 2
    takes = limits.sessions * bounds.SESSION_STORED_BYTES
    takes += (limits.queued_bytes + limits.subscription_bytes) * written_takes
    assert takes <= redis_bytes * bounds.REDIS_SHORT_PART / 2


def test_without_a_maxmemory_bounds_hold() -> None:
    assert default_limits(0) == Held(
        bounds.QUOTA_SESSIONS,
        bounds.QUOTA_QUEUED_BYTES,
        bounds.QUOTA_SUBSCRIPTIONS,
        bounds.QUOTA_SUBSCRIPTION_BYTES,
        bounds.QUOTA_RETAINED_BYTES,
    )


def test_who_is_refused_is_over() -> None:
    assert over(Held(sessions=4), LIMITS) == ["sessions"]
    assert over(Held(sessions=3), LIMITS) == []
    assert over(Held(queued_bytes=700), LIMITS) == ["queued_bytes"], "who is away gets no more"
    assert over(Held(INFINITE, INFINITE), UNLIMITED) == []
