"""Which pod is deleted, so that it comes back from its newest template. Pure.

One at a time, of cores and Redis together, for no StatefulSet's controller knows when a core has caught up with the
log, or what goes on with the other part. One that isn't ready goes first, for nothing is lost with it; a ready one only
while all of its kind are ready, and of the other kind too, or haven't been for ten minutes. But no ready core while too
few pods of Redis are ready: it couldn't start again, and what only its memory has would be lost.
"""

from datetime import datetime
from typing import NamedTuple

from flockmq_operator.events import Event
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed
from flockmq_operator.order import PATIENCE, state_of
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import Component
from flockmq_operator.status.workload import (
    is_unready_for,
    ordinal,
    outdated_pods,
    pod_there,
    pod_waits,
    rolled_out,
    template_seen,
)
from flockmq_operator.workloads import settings_of, workload


class Restart(NamedTuple):
    pod: Manifest
    event: Event


def next_restart(
    context: Context, observed: Observed, applied: set[Ref], blocked: frozenset[Component], now: datetime
) -> Restart | None:
    """Not while the template is only being applied, and not where somebody has to act first."""

    def may_restart(component: Component) -> bool:
        name = workload(context, component)
        return component not in blocked and name not in applied and can_start(observed, name)

    may_redis, may_core = may_restart("redis"), may_restart("core")
    if may_redis and (pod := broken_redis(context, observed, now)):
        sentence = f"Restarting {pod['metadata']['name']}, which isn't ready, for its new pod template"
        return Restart(pod, Event("Normal", "RestartingRedis", sentence, (ref(pod),)))
    if may_core and (pod := broken_core(context, observed)):
        return Restart(pod, describe_restart(context, observed, pod))
    cores_there = all_there(observed, workload(context, "core"), observed.core_pods)
    redis_there = all_there(observed, workload(context, "redis"), observed.redis_pods)
    redis_does = redis_there or (redis_serves(context, observed) and state_of(context, observed, "redis", now).given_up)
    may_core = may_core and cores_there and redis_does
    may_redis = may_redis and redis_there and (cores_there or state_of(context, observed, "core", now).given_up)
    if may_core and (pod := outdated_core(context, observed)):
        return Restart(pod, describe_restart(context, observed, pod))
    if may_redis and (pod := outdated_redis(context, observed)):
        sentence = f"Restarting {pod['metadata']['name']} for its new pod template"
        return Restart(pod, Event("Normal", "RestartingRedis", sentence, (ref(pod),)))
    return None


def can_start(observed: Observed, name: Ref) -> bool:
    """Whether the settings are there that a StatefulSet's pods name."""
    live = observed.objects.get(name)
    return live is not None and settings_of(live["spec"]["template"]) <= observed.objects.keys()


def all_there(observed: Observed, name: Ref, pods: list[Manifest]) -> bool:
    """Whether all of a StatefulSet's pods are ready, for as long as it asks for."""
    live = observed.objects.get(name)
    if live is None:
        return True
    status, replicas = live.get("status", {}), live["spec"]["replicas"]
    available = status.get("availableReplicas", status.get("readyReplicas", 0))
    return len(pods) >= replicas and all(map(pod_there, pods)) and available >= replicas


def redis_serves(context: Context, observed: Observed) -> bool:
    """Whether most of its pods are ready."""
    live = observed.objects.get(workload(context, "redis"))
    return live is None or 2 * sum(map(pod_there, observed.redis_pods)) > live["spec"]["replicas"]


def redis_to_wait_for(context: Context, observed: Observed) -> str:
    """Nodes that start before Redis would only fail and back off; those that run need no permission."""
    if context.spec.redis.external:
        return ""
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    return "" if live and rolled_out(live, live["spec"]["replicas"]) else f"Redis ({context.redis}) to be ready"


def broken_redis(context: Context, observed: Observed, now: datetime) -> Manifest | None:
    """A pod of Redis that isn't ready and not of the newest template, so that a mended one gets through.

    Of a Redis with replicas one that can't start; others may be loading. But where one is ready those that are
    restarted become ready too, each by itself, so one that takes too long may go; the first start needs all.
    """
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    if live is None or not template_seen(live):
        return None
    one_is_ready = any(map(pod_there, observed.redis_pods))
    for pod in outdated_pods(live, observed.redis_pods):
        if pod_there(pod) or "deletionTimestamp" in pod["metadata"]:
            continue
        is_stuck = one_is_ready and is_unready_for(PATIENCE, pod, now)
        if pod_waits(pod) or is_stuck or not context.redis_hosts:
            return pod
    return None


def outdated_redis(context: Context, observed: Observed) -> Manifest | None:
    live = observed.objects.get(Ref("StatefulSet", context.redis))
    if live is None or not template_seen(live):
        return None
    return max(outdated_pods(live, observed.redis_pods), key=ordinal, default=None)


def broken_core(context: Context, observed: Observed) -> Manifest | None:
    return next((pod for pod in cores_to_restart(context, observed) if not pod_there(pod)), None)


def outdated_core(context: Context, observed: Observed) -> Manifest | None:
    return next(iter(cores_to_restart(context, observed)), None)


def cores_to_restart(context: Context, observed: Observed) -> list[Manifest]:
    """The last one first. None while one ends, or is missing; those that are about to be removed aren't restarted."""
    live = observed.objects.get(Ref("StatefulSet", context.core))
    if live is None or not template_seen(live):
        return []
    pods = sorted(observed.core_pods, key=ordinal, reverse=True)
    there = max(live["spec"]["replicas"], context.spec.cores.replicas)
    if len(pods) < there or any("deletionTimestamp" in pod["metadata"] for pod in pods):
        return []
    return outdated_cores(context, live, pods)


def outdated_cores(context: Context, live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    """Without those that are about to be removed."""
    return [pod for pod in outdated_pods(live, pods) if ordinal(pod) < context.spec.cores.replicas]


def describe_restart(context: Context, observed: Observed, pod: Manifest) -> Event:
    left = len(outdated_cores(context, observed.objects[Ref("StatefulSet", context.core)], observed.core_pods)) - 1
    sentence = f"Restarting core {pod['metadata']['name']} for its new pod template; {left} more to restart"
    return Event("Normal", "RestartingCore", sentence, (ref(pod),))
