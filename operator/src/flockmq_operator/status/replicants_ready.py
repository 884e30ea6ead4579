"""ReplicantsReady: as many replicants as asked for are ready, and run the newest template."""

from flockmq_operator.manifest import Ref
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.status.workload import progress, rolled_out

TYPE = "ReplicantsReady"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    replicas = context.spec.replicants.replicas
    live = observed.objects.get(Ref("Deployment", context.replicant))
    if live is None:
        return Condition(TYPE, False, "NotCreated", f"waiting for {situation.waiting_for or 'it to be created'}")
    counted = progress(live, replicas, observed.replicant_pods)
    updated = live.get("status", {}).get("updatedReplicas", 0)
    if updated < replicas or live.get("status", {}).get("replicas", 0) > updated:
        return Condition(TYPE, False, "Rolling", f"{updated} of the newest template; {counted}")
    if not rolled_out(live, replicas):
        return Condition(TYPE, False, "NotAllReady", counted)
    return Condition(TYPE, True, "AllReady", counted)
