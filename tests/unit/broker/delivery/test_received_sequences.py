"""What is new of what another node sends, whatever became of it meanwhile."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.delivery.received_sequences import ReceivedSequences
from flockmq.membership.reachability import new_incarnation


def test_a_gap_is_an_error_and_a_new_acquaintance_may_start_anywhere() -> None:
    inbox = ReceivedSequences()
    assert inbox.accept("a@00000001", 7)
    assert not inbox.accept("a@00000001", 7)
    with pytest.raises(ValueError, match="batch 9 from a@00000001 came after 7"):
        inbox.accept("a@00000001", 9)
    assert inbox.accept("a@00000001", 8)


def test_a_node_that_was_purged_and_came_back_goes_on_with_its_numbers() -> None:
    inbox = ReceivedSequences()
    former = new_incarnation("a")
    later = new_incarnation("a", former)
    assert inbox.accept(former, 1)
    assert inbox.accept(former, 2)
    inbox.forget(former)
    assert inbox.accepted(later) == 2
    assert not inbox.accept(later, 2)
    assert inbox.accept(later, 3)
    assert inbox.accepted(new_incarnation("a")) == 0


def test_a_node_that_came_back_before_its_purge_was_seen_goes_on_with_what_it_brought() -> None:
    inbox = ReceivedSequences()
    former = new_incarnation("a")
    later = new_incarnation("a", former)
    assert inbox.accept(former, 1)
    assert inbox.accepted(later) == 1
    inbox.forget(former)
    assert not inbox.accept(later, 1)
    assert inbox.accept(later, 2)
    inbox.forget(former)
    assert inbox.accepted(later) == 2


def test_a_node_that_came_back_itself_is_numbered_from_one_by_everybody() -> None:
    inbox = ReceivedSequences()
    assert inbox.accept("b@00000001", 7)
    inbox.reset()
    assert inbox.accepted("b@00000001") == 0
    assert inbox.accept("b@00000001", 1)


def test_purged_nodes_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PEERS_FORMER_MAX", 2)
    inbox = ReceivedSequences()
    purged = [new_incarnation("a") for _ in range(3)]
    for incarnation in purged:
        inbox.accept(incarnation, 5)
        inbox.forget(incarnation)
    assert [inbox.accepted(incarnation) for incarnation in purged] == [0, 5, 5]
