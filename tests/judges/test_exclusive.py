"""The judge of exclusive subscriptions: one client has the filter, and somebody gets it that is free."""

from __future__ import annotations

from typing import Final

import pytest

from judges.judge import NOT_GRANTED, REFUSED_ITS_OWN, TWO_HOLDERS, Rules
from judges.made_up import Script
from load.history import RedisLost, RulesChanged

LOCK: Final = "$exclusive/t"


def held(*, lasts: bool = True, expiry_s: float = 3600.0) -> Script:
    """By `one`, and `two` is there."""
    script = Script(tells=True)
    script.connect("one", lasts=lasts, clean_start=not lasts, expiry_s=expiry_s)
    script.connect("two", node="b")
    script.subscribe("one", LOCK)
    return script


def asks(script: Script, client: str, seconds: float, reason: int = 0x97) -> None:
    """Once a second, in vain."""
    for _ in range(int(seconds)):
        script.tick(0.8)
        script.ask_for(client, LOCK)
        script.deny(client, LOCK, reason)


def test_another_hears_no_until_it_is_given_back() -> None:
    script = held()
    asks(script, "two", 60)
    script.unsubscribe("one", LOCK)
    script.subscribe("two", LOCK)
    assert script.found() == {}


def test_two_holders_are_one_too_many() -> None:
    assert held_by_both().found() == {TWO_HOLDERS: 1}


@pytest.mark.parametrize(("is_one_release", "found"), [(False, {}), (True, {TWO_HOLDERS: 1})])
def test_where_releases_are_mixed_it_goes_with_its_owner(is_one_release: bool, found: dict[str, int]) -> None:
    script = held()
    script.fault("upgrade core", "core-1")
    script.subscribe("two", LOCK)
    assert script.found(Rules(is_one_release=is_one_release)) == found
    assert held_by_both().found(Rules(is_one_release=False)) == {TWO_HOLDERS: 1}


def held_by_both() -> Script:
    script = held()
    script.subscribe("two", LOCK)
    return script


def test_each_filter_has_a_holder_of_its_own() -> None:
    script = held()
    script.subscribe("two", "$exclusive/s")
    assert script.found() == {}


def test_who_sent_unsubscribe_has_given_it_back_answered_or_not() -> None:
    script = held()
    script.unsubscribe("one", LOCK, answered=False)
    script.subscribe("two", LOCK)
    assert script.found() == {}


def test_who_is_away_has_it_until_its_session_ends() -> None:
    script = held()
    script.close("one")
    script.tick(60.0)
    script.subscribe("two", LOCK)
    assert script.found() == {TWO_HOLDERS: 1}


@pytest.mark.parametrize(("away_s", "found"), [(5.0, {TWO_HOLDERS: 1}), (11.0, {})])
def test_a_session_that_expires_gives_it_back(away_s: float, found: dict[str, int]) -> None:
    script = held(expiry_s=10.0)
    script.close("one")
    script.tick(away_s)
    script.subscribe("two", LOCK)
    assert script.found() == found


def test_a_session_that_its_client_ends_gives_it_back() -> None:
    script = held()
    script.disconnect("one", ends=True)
    script.subscribe("two", LOCK)
    assert script.found() == {}
    script = held()
    script.ask("one", clean_start=True)
    script.subscribe("two", LOCK)
    assert script.found() == {}


def test_a_clean_session_gives_it_back_with_its_connection() -> None:
    script = held(lasts=False)
    script.close("one")
    script.subscribe("two", LOCK)
    assert script.found() == {}
    script = held(lasts=False)
    script.tick(30.0)
    script.subscribe("two", LOCK)
    script.tick(30.0)
    script.close("one")
    assert script.found() == {TWO_HOLDERS: 1}


def test_a_clean_session_whose_node_a_fault_touched_may_have_lost_it() -> None:
    for node, found in (("a", {}), ("b", {TWO_HOLDERS: 1})):
        script = held(lasts=False)
        script.fault("isolate", node)
        script.subscribe("two", LOCK)
        script.tick(30.0)
        script.close("one")
        assert script.found() == found


def test_redis_may_have_lost_who_has_it() -> None:
    script = held()
    script.events.append(RedisLost(script.tick()))
    script.subscribe("two", LOCK)
    assert script.found() == {}


# Its own.


def test_who_asks_again_for_what_it_has_gets_it() -> None:
    script = held()
    script.tick(20.0)
    script.subscribe("one", LOCK)
    assert script.found() == {}
    asks(script, "one", 1)
    assert script.found() == {REFUSED_ITS_OWN: 1}


def test_who_gave_it_back_or_asks_amid_a_fault_may_be_refused() -> None:
    script = held()
    script.unsubscribe("one", LOCK)
    asks(script, "one", 1)
    assert script.found() == {}
    script = held()
    script.fault()
    asks(script, "one", 1)
    assert script.found() == {}


def test_another_reason_to_refuse_is_no_matter() -> None:
    script = held()
    asks(script, "one", 1, 0x80)
    assert script.found() == {}


@pytest.mark.parametrize(("denied", "found"), [(False, {REFUSED_ITS_OWN: 1}), (True, {})])
def test_before_version_5_every_reason_is_the_same(denied: bool, found: dict[str, int]) -> None:
    script = Script(tells=True)
    script.connect("one", version=4)
    script.subscribe("one", LOCK)
    if denied:
        script.events.append(RulesChanged(script.tick(), "t", is_denied=True))
    asks(script, "one", 1, 0x80)
    assert script.found() == found


# Progress.


def test_who_asks_and_asks_for_what_is_free_gets_it() -> None:
    script = held()
    script.unsubscribe("one", LOCK)
    asks(script, "two", 8)
    assert script.found() == {}
    asks(script, "two", 60)
    assert script.found() == {NOT_GRANTED: 1}


def test_who_asks_beside_others_that_are_refused_too_is_found() -> None:
    script = held()
    script.connect("three")
    script.unsubscribe("one", LOCK)
    for _ in range(30):
        asks(script, "two", 1)
        asks(script, "three", 1)
    assert script.found() == {NOT_GRANTED: 2}


def test_the_time_counts_from_the_end_of_a_fault_and_of_the_last_that_had_it() -> None:
    script = held()
    script.unsubscribe("one", LOCK)
    for _ in range(6):
        asks(script, "two", 6)
        script.fault()
    script.subscribe("one", LOCK)
    asks(script, "two", 30)
    script.unsubscribe("one", LOCK)
    asks(script, "two", 8)
    assert script.found() == {}


def test_who_got_no_answer_may_have_it() -> None:
    script = held()
    script.unsubscribe("one", LOCK)
    script.ask_for("one", LOCK)
    script.close("one")
    asks(script, "two", 60)
    assert script.found() == {}


def test_a_session_that_may_not_have_expired_may_have_it() -> None:
    for by_fault, found in ((True, {}), (False, {NOT_GRANTED: 1})):
        script = held(expiry_s=5.0)
        if by_fault:
            script.fault()
        script.close("one")
        script.tick(7.0)
        asks(script, "two", 13)
        assert script.found() == found
