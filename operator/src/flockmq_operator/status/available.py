"""Available: clients are served. A replicant takes them, a majority of the cores keeps the state, Redis what waits."""

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.status import hibernated
from flockmq_operator.status.condition import Condition, Situation
from flockmq_operator.workloads import served_by

TYPE = "Available"


def judge(situation: Situation) -> Condition:
    context, observed = situation.context, situation.observed
    if context is None or observed is None:
        return Condition(TYPE, None, "NotObserved", "the spec has to be mended first")
    if context.spec.hibernate:
        return Condition(TYPE, False, hibernated.REASON, "spec.hibernate: no clients are served until it is false")
    cores = observed.objects.get(Ref("StatefulSet", context.core))
    replicants = observed.objects.get(Ref("Deployment", context.replicant))
    redis = observed.objects.get(Ref("StatefulSet", context.redis))
    lacking = []
    serving = served_by(context, observed)
    if not ready(cores if serving == "core" else replicants):
        lacking.append(("NoReplicantReady", f"no {serving} is ready"))
    if not has_majority(cores):
        lacking.append(("NoQuorum", f"{ready(cores)} of {there(cores)} cores are ready, which is no majority"))
    if context.spec.redis.external is None and not has_majority(redis):
        lacking.append(("RedisAway", f"{ready(redis)} of {there(redis)} pods of Redis are ready"))
    if lacking:
        return Condition(TYPE, False, lacking[0][0], "; ".join(sentence for _, sentence in lacking))
    return Condition(TYPE, True, "Serving", "clients are served")


def has_majority(live: Manifest | None) -> bool:
    return 2 * ready(live) > there(live)


def ready(live: Manifest | None) -> int:
    count: int = (live or {}).get("status", {}).get("readyReplicas", 0)
    return count


def there(live: Manifest | None) -> int:
    count: int = (live or {}).get("spec", {}).get("replicas", 0)
    return count
