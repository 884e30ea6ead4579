"""ReplicantsReady: as many replicants as asked for are ready, and run the newest template."""

from datetime import datetime, timedelta

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.status.workload import progress, rolled_out

TYPE = "ReplicantsReady"
SCALING = "Scaling"
"""The reason while some are on their way since their number grew."""
SCALING_MAX = timedelta(minutes=10)
"""How long they may take."""


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    replicas = context.replicants
    live = observed.objects.get(Ref("Deployment", context.replicant))
    if live is None:
        return Condition(TYPE, False, "NotCreated", f"waiting for {situation.waiting_for or 'it to be created'}")
    counted = progress(live, replicas, observed.replicant_pods)
    updated = live.get("status", {}).get("updatedReplicas", 0)
    if "replicant" in situation.rolls or live.get("status", {}).get("replicas", 0) > updated:
        return Condition(TYPE, False, "Rolling", f"{updated} of the newest template; {counted}")
    if rolled_out(live, replicas):
        return Condition(TYPE, True, "AllReady", counted)
    return Condition(TYPE, False, SCALING if is_scaling(situation, live) else "NotAllReady", counted)


def is_scaling(situation: Situation, live: Manifest) -> bool:
    """Whether those that aren't ready are new: all were ready before, and none of them is lost."""
    before = situation.before.get(TYPE)
    if before is None or (before["status"] != "True" and before["reason"] != SCALING):
        return False
    began = datetime.fromisoformat(before["lastTransitionTime"])
    if before["status"] != "True" and situation.now > began + SCALING_MAX:
        return False
    ready: int = live.get("status", {}).get("readyReplicas", 0)
    return ready >= situation.counted.get("ready", 0)
