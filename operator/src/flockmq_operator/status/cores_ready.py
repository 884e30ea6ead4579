"""CoresReady: all cores are ready, and run the newest template."""

from flockmq_operator.manifest import Ref
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.status.workload import ordinal, outdated_pods, progress, rolled_out

TYPE = "CoresReady"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None:
        return Condition(TYPE, False, "NotCreated", f"waiting for {situation.waiting_for or 'it to be created'}")
    replicas = max(context.spec.cores.replicas, live["spec"]["replicas"])  # those to be removed still count
    stays = context.spec.cores.replicas
    outdated = [pod["metadata"]["name"] for pod in outdated_pods(live, observed.core_pods) if ordinal(pod) < stays]
    counted = progress(live, replicas, observed.core_pods)
    if outdated:
        left = ", ".join(sorted(outdated))
        return Condition(TYPE, False, "Restarting", f"{counted}; still to be restarted, one at a time: {left}")
    if not rolled_out(live, replicas):
        return Condition(TYPE, False, "NotAllReady", counted)
    return Condition(TYPE, True, "AllReady", counted)
