from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from flockmq.membership.slot_assignment import reassign

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
