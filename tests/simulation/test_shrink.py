"""Cases become as small as what they found allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from faults.schedule import Planned, Step
from judges.judge import LOST, REORDERED, UNWELL, Finding
from simulation.case import Case, Outcome
from simulation.cluster import Shape
from simulation.forks import Failed
from simulation.shrink import faults_of, keeping, smallest

KILL = Planned("kill core", ("core-1",), 1.0)
CUT = Planned("cut core redis", ("core-2", "redis"), 2.0, after_s=0.5)
STOP = Planned("stop replicant", ("replicant-1",), 3.0)
WHOLE = Case(17, "base", Shape(), (Step((KILL, CUT), 1.0), Step((STOP,), 2.0)))
"""Its faults: 0 the kill, 1 the cut, 2 the stop."""

Finds = Callable[[list[Planned]], list[str]]


def outcome(kinds: list[str]) -> Outcome:
    findings = [Finding(kind, 1001.0, "made up") for kind in kinds]
    return Outcome(17, "base", 3, 200, 200, 15.0, 1.0, "00000000", findings)


class Played:
    """`finds`: what a case with these faults finds. The last one's outcome comes first."""

    def __init__(self, finds: Finds) -> None:
        self.finds = finds
        self.cases = 0

    def __call__(self, cases: list[Case]) -> Iterator[tuple[Case, Outcome | Failed]]:
        for case in reversed(cases):
            self.cases += 1
            yield case, outcome(self.finds(faults_of(case)))

    def smallest(self) -> list[Planned]:
        small, made = smallest(WHOLE, outcome(self.finds(faults_of(WHOLE))), self)
        assert [finding.kind for finding in made.findings] == self.finds(faults_of(small))
        return faults_of(small)


@pytest.mark.parametrize("needed", [KILL, CUT, STOP])
def test_a_finding_that_needs_one_of_three_faults_is_left_with_that_one(needed: Planned) -> None:
    assert Played(lambda faults: [LOST] if needed in faults else []).smallest() == [needed]


def test_a_finding_that_needs_two_faults_keeps_both() -> None:
    assert Played(lambda faults: [LOST] if {KILL, STOP} <= set(faults) else []).smallest() == [KILL, STOP]


def test_a_finding_that_needs_no_fault_is_left_with_none() -> None:
    assert Played(lambda _: [LOST]).smallest() == []


def test_another_kind_of_finding_does_not_count_but_one_of_several_does() -> None:
    def finds(faults: list[Planned]) -> list[str]:
        if STOP in faults:
            return [LOST, UNWELL] if KILL in faults else [UNWELL]
        return [REORDERED]

    assert Played(finds).smallest() == [STOP]


def test_a_case_without_outcome_found_nothing() -> None:
    def play(cases: list[Case]) -> Iterator[tuple[Case, Outcome | Failed]]:
        yield from ((case, Failed("hung")) for case in cases)

    assert smallest(WHOLE, outcome([LOST]), play) == (WHOLE, outcome([LOST]))


def test_of_several_that_could_be_left_out_the_first_is() -> None:
    played = Played(lambda faults: [LOST] if len(faults) >= 2 else [])
    assert played.smallest() == [CUT, STOP]
    assert played.cases == 3 + 2


def test_what_is_kept_is_as_it_was_and_what_follows_is_time_to_play() -> None:
    assert keeping(WHOLE, {0, 1, 2}) == WHOLE
    assert keeping(WHOLE, {1}).steps == (Step((CUT,), 1.0 + 2.0),)
    assert keeping(WHOLE, {2}).steps == (Step((STOP,), 2.0),)
    assert keeping(WHOLE, {0, 2}).steps == (Step((KILL,), 1.0), Step((STOP,), 2.0))
    assert keeping(WHOLE, ()).steps == ()
