from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flockmq.bounds import MEMBER_UNHEARD_MAX_S, MEMBER_UNLINKED_MAX_S
from flockmq.membership.reachability import (
    Reachability,
    electorate,
    is_in_majority,
    may_lead,
    nodes_to_purge,
    unreachable_by_majority,
)

A, B, C, D = "a@00000001", "b@00000001", "c@00000001", "d@00000001"


def linked(*incarnations: str) -> Reachability:
    members = Reachability("me", 0.0)
    for incarnation in incarnations:
        members.linked(incarnation, 0.0)
    return members


def test_a_node_whose_last_link_ended_is_unreachable_after_a_while() -> None:
    members = linked(A, A, B)
    members.unlinked(A, 10.0)
    assert members.unreachable([A, B], [], 100.0) == set()
    members.unlinked(A, 100.0)
    assert members.unreachable([A, B], [], 100.0 + MEMBER_UNLINKED_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], [], 100.0 + MEMBER_UNLINKED_MAX_S) == {A}


def test_a_link_that_comes_back_in_time_saves_it() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.linked(A, 10.0)
    assert members.unreachable([A, B], [], 100.0) == set()


def test_a_node_never_seen_has_more_time_from_the_start_on() -> None:
    members = linked(B)
    assert members.unreachable([A, B], [], 0.0) == set()
    assert members.unreachable([A, B], [], MEMBER_UNHEARD_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], [], MEMBER_UNHEARD_MAX_S) == {A}


def test_a_loop_that_stood_still_counts_anew() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.restart_timers(50.0)
    assert members.unreachable([A, B], [], 50.0 + MEMBER_UNLINKED_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], [], 50.0 + MEMBER_UNLINKED_MAX_S) == {A}


def test_a_node_that_lost_all_its_links_doubts_itself_before_its_replicants() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.unlinked(B, 10.0)
    assert members.unreachable([A], [B], 10.0 + MEMBER_UNLINKED_MAX_S) == {B}
    assert members.unreachable([A], [B], 10.0 + MEMBER_UNHEARD_MAX_S - 0.01) == {B}
    assert members.unreachable([A], [B], 10.0 + MEMBER_UNHEARD_MAX_S) == {A, B}


def test_a_node_that_was_cut_off_counts_anew_from_its_first_link_on() -> None:
    members = linked(A, B, C)
    for incarnation in (A, B, C):
        members.unlinked(incarnation, 10.0)
    members.linked(C, 100.0)
    assert members.unreachable([A], [B], 100.0 + MEMBER_UNLINKED_MAX_S - 0.01) == set()
    assert members.unreachable([A], [B], 100.0 + MEMBER_UNLINKED_MAX_S) == {A, B}


def test_who_left_or_was_restarted_is_unreachable_at_once() -> None:
    members = linked(B, "a@00000002")
    members.left(C)
    assert members.unreachable([A, B, C, "me@0000000f"], [], 0.0) == {A, C, "me@0000000f"}
    assert all(members.is_gone(incarnation) for incarnation in (A, C, "me@0000000f"))
    assert not members.is_gone(B)


def test_who_was_restarted_is_not_gone_where_the_link_to_its_former_life_is_not_known_to_be_dead() -> None:
    """It loses its own link for a moment meanwhile. It isn't fenced, so it has as much time as others."""
    again = "a@00000002"
    members = linked(A, B)
    members.linked(again, 5.0)
    members.unlinked(again, 10.0)
    assert not members.is_gone(again)
    assert members.unreachable([A, again, B], [], 10.0) == set()
    assert members.unreachable([A, again, B], [], 10.0 + MEMBER_UNLINKED_MAX_S) == {again}
    members.linked(again, 11.0)
    members.unlinked(A, 12.0)
    assert members.is_gone(A)


def test_whoever_else_has_this_nodes_name_is_gone_when_its_link_ends() -> None:
    members = linked("me@0000000f", B)
    assert not members.is_gone("me@0000000f")
    members.unlinked("me@0000000f", 1.0)
    assert members.is_gone("me@0000000f")


def test_a_former_life_that_is_linked_again_is_not_the_newer_one() -> None:
    again = "a@00000002"
    members = linked(A, again)
    members.unlinked(A, 5.0)
    members.linked(A, 6.0)
    members.unlinked(again, 7.0)
    assert not members.is_gone(again)


def test_who_is_registered_and_no_member_is_missing_after_a_while_without_a_link() -> None:
    """Not at once, even if its name is linked: a node that begins may be known by its former incarnation yet."""
    members = linked(B, "a@00000002")
    assert members.missing([A, B, C], 0.0) == set()
    assert members.missing([A, B, C], MEMBER_UNHEARD_MAX_S - 0.01) == set()
    members.linked(C, MEMBER_UNHEARD_MAX_S)
    assert members.missing([A, B, C], MEMBER_UNHEARD_MAX_S) == {A}
    members.unlinked(C, MEMBER_UNHEARD_MAX_S)
    assert members.missing([C], MEMBER_UNHEARD_MAX_S) == set(), "it counts from now on"
    assert members.missing([A, C], 2 * MEMBER_UNHEARD_MAX_S) == {C}, "A wasn't asked for meanwhile"


