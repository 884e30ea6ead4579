"""What is said of rebalancing: what it would do, and does."""

from __future__ import annotations

import msgspec

from flockmq.management.rebalance_rows import AskedProgress, AskedRebalance, RebalanceRow
from flockmq.management.view import Member
from flockmq.node.client_balance import Balancing
from flockmq.node.node_details import NodeDetails
from flockmq.node.rebalance_plan import rebalance_rows
from unit.broker.node.test_client_balance import member

ON = NodeDetails(
    cores=3, eviction_rate=10.0, balancing=Balancing(relative=1.1, absolute=10), rebalances=True, evicted=7
)


def told(left: int = 0, rate: float = 0.0) -> NodeDetails:
    return NodeDetails(
        cores=3, eviction_rate=10.0, balancing=ON.balancing, rebalances=False, left=left, rate=rate, evicted=7
    )


def rows(*members: Member, details: NodeDetails | None = ON) -> list[RebalanceRow]:
    return rebalance_rows(members, {each.incarnation: details for each in members})


def test_each_node_that_has_too_many_is_said_to_send_the_excess_to_the_mean_at_its_part_of_the_rate() -> None:
    first, second, third = rows(member(1, 100), member(2, 90), member(3, 20))
    assert (first.mean, first.begins_above, first.planned) == (70.0, 80, 30)
    assert (second.planned, third.planned) == (20, 0)
    assert (first.planned_s, second.planned_s, third.planned_s) == (6.0, 4.0, 0.0)
    assert (first.state, first.is_enabled, first.evicted, first.left) == ("idle", True, 7, 0)


def test_small_differences_are_left() -> None:
    assert [row.planned for row in rows(member(1, 30), member(2, 15))] == [0, 0]


def test_a_plan_is_made_with_the_thresholds_of_a_node_that_does_not_rebalance() -> None:
    first, _ = rows(member(1, 100), member(2, 0), details=told())
    assert (first.is_enabled, first.planned) == (False, 50)


def test_a_plan_can_be_made_with_other_thresholds_and_another_rate() -> None:
    members, details = [member(1, 100), member(2, 90)], {"r1@1": ON, "r2@1": ON}
    assert [row.planned for row in rebalance_rows(members, details)] == [0, 0]
    thresholds = AskedRebalance(relative_threshold=1.0, absolute_threshold=2, rate=5.0)
    first, second = rebalance_rows(members, details, thresholds)
    assert (first.begins_above, first.planned, first.planned_s, second.planned) == (97, 5, 1.0, 0)


def test_how_far_a_node_is_with_what_was_asked_of_it_is_shown() -> None:
    progress = AskedProgress(name="Jo", state="gave_up", moved=9)
    first, _ = rows(member(1, 100), member(2, 90), details=msgspec.structs.replace(ON, asked=progress))
    assert first.asked == progress


def test_nobody_sends_clients_where_no_other_node_takes_any() -> None:
    first, second = rows(member(1, 100), member(2, 0, ready=False))
    assert (first.mean, first.planned, second.planned) == (100.0, 0, 0)


def test_a_node_that_rebalances_says_how_far_it_is() -> None:
    first, _ = rows(member(1, 100), member(2, 50), details=told(left=25, rate=5.0))
    assert (first.state, first.left, first.rate, first.left_s) == ("rebalancing", 25, 5.0, 5.0)


def test_a_node_that_drains_sends_all_and_has_no_plan() -> None:
    first, _ = rows(member(1, 100, draining=True), member(2, 0), details=told(rate=10.0))
    assert (first.state, first.left, first.left_s, first.mean, first.planned) == ("draining", 100, 10.0, None, None)
    stuck, _ = rows(member(1, 100, draining=True), member(2, 0), details=told())
    assert (stuck.left, stuck.rate, stuck.left_s) == (100, 0.0, None)


def test_of_a_node_that_is_not_heard_or_tells_nothing_the_rest_is_unknown() -> None:
    unheard, older = rows(member(1, 5, heard=False), member(2, 9), details=None)
    assert (unheard.state, unheard.clients) == ("unheard", None)
    assert (older.state, older.clients, older.planned, older.evicted) == ("idle", 9, None, None)
