"""Stalled: somebody has to act; the message says what is wrong, where, and how to mend it (kstatus)."""

from flockmq_operator.status.condition import Condition, Situation

TYPE = "Stalled"


def judge(situation: Situation) -> Condition:
    if situation.problem:
        return Condition(TYPE, True, *situation.problem)
    return Condition(TYPE, False, "NoProblem", "nobody needs to act")
