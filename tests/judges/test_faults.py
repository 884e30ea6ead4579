"""When faults ran, and on whom."""

from __future__ import annotations

from collections.abc import Sequence

from judges.faults import CLOCKS_SET_MAX_S, Fault, Faults
from judges.verdict import FOREVER

CUT = Fault(10.0, 12.0, "cut", ("a", "b"))
STOP = Fault(12.5, 15.0, "stop core", ("b",))
CLOCK = Fault(30.0, 31.0, "clock redis", ("c",))


def played(faults: Sequence[Fault]) -> Faults:
    """On three cores."""
    return Faults(faults, 3)


def test_a_time_amid_faults_is_over_with_the_last_of_those_that_follow_one_another() -> None:
    faults = played([STOP, CUT, CLOCK])
    assert faults.any.over(8.0) == 8.0
    assert faults.any.over(9.5) == 15.0
    assert faults.any.over(11.0) == 15.0
    assert faults.any.over(15.5) == 15.5
    assert faults.any.before(14.0) == 10.0
    assert faults.any.before(17.0) == 17.0


def test_a_quiet_time_is_one_without_a_fault() -> None:
    faults = played([STOP, CUT, CLOCK]).any
    assert faults.quiet_for(1.0, 5.0) == 6.0
    assert faults.quiet_for(8.0, 5.0) == 20.0
    assert faults.quiet_for(11.0, 5.0) == 20.0
    assert faults.quiet_for(20.0, 12.0) == 43.0
    assert played([Fault(1.0, FOREVER, "cut", ("a",))]).any.quiet_for(0.0, 2.0) == FOREVER


def test_each_node_has_faults_of_its_own() -> None:
    faults = played([STOP, CUT, CLOCK])
    assert faults.of("a").over(11.0) == 12.0
    assert faults.of("b").over(11.0) == 15.0
    assert faults.of("nobody").over(11.0) == 11.0
    assert faults.over_for(11.0, {"a", "c"}) == 12.0
    assert faults.of("b").first(0.0) == 10.0
    assert faults.of("b").first(11.0) == 11.0
    assert faults.of("b").first(16.0) == FOREVER


def test_faults_overlap_what_they_touch() -> None:
    faults = played([CUT, STOP, CLOCK])
    assert faults.any.overlap(0.0, 10.0)
    assert faults.any.overlap(14.0, 20.0)
    assert not faults.any.overlap(16.0, 29.0)
    assert faults.any.overlap(30.5, 30.6)


def test_the_clocks_of_nodes_are_no_faults_unless_those_of_most_cores_are_wrong_at_once() -> None:
    first, second = Fault(10.0, 20.0, "clock core", ("core-1",)), Fault(15.0, 30.0, "drift core", ("core-2",))
    again, theirs = second._replace(nodes=("core-1",)), Fault(1.0, 40.0, "clock replicant", ("replicant-1",))
    assert not played([first, theirs, again, CUT, CLOCK]).of_time.overlap(0.0, 100.0)
    assert not played([first, theirs]).any.overlap(0.0, 100.0)
    faults = played([first, theirs, second])
    assert not faults.of_time.overlap(0.0, 14.9)
    assert faults.of_time.over(15.0) == 20.0 + CLOCKS_SET_MAX_S
    assert faults.any.overlap(15.0, 15.0)
    assert not Faults([first, second], 5).any.overlap(0.0, 100.0)
    assert Faults([first], 1).of_time.over(10.0) == 20.0 + CLOCKS_SET_MAX_S


def test_a_fault_that_never_ended_runs_for_ever() -> None:
    faults = played([Fault(1.0, FOREVER, "cut", ("a",))])
    assert faults.any.over(2.0) == FOREVER
    assert faults.over_for(2.0, ["a"]) == FOREVER