def test_majorities_are_of_the_configured_cores_or_of_more_that_are_there() -> None:
    assert electorate(0, [A, B]) == 2
    assert electorate(3, [A]) == 3
    assert electorate(1, [A, B]) == 2
    assert electorate(0, [A, "a@00000002"]) == 1


@pytest.mark.parametrize(
    ("reachable", "of", "runs", "settled", "settled_with_lease"),
    [
        (1, 1, True, True, True),
        (1, 2, True, False, True),
        (2, 2, True, True, True),
        (1, 3, False, False, False),
        (2, 3, True, True, True),
        (2, 4, True, False, True),
        (2, 5, False, False, False),
        (3, 5, True, True, True),
    ],
)
def test_a_minority_neither_leads_nor_is_settled(
    reachable: int, of: int, runs: bool, settled: bool, settled_with_lease: bool
) -> None:
    assert may_lead(reachable, of) == runs
    assert is_in_majority(reachable, of, holds_lease=False) == settled
    assert is_in_majority(reachable, of, holds_lease=True) == settled_with_lease


@pytest.mark.parametrize(
    ("votes", "of", "is_purged"),
    [
        ({}, 1, True),
        ({}, 2, True),  # the other core is the accused, or silent: the lease is the tie-break
        ({B: ()}, 2, False),  # half, and the other half reaches it
        ({B: (A,)}, 2, True),
        ({}, 3, False),
        ({B: ()}, 3, False),
        ({B: (A,)}, 3, True),
        ({B: (A,), C: ()}, 3, True),
        ({B: (A,)}, 4, True),
        ({B: (A,), C: ()}, 4, False),
        ({B: (A,)}, 5, False),
        ({A: (A,)}, 3, False),  # who is accused has no vote
    ],
)
def test_purging_takes_a_majority_or_half_of_them_with_the_lease(
    votes: dict[str, tuple[str, ...]], of: int, is_purged: bool
) -> None:
    assert nodes_to_purge({A}, set(), votes, of) == ({A} if is_purged else set())


def test_who_reaches_it_purges_nobody_and_who_is_gone_needs_no_vote() -> None:
    assert nodes_to_purge(set(), set(), {B: (A,), C: (A,)}, 3) == set()
    assert nodes_to_purge({A}, {A}, {B: (), C: ()}, 3) == {A}


def test_a_leader_is_deposed_by_more_than_half_only() -> None:
    assert unreachable_by_majority({A}, {}, 2) == set()
    assert unreachable_by_majority({A}, {B: (A,)}, 3) == {A}
    assert unreachable_by_majority({A}, {B: (A,)}, 4) == set()


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[str], dict[str, int], int]:
    """Cores, the side of a split that each is on, and how many there should be: some may never have come."""
    cores = [f"core-{n}@00000001" for n in range(draw(st.integers(1, 7)))]
    sides = {core: draw(st.integers(0, 2)) for core in cores}
    return cores, sides, len(cores) + draw(st.integers(0, 3))


@given(splits(), st.data())
def test_of_the_sides_of_a_split_one_at_most_goes_on(
    split: tuple[list[str], dict[str, int], int], data: st.DataObject
) -> None:
    cores, sides, of = split
    lease = data.draw(st.sampled_from(cores))
    settled = {
        sides[core] for core in cores if is_in_majority(list(sides.values()).count(sides[core]), of, core == lease)
    }
    assert len(settled) <= 1
    purged: dict[str, set[str]] = {}
    for core in cores:
        mine = {other for other in cores if sides[other] != sides[core]}
        votes = {other: mine for other in cores if other != core and sides[other] == sides[core]}
        if core == lease:
            purged[core] = nodes_to_purge(mine, set(), votes, of)
            assert not purged[core] or sides[core] in settled
        assert not unreachable_by_majority(mine, votes, of) or sides[core] in settled
    (victims,) = purged.values()
    assert victims == (set(cores) - {core for core in cores if sides[core] == sides[lease]} if victims else set())


@given(st.lists(st.sets(st.integers(0, 4)), min_size=5, max_size=5))
def test_nobody_whom_a_majority_reaches_is_purged(reach: list[set[int]]) -> None:
    """Any graph of five cores: core 0 leads, and hears whom it reaches."""
    names = [f"core-{n}@00000001" for n in range(5)]
    reached = [{0 if other == n else other for other in there} for n, there in enumerate(reach)]
    mine = {names[n] for n in range(1, 5) if n not in reached[0]}
    votes = {names[n]: {names[o] for o in range(5) if o != n and o not in reached[n]} for n in reached[0] if n}
    for accused in nodes_to_purge(mine, set(), votes, 5):
        assert sum(accused in said for core, said in votes.items() if core not in mine) + 1 >= 3
