"""Reconciling: the operator, or Kubernetes on its behalf, is still at work towards the spec (kstatus)."""

from flockmq_operator.status.condition import Condition, Situation

TYPE = "Reconciling"
UP_TO_DATE = "UpToDate"
"""The reason when all is as it should be."""


def judge(situation: Situation, parts: list[Condition]) -> Condition:
    if situation.paused:
        return Condition(TYPE, False, "Paused", situation.paused)
    if situation.waiting_for:
        return Condition(TYPE, True, "Waiting", f"waiting for {situation.waiting_for}")
    if situation.changed:
        return Condition(TYPE, True, "Applying", "changes were just applied")
    if situation.problems:
        return Condition(TYPE, False, "Stalled", "nothing more can be done; see the condition Stalled")
    lacking = [part.type for part in parts if not part.status]
    if lacking:
        return Condition(TYPE, True, "Progressing", f"waiting for {', '.join(lacking)}")
    later = f"; its pods are updated after those of {situation.updated_first}" if situation.updated_first else ""
    return Condition(TYPE, False, UP_TO_DATE, f"nothing is left to do{later}")
