"""Which pods are deleted, so that they come back from their newest template. Pure.

One core after the other, for the StatefulSet's controller doesn't know when a core has caught up with the log.
"""

from collections.abc import Iterator

from flockmq_operator.events import Event
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.status.workload import ordinal, pod_ready, pod_waits, rolled_out


def restarts(
    context: Context, observed: Observed, applied: set[Ref], blocked: frozenset[Component]
) -> Iterator[tuple[Manifest, Event]]:
    """Not while the template is only being applied, and not where somebody has to act first."""
    may_redis = "redis" not in blocked and Ref("StatefulSet", context.redis) not in applied
    if may_redis and (redis := redis_to_restart(context, observed)):
        sentence = f"Restarting {redis['metadata']['name']}, which isn't ready, for its new pod template"
        yield redis, Event("Normal", "RestartingRedis", sentence, (ref(redis),))
    may_core = "core" not in blocked and Ref("StatefulSet", context.core) not in applied
    if may_core and (core := core_to_restart(context, observed)):
        yield core, describe_restart(context, observed, core)


def redis_to_wait_for(context: Context, observed: Observed) -> str:
    """Nodes that start before Redis would only fail and back off; those that run need no permission."""
    if context.spec.redis.external:
        return ""
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    return "" if live and rolled_out(live, context.spec.redis.replicas) else f"Redis ({context.redis}) to be ready"


def redis_to_restart(context: Context, observed: Observed) -> Manifest | None:
    """A pod of Redis that isn't ready and not of the newest template: the StatefulSet's controller waits for a pod to
    become ready before it restarts that one, or, of a Redis with replicas, the next one; so a mended template wouldn't
    get through.

    Of a Redis with replicas only one that can't start, for others may be loading, and only while none is ready: with a
    ready one those that are restarted become ready too, each by itself; the first start needs all.
    """
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    if live is None or not template_seen(live):
        return None
    if any(pod_ready(pod) for pod in observed.redis_pods):
        return None
    broken = [pod for pod in outdated_pods(live, observed.redis_pods) if "deletionTimestamp" not in pod["metadata"]]
    return next((pod for pod in broken if pod_waits(pod) or not context.redis_hosts), None)


def core_to_restart(context: Context, observed: Observed) -> Manifest | None:
    """The core pod to delete so that it comes back from the newest template; None: none now.

    One that isn't ready goes first, for nothing is lost with it; a ready one only while all cores are ready. Those that
    are about to be removed aren't restarted.
    """
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None or not template_seen(live):
        return None
    pods = sorted(observed.core_pods, key=ordinal, reverse=True)
    there = max(live["spec"]["replicas"], context.spec.cores.replicas)
    if len(pods) < there or any("deletionTimestamp" in pod["metadata"] for pod in pods):
        return None
    outdated = outdated_cores(context, live, pods)
    unready = [pod for pod in pods if not pod_ready(pod)]
    broken = [pod for pod in outdated if pod in unready]
    if broken:
        return broken[0]
    return outdated[0] if outdated and not unready else None


def template_seen(live: Manifest) -> bool:
    """Whether the StatefulSet's controller has seen its newest template."""
    return bool(live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"])


def outdated_pods(live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    newest = live["status"].get("updateRevision")
    return [pod for pod in pods if pod["metadata"]["labels"].get("controller-revision-hash") != newest]


def outdated_cores(context: Context, live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    """Without those that are about to be removed."""
    return [pod for pod in outdated_pods(live, pods) if ordinal(pod) < context.spec.cores.replicas]


def describe_restart(context: Context, observed: Observed, pod: Manifest) -> Event:
    left = len(outdated_cores(context, observed.objects[Ref("StatefulSet", context.core)], observed.core_pods)) - 1
    sentence = f"Restarting core {pod['metadata']['name']} for its new pod template; {left} more to restart"
    return Event("Normal", "RestartingCore", sentence, (ref(pod),))
