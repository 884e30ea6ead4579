"""RedisReady: the Redis that the operator runs answers. Of an external one the nodes' readiness tells."""

from flockmq_operator.manifest import Ref
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.status.workload import outdated_pods, pod_trouble, rolled_out

TYPE = "RedisReady"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    if context.spec.redis.external:
        return Condition(TYPE, True, "External", f"somebody else runs it, at {context.redis_url}")
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    if live is None:
        return Condition(TYPE, False, "NotCreated", "waiting for it to be created")
    trouble = [said for pod in observed.redis_pods if (said := pod_trouble(pod))]
    if left := outdated_pods(live, observed.redis_pods):
        names = ", ".join(sorted(pod["metadata"]["name"] for pod in left))
        sentence = f"still to be restarted from the newest template, one at a time: {names}"
        return Condition(TYPE, False, "Rolling", "; ".join((sentence, *trouble)))
    if not rolled_out(live, context.spec.redis.replicas):
        return Condition(TYPE, False, "NotReady", "; ".join(trouble) or "starting, or loading its append-only file")
    if context.redis_hosts:
        return Condition(TYPE, True, "Answers", f"a primary and {len(context.redis_hosts) - 1} replicas of it answer")
    return Condition(TYPE, True, "Answers", "it answers")
