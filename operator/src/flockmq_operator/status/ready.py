"""Ready: the cluster is all that its spec asks for, but for replicants that are on their way since their number grew.
Whether it serves anybody says Available."""

from flockmq_operator.status import replicants_ready
from flockmq_operator.status.condition import Condition, Situation

TYPE = "Ready"


def judge(situation: Situation, parts: list[Condition]) -> Condition:
    if situation.problem:
        return Condition(TYPE, False, *situation.problem)
    lacking = [part for part in parts if not part.status and part.reason != replicants_ready.SCALING]
    if lacking:
        return Condition(TYPE, False, lacking[0].reason, "; ".join(f"{part.type}: {part.message}" for part in lacking))
    if situation.behind:
        return Condition(TYPE, False, "Paused", situation.paused)
    if situation.waiting_for:  # an edit whose turn hasn't come: all parts may be ready as they were before
        return Condition(TYPE, False, "Waiting", f"waiting for {situation.waiting_for}")
    if situation.changed and not situation.resized:
        return Condition(TYPE, False, "Applying", "changes were just applied")
    return Condition(TYPE, True, "AllReady", "all parts are ready")
