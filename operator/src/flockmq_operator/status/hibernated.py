"""The conditions of a part whose cluster hibernates: as it should be once it has no pod."""

from flockmq_operator.resources.labels import Component
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.workloads import pods_of

REASON = "Hibernated"
SENTENCE = "spec.hibernate: it has no pods; volumes and Secrets stay"


def judge(situation: Situation, component: Component, type: str) -> Condition | None:
    """None: the cluster doesn't hibernate."""
    context, observed = situation.context, situation.observed
    if context is None or observed is None or not context.spec.hibernate:
        return None
    if component == "redis" and context.spec.redis.external:
        return None
    if count := pods_of(context, observed, component):
        return Condition(type, False, "Hibernating", f"spec.hibernate: {count} pods are there until their turn to end")
    return Condition(type, True, REASON, SENTENCE)
