"""How far a StatefulSet or a Deployment is with what was asked of it."""

from datetime import datetime, timedelta

from flockmq_operator.manifest import Manifest


def rolled_out(live: Manifest, replicas: int) -> bool:
    """Whether `replicas` pods are ready and the controller has seen the newest spec."""
    status = live.get("status", {})
    seen = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return bool(seen and status.get("readyReplicas", 0) >= replicas)


def ordinal(pod: Manifest) -> int:
    """Its number in its StatefulSet."""
    name: str = pod["metadata"]["name"]
    return int(name.rpartition("-")[2])


def pod_ready(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def pod_there(pod: Manifest) -> bool:
    """Whether it is ready, and isn't about to end."""
    return pod_ready(pod) and "deletionTimestamp" not in pod["metadata"]


def is_unready_for(span: timedelta, pod: Manifest, now: datetime) -> bool:
    """Whether it hasn't been ready for so long; one that never started, for as long as it is there."""
    if pod_ready(pod):
        return False
    since: str = pod["metadata"].get("creationTimestamp", "")
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready":
            since = condition.get("lastTransitionTime") or since
    return is_past(since, span, now)


def is_unchanged_for(span: timedelta, live: Manifest, now: datetime) -> bool:
    """Whether the controller has found nothing new for so long, so that it won't come further by itself."""
    fields = live["metadata"].get("managedFields", ())
    found = [entry["time"] for entry in fields if entry.get("subresource") == "status" and "time" in entry]
    return is_past(max(found, default=""), span, now)


def is_past(since: str, span: timedelta, now: datetime) -> bool:
    """Empty: since when can't be known."""
    return bool(since) and now > datetime.fromisoformat(since) + span


def template_seen(live: Manifest) -> bool:
    """Whether the controller has seen the newest template."""
    return bool(live.get("status", {}).get("observedGeneration") == live["metadata"]["generation"])


def outdated_pods(live: Manifest, pods: list[Manifest]) -> list[Manifest]:
    """Those of a StatefulSet that don't have its newest template."""
    newest = live.get("status", {}).get("updateRevision")
    return [pod for pod in pods if pod["metadata"]["labels"].get("controller-revision-hash") != newest]


def pod_waits(pod: Manifest) -> bool:
    """Whether a container of it hasn't started yet, or waits to be started again."""
    status = pod.get("status", {})
    states = [container.get("state", {}) for container in status.get("containerStatuses") or ()]
    return status.get("phase") == "Pending" or any("waiting" in state for state in states)


def progress(live: Manifest, replicas: int, pods: list[Manifest] | None = None) -> str:
    """How many are ready, and what Kubernetes says of those that aren't."""
    troubles = [trouble for pod in pods or () if (trouble := pod_trouble(pod))]
    for condition in live.get("status", {}).get("conditions", ()):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            troubles.append(condition.get("message", condition.get("reason", "")))
    counted = f"{live.get('status', {}).get('readyReplicas', 0)} of {replicas} ready"
    return "; ".join((counted, *troubles))


def pod_trouble(pod: Manifest) -> str:
    """Why a pod can't become ready, as far as Kubernetes knows; empty: it may just be starting."""
    name = pod["metadata"]["name"]
    status = pod.get("status", {})
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"{name} can't be scheduled: {condition.get('message', '')}"
    for container in status.get("containerStatuses") or ():
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            why = last_words(container) or waiting.get("message", "")
            return f"{name}: {waiting['reason']}: {why}".removesuffix(": ")
    return ""


def last_words(container: Manifest) -> str:
    """The last line that a container wrote before it ended in failure."""
    lines = container.get("lastState", {}).get("terminated", {}).get("message", "").strip().splitlines()
    return lines[-1] if lines else ""
