"""What users have, and what one may have at most."""

from __future__ import annotations

import gc
from functools import partial

import pytest

from flockmq import bounds
from flockmq.quotas import INFINITE, NOTHING, UNLIMITED, Held, Quotas, may_grant, over

LIMITS = Held(sessions=4, queued_bytes=1000, subscriptions=4, subscription_bytes=100, retained_bytes=1000)


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
    told = Quotas(LIMITS).most(users)
    assert len(told) == bounds.QUOTA_USERS_TOLD_MAX
    assert min(held.sessions for held in told.values()) == 9 * bounds.QUOTA_USERS_TOLD_MAX


def test_who_is_refused_is_over() -> None:
    assert over(Held(sessions=4), LIMITS) == ["sessions"]
    assert over(Held(sessions=3), LIMITS) == []
    assert over(Held(queued_bytes=700), LIMITS) == ["queued_bytes"], "who is away gets no more"
    assert over(Held(INFINITE, INFINITE), UNLIMITED) == []


# Users with quotas of their own.


def test_a_users_own_quota_comes_before_the_settings_and_only_for_it() -> None:
    quotas = Quotas(LIMITS)
    quotas.set_own(b"small", (1, None, None, None, None))
    quotas.set_own(b"large", (INFINITE, 5000, None, None, None))
    assert quotas.limits_of(b"small") == LIMITS._replace(sessions=1)
    assert quotas.limits_of(b"large") == LIMITS._replace(sessions=INFINITE, queued_bytes=5000)
    assert quotas.limits_of(b"eve") == LIMITS
    small, large, eve = (quotas.of(user) for user in (b"small", b"large", b"eve"))
    small.began()
    assert not small.may_begin()
    for usage in (large, eve):
        for _ in range(4):
            usage.began()
    assert (large.may_begin(), eve.may_begin()) == (True, False)
    assert (large.may_queue(5000, is_away=False), eve.may_queue(1001, is_away=False)) == (True, False)


def test_what_a_users_own_quota_does_not_say_follows_the_settings() -> None:
    quotas = Quotas(LIMITS)
    quotas.set_own(b"eve", (None, None, None, None, 7))
    assert quotas.limits_of(b"eve") == LIMITS._replace(retained_bytes=7)
    quotas.limit(LIMITS._replace(sessions=9))
    assert quotas.limits_of(b"eve") == LIMITS._replace(sessions=9, retained_bytes=7)
    assert quotas.may_store(b"eve", 7)
    assert not quotas.may_store(b"eve", 8)


def test_a_quota_that_changes_counts_from_the_next_request_on() -> None:
    quotas = Quotas(LIMITS)
    eve = quotas.of(b"eve")
    for _ in range(3):
        eve.subscribed(b"x")
    quotas.set_own(b"eve", (None, None, 2, None, None))
    assert not eve.may_subscribe(b"x")
    assert eve.subscriptions == 3, "what it has stays"
    quotas.set_own(b"eve", None)
    assert eve.may_subscribe(b"x")


def test_where_clients_have_no_users_nobody_has_limits() -> None:
    quotas = Quotas(None)
    quotas.set_own(b"eve", (1, 1, 1, 1, 1))
    assert quotas.limits_of(b"eve") == UNLIMITED
    quotas.limit(UNLIMITED)
    assert quotas.limits_of(b"eve") == Held(1, 1, 1, 1, 1), "settings of infinity are another thing"


def test_others_hear_of_who_has_a_part_of_its_own_quota() -> None:
    quotas = Quotas(UNLIMITED._replace(sessions=100_000))
    told: list[bool] = []
    quotas.on_growth = lambda: told.append(True)
    eve = quotas.of(b"eve")
    eve.began()
    assert (quotas.largest(), told) == ({}, [])
    quotas.set_own(b"eve", (10, None, None, None, None))
    assert quotas.largest() == {b"eve": Held(sessions=1)}
    assert told, "soon"
    quotas.set_own(b"eve", None)
    assert quotas.largest() == {}


def test_who_stored_a_part_of_its_own_quota_is_large() -> None:
    quotas = Quotas(UNLIMITED)
    quotas.retained.change(b"eve", 20)
    assert quotas.retained.large == set()
    quotas.set_own(b"eve", (None, None, None, None, 1000))
    assert quotas.retained.large == {b"eve"}
    quotas.set_own(b"eve", None)
    assert quotas.retained.large == set()


def test_those_with_the_largest_part_of_what_each_may_have_come_first() -> None:
    users = {b"%d" % number: Held(sessions=2) for number in range(bounds.QUOTA_USERS_TOLD_MAX)}
    quotas = Quotas(LIMITS)
    quotas.set_own(b"small", (1, None, None, None, None))
    assert b"small" in quotas.most({b"small": Held(sessions=1)} | users)
    assert b"small" in quotas.most(users | {b"small": Held(sessions=1)})


def test_a_bootstrap_replaces_all_own_quotas_and_users_are_looked_at_again() -> None:
    quotas = Quotas(LIMITS)
    quotas.must_recheck = False
    quotas.set_own(b"jo", (1, None, None, None, None))
    eve = quotas.of(b"eve")
    quotas.swap_own({b"eve": (2, None, None, None, None)})
    assert (quotas.limits_of(b"jo"), quotas.limits_of(b"eve").sessions) == (LIMITS, 2)
    assert quotas.must_recheck
    assert quotas.known_users() == [b"eve"]
    assert eve.may_begin()


def test_a_shared_filter_counts_for_what_its_group_takes_in_all_nodes() -> None:
    quotas = Quotas(UNLIMITED._replace(subscription_bytes=bounds.SHARED_FILTER_BYTES + 20))
    usage = quotas.of(b"eve")
    assert usage.may_subscribe(b"$share/g/a")
    usage.subscribed(b"$share/g/a")
    assert usage.may_subscribe(b"a")
    assert not usage.may_subscribe(b"$share/h/a")
    usage.unsubscribed(b"$share/g/a")
    assert usage.here().subscription_bytes == 0
