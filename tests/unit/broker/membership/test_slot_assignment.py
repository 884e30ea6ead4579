from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import LEASE_RENEW_S, LEASE_TTL_S, SLOTS_UNSERVED_MAX_S
from flockmq.membership.slot_assignment import SlotEligibility, reassign

SLOTS = 64
CORES = st.frozensets(st.sampled_from("abcdefg"), min_size=1)


@given(st.lists(CORES, min_size=1, max_size=6))
def test_slots_are_shared_evenly_and_move_only_as_much_as_they_must(history: list[frozenset[str]]) -> None:
    owners = [""] * SLOTS
    for cores in history:
        moves = reassign(owners, cores)
        held = Counter(owner for owner in owners if owner in cores)
        share, richer = divmod(SLOTS, len(cores))
        ranked = sorted((held[core] for core in cores), reverse=True)
        kept = sum(min(count, share + (rank < richer)) for rank, count in enumerate(ranked))
        assert len(moves) == SLOTS - kept
        assert all(owners[slot] != owner for slot, owner in moves.items())
        owners = [moves.get(slot, owner) for slot, owner in enumerate(owners)]
        counts = Counter(owners)
        assert set(counts) == cores
        assert set(counts.values()) <= {share, share + 1}
        assert reassign(owners, cores) == {}


def test_without_cores_nothing_moves() -> None:
    assert reassign(["a", ""], ()) == {}


@given(st.lists(st.sampled_from(["", *"abcdefg"]), min_size=SLOTS, max_size=SLOTS), CORES, CORES)
def test_who_is_keeping_loses_nothing_and_gets_nothing(
    owners: list[str], cores: frozenset[str], keeping: frozenset[str]
) -> None:
    moves = reassign(owners, cores, keeping)
    kept = {slot for slot, owner in enumerate(owners) if owner in keeping - cores}
    assert not moves.keys() & kept
    assert set(moves.values()) <= cores
    counts = Counter(moves.get(slot, owner) for slot, owner in enumerate(owners) if slot not in kept)
    share = (SLOTS - len(kept)) // len(cores)
    assert {counts[core] for core in cores} <= {share, share + 1}


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
        now = beat(serving, now + LEASE_RENEW_S, SLOTS_UNSERVED_MAX_S, a=True, leader=True)
        assert not serving.gets_no_slots("a")


def test_who_hears_again_for_a_moment_only_loses_its_slots() -> None:
    serving = SlotEligibility()
    now = beat(serving, 100.0, SLOTS_UNSERVED_MAX_S - 2 * LEASE_RENEW_S, a=False, leader=True)
    now = beat(serving, now + LEASE_RENEW_S, LEASE_RENEW_S, a=True, leader=True)
    assert not serving.gets_no_slots("a")
    beat(serving, now + LEASE_RENEW_S, 2 * LEASE_RENEW_S, a=False, leader=True)
    assert serving.loses_slots("a")


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
