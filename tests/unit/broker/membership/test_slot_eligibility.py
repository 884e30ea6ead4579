"""Who loses slots because Redis is away for it alone, by what the leader hears at its beats."""

from __future__ import annotations

from flockmq.bounds import LEASE_RENEW_S, LEASE_TTL_S, SLOTS_UNSERVED_MAX_S
from flockmq.membership.slot_eligibility import SlotEligibility


def beat(serving: SlotEligibility, since: float, for_s: float, **hears_redis: bool | None) -> float:
    """The leader's, until so long after; when that is."""
    for number in range(int(for_s / LEASE_RENEW_S) + 1):
        serving.look(since + number * LEASE_RENEW_S, hears_redis)
    return since + for_s


def test_a_core_that_hears_nothing_is_given_nothing_at_once_and_loses_what_it_has_after_a_while() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S - LEASE_RENEW_S, a=True, b=False, leader=True)
    assert (serving.gets_no_slots("b"), serving.loses_slots("b")) == (True, False)
    beat(serving, now, LEASE_RENEW_S, a=True, b=False, leader=True)
    assert serving.loses_slots("b")
    assert not serving.gets_no_slots("a")


def test_who_hears_again_gets_slots_again_after_as_long() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S, a=False, leader=True)
    now = beat(serving, now + LEASE_RENEW_S, SLOTS_UNSERVED_MAX_S - 2 * LEASE_RENEW_S, a=True, leader=True)
    assert serving.loses_slots("a")
    beat(serving, now, 2 * LEASE_RENEW_S, a=True, leader=True)
    assert not serving.gets_no_slots("a")


def test_who_hears_again_for_a_moment_only_stays_without() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S, a=False, leader=True)
    for _ in range(5):
        now = beat(serving, now, SLOTS_UNSERVED_MAX_S / 2, a=True, leader=True)
        now = beat(serving, now, LEASE_RENEW_S, a=False, leader=True)
        assert serving.loses_slots("a")


def test_who_hears_again_in_time_has_lost_nothing() -> None:
    serving = SlotEligibility()
    now = 100.0
    for _ in range(5):
        now = beat(serving, now, SLOTS_UNSERVED_MAX_S - LEASE_RENEW_S, a=False, leader=True)
        now = beat(serving, now, LEASE_RENEW_S, a=True, leader=True)
        assert not serving.gets_no_slots("a")


def test_nothing_is_counted_while_the_leader_has_no_beats_itself() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, LEASE_RENEW_S, a=False, leader=True)
    now += 2 * SLOTS_UNSERVED_MAX_S
    now = beat(serving, now, SLOTS_UNSERVED_MAX_S - LEASE_RENEW_S, a=False, leader=True)
    assert not serving.loses_slots("a")
    assert now - 100.0 > LEASE_TTL_S
    beat(serving, now, LEASE_RENEW_S, a=False, leader=True)
    assert serving.loses_slots("a")


def test_who_does_not_say_counts_as_hearing() -> None:
    """As a core of a version before it was said, or one without a link."""
    serving = SlotEligibility()
    beat(serving, 100.0, 2 * SLOTS_UNSERVED_MAX_S, a=None)
    assert not serving.gets_no_slots("a")


def test_who_is_no_member_any_more_is_forgotten() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S, a=False, leader=True)
    serving.look(now + LEASE_RENEW_S, {"leader": True})
    assert not serving.gets_no_slots("a")


def test_nothing_is_counted_while_nobody_hears() -> None:
    """One server of several is away for everybody."""
    serving = SlotEligibility()
    now = beat(serving, 100.0, 2 * SLOTS_UNSERVED_MAX_S, a=False, leader=False)
    assert not serving.gets_no_slots("a")
    beat(serving, now, LEASE_RENEW_S, a=False, leader=True)
    assert (serving.gets_no_slots("a"), serving.loses_slots("a")) == (True, False)


def test_who_has_lost_its_slots_gets_none_while_nobody_hears() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S, a=False, leader=True)
    beat(serving, now, 2 * SLOTS_UNSERVED_MAX_S, a=False, leader=False)
    assert serving.loses_slots("a")
