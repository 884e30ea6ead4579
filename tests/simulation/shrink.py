"""A case that found something, made smaller: with fewer faults, as long as it still finds the same kind of thing.

Faults have numbers, from 0 on, in the order in which the case has them: `--keep` names them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable

import msgspec

from faults.schedule import Planned, Step
from simulation.case import Case, Outcome
from simulation.forks import Failed

Play = Callable[[list[Case]], Iterable[tuple[Case, Outcome | Failed]]]


def smallest(whole: Case, outcome: Outcome, play: Play) -> tuple[Case, Outcome]:
    """Faults are left out one after another, again and again, until none can be; the first that can is."""
    kinds, kept, small = _kinds(outcome), set(range(len(faults_of(whole)))), whole
    while True:
        fewer = {keeping(whole, kept - {number}): number for number in kept}
        tried = {fewer[each]: (each, made) for each, made in play(list(fewer)) if isinstance(made, Outcome)}
        found = [number for number, (_, made) in tried.items() if kinds & _kinds(made)]
        if not found:
            return small, outcome
        kept.remove(min(found))
        small, outcome = tried[min(found)]


def keeping(whole: Case, numbers: Collection[int]) -> Case:
    """With these of its faults only. The pause of a step without any is added to that of the step before: the load has
    as long to play in."""
    number, steps = itertools.count(), list[Step]()
    for step in whole.steps:
        faults = tuple(fault for fault in step.faults if next(number) in numbers)
        if faults:
            steps.append(step._replace(faults=faults))
        elif steps:
            steps[-1] = steps[-1]._replace(pause_s=steps[-1].pause_s + step.pause_s)
    return msgspec.structs.replace(whole, steps=tuple(steps))


def faults_of(case: Case) -> list[Planned]:
    """By their numbers."""
    return [fault for step in case.steps for fault in step.faults]


def _kinds(outcome: Outcome) -> set[str]:
    return {finding.kind for finding in outcome.findings}
