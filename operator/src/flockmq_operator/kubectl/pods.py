"""The table of a cluster's pods, and what is wrong with those that aren't ready. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from flockmq_operator.kubectl.advice import Finding
from flockmq_operator.kubectl.ctl import Row, Silent, Told, component_of, name_of
from flockmq_operator.kubectl.text import age_of, shown, table
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import TAKES_CLIENTS
from flockmq_operator.status.workload import ordinal, pod_there, pod_trouble

COMPONENTS = ("core", "replicant", "redis")
REPLICANTS_MAX = 30
"""Rows of replicants: those beyond are summed up, the ready ones first."""
TROUBLES_MAX = 10
"""Pods whose trouble is told in a sentence."""
HEAD = ("POD", "ROLE", "READY", "STATUS", "RESTARTS", "AGE", "CONNECTIONS", "LAG", "NODE")


def pod_lines(pods: Sequence[Manifest], told: Told | Silent, now: datetime) -> Iterator[str]:
    """`pods`: of cores, replicants and Redis."""
    shown_pods, others = chosen(pods)
    yield from table(HEAD, [row(pod, told, now) for pod in shown_pods])
    if others:
        connections = sum(node_of(pod, told).get("connections", 0) for pod in others)
        unready = sum(not pod_there(pod) for pod in others)
        counted = f", {connections} connections" if isinstance(told, Told) else ""
        yield f"and {len(others)} more replicants, {unready} of them not ready{counted}"


def chosen(pods: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    """(those that have a row, the other replicants): in order."""
    parts = {component: [pod for pod in pods if component_of(pod) == component] for component in COMPONENTS}
    replicants = sorted(parts["replicant"], key=lambda pod: (pod_there(pod), name_of(pod)))
    there = sorted(replicants[:REPLICANTS_MAX], key=name_of)
    rows = [*sorted(parts["core"], key=ordinal), *there, *sorted(parts["redis"], key=ordinal)]
    return rows, replicants[REPLICANTS_MAX:]


def row(pod: Manifest, told: Told | Silent, now: datetime) -> list[str]:
    node = node_of(pod, told)
    heard = bool(node) and node["state"] != "unheard"
    containers = pod.get("status", {}).get("containerStatuses") or ()
    lag_s = told.lag_s.get(name_of(pod)) if isinstance(told, Told) else None
    return [
        name_of(pod),
        component_of(pod),
        f"{sum(bool(container.get('ready')) for container in containers)}/{len(pod['spec'].get('containers', ()))}",
        ", ".join(states(pod, node)),
        str(sum(container.get("restartCount", 0) for container in containers)),
        age_of(pod["metadata"].get("creationTimestamp", ""), now),
        str(node["connections"]) if heard else "-",
        "-" if lag_s is None else f"{lag_s:.1f}s",
        pod["spec"].get("nodeName", "-"),
    ]


def states(pod: Manifest, node: Row) -> Iterator[str]:
    """Kubernetes' word for it, then the cluster's where it adds to that."""
    status = pod.get("status", {})
    waiting = [container.get("state", {}).get("waiting", {}) for container in status.get("containerStatuses") or ()]
    reasons = [state["reason"] for state in waiting if state.get("reason")]
    if "deletionTimestamp" in pod["metadata"]:
        yield "Terminating"
    else:
        yield reasons[0] if reasons else status.get("reason") or status.get("phase", "Unknown")
    if node.get("state", "ready") != "ready":
        yield node["state"]
    if pod["metadata"]["labels"].get(TAKES_CLIENTS) == "false":
        yield "out of the Service"
    if node.get("leads"):
        yield "leads"


def node_of(pod: Manifest, told: Told | Silent) -> Row:
    """What the cluster tells of the pod's node; empty: nothing."""
    return told.nodes.get(name_of(pod), {}) if isinstance(told, Told) else {}


def pod_findings(pods: Sequence[Manifest], now: datetime) -> list[Finding]:
    """Of the pods that aren't ready."""
    unready = [pod for component in COMPONENTS for pod in pods if component_of(pod) == component and not pod_there(pod)]
    found = [pod_finding(pod, now) for pod in unready[:TROUBLES_MAX]]
    left = len(unready) - len(found)
    return [*found, Finding(f"{left} more pods aren't ready")] if left else found


def pod_finding(pod: Manifest, now: datetime) -> Finding:
    name, namespace = name_of(pod), pod["metadata"]["namespace"]
    if ended := pod["metadata"].get("deletionTimestamp"):
        return Finding(f"{name} is being ended; its grace period is over at {ended}")
    text = pod_trouble(pod) or f"{name} isn't ready, for {age_of(since_unready(pod), now)}"
    containers = pod.get("status", {}).get("containerStatuses") or ()
    unready = [container for container in containers if not container.get("ready")]
    if not unready:
        return Finding(shown(text), f"kubectl describe pod {name} --namespace {namespace}")
    former = " --previous" if "waiting" in unready[0].get("state", {}) and unready[0].get("restartCount") else ""
    if "waiting" in unready[0].get("state", {}) and not former:
        return Finding(shown(text), f"kubectl describe pod {name} --namespace {namespace}")
    logs = f"kubectl logs {name} --namespace {namespace} --container {unready[0]['name']} --tail=50{former}"
    return Finding(shown(text), logs)


def since_unready(pod: Manifest) -> str:
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition.get("lastTransitionTime"):
            return str(condition["lastTransitionTime"])
    return str(pod["metadata"].get("creationTimestamp", ""))
