"""A case that found something, made smaller: with fewer faults, as long as it still finds the same kind of thing."""

from __future__ import annotations

from simulation.case import Case, Outcome
from simulation.forks import Failed


def smallest(whole: Case, jobs: int) -> tuple[Case, Outcome]:
    """Its steps are left out one after another, again and again, until none can be."""
    from simulation.run import outcomes

    ((_, outcome),) = outcomes([whole], 1)
    if isinstance(outcome, Failed):
        return whole, Outcome(whole.seed, whole.profile, 0, 0, 0, 0.0, 0.0, "", [])
    kinds = {finding.kind for finding in outcome.findings}
    small = whole
    while True:
        fewer = [without(small, number) for number in range(len(small.steps))]
        for each, tried in outcomes(fewer, jobs):
            if not isinstance(tried, Failed) and kinds & {finding.kind for finding in tried.findings}:
                small, outcome = each, tried
                break
        else:
            return small, outcome


def without(whole: Case, number: int) -> Case:
    """The last step's pause is what the load has to play in: it stays."""
    steps = list(whole.steps)
    gone = steps.pop(number)
    if steps and number == len(steps):
        steps[-1] = steps[-1]._replace(pause_s=steps[-1].pause_s + gone.pause_s)
    return Case(whole.seed, whole.profile, whole.shape, tuple(steps))
