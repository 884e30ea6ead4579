from __future__ import annotations

from flockmq.bounds import MEMBER_UNHEARD_MAX_S, MEMBER_UNLINKED_MAX_S
from flockmq.cluster.membership import Membership, condemned

A, B, C = "a@00000001", "b@00000001", "c@00000001"


def linked(*incarnations: str) -> Membership:
    members = Membership("me", 0.0)
    for incarnation in incarnations:
        members.linked(incarnation)
    return members


def test_a_node_whose_last_link_ended_is_unreachable_after_a_while() -> None:
    members = linked(A, A, B)
    members.unlinked(A, 10.0)
    assert members.unreachable([A, B], 100.0) == set()
    members.unlinked(A, 100.0)
    assert members.unreachable([A, B], 100.0 + MEMBER_UNLINKED_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], 100.0 + MEMBER_UNLINKED_MAX_S) == {A}


def test_a_link_that_comes_back_in_time_saves_it() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.linked(A)
    assert members.unreachable([A, B], 100.0) == set()


def test_a_node_never_seen_has_more_time_from_the_start_on() -> None:
    members = linked(B)
    assert members.unreachable([A, B], 0.0) == set()
    assert members.unreachable([A, B], MEMBER_UNHEARD_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], MEMBER_UNHEARD_MAX_S) == {A}


def test_an_election_counts_anew() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.count_anew(50.0)
    assert members.unreachable([A, B], 50.0 + MEMBER_UNLINKED_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], 50.0 + MEMBER_UNLINKED_MAX_S) == {A}


def test_a_node_that_lost_all_its_links_doubts_itself_first() -> None:
    members = linked(A, B)
    members.unlinked(A, 10.0)
    members.unlinked(B, 10.0)
    assert members.unreachable([A, B], 10.0 + MEMBER_UNHEARD_MAX_S - 0.01) == set()
    assert members.unreachable([A, B], 10.0 + MEMBER_UNHEARD_MAX_S) == {A, B}


def test_who_left_or_was_restarted_is_unreachable_at_once() -> None:
    members = linked(B, "a@00000002")
    members.left(C)
    assert members.unreachable([A, B, C, "me@0000000f"], 0.0) == {A, C, "me@0000000f"}
    assert all(members.is_gone(incarnation) for incarnation in (A, C, "me@0000000f"))
    assert not members.is_gone(B)


def test_purging_takes_more_than_half_of_the_voters() -> None:
    assert condemned({A}, set(), {}) == {A}
    assert condemned({A}, set(), {B: ()}) == set()
    assert condemned({A}, set(), {B: (A,)}) == {A}
    assert condemned({A}, set(), {B: (A,), C: ()}) == {A}
    assert condemned(set(), set(), {B: (A,), C: (A,)}) == set()
    assert condemned({A}, {A}, {B: (), C: ()}) == {A}
