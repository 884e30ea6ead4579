"""A MqttCluster's status: pure, from what was seen in a pass.

Ready, Reconciling and Stalled are kstatus' (a tool that waits for any Kubernetes object understands them); Available
says whether clients are served, the others which part it is. A condition's lastTransitionTime moves only with its
status.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from flockmq_operator import report_headline
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.problems import Problem
from flockmq_operator.resources.labels import Component, selector_string
from flockmq_operator.status import (
    available,
    backup_succeeded,
    cores_ready,
    hibernated,
    ready,
    reconciling,
    redis_ready,
    replicants_ready,
    report_succeeded,
    stalled,
)
from flockmq_operator.status.condition import Condition, Situation

Judge = Callable[[Situation], Condition]
BLOCKED = "Blocked"
"""The reason of a part that would be as it should, were it not for a problem."""
MESSAGE_MAX = 1000
"""Characters of a condition's sentence; the CRD admits 1024."""


PARTS: tuple[tuple[Component, Judge], ...] = (
    ("core", cores_ready.judge),
    ("replicant", replicants_ready.judge),
    ("redis", redis_ready.judge),
)


def conditions(situation: Situation) -> list[Condition]:
    parts = [with_block(part(situation, component, judge), situation, component) for component, judge in PARTS]
    return [
        ready.judge(situation, parts),
        available.judge(situation),
        reconciling.judge(situation, parts),
        stalled.judge(situation),
        *parts,
        with_block(report_succeeded.judge(situation), situation, "report"),
        with_block(backup_succeeded.judge(situation), situation, "backup"),
    ]


def part(situation: Situation, component: Component, judge: Judge) -> Condition:
    judged = judge(situation)
    return hibernated.judge(situation, component, judged.type) or judged


def with_block(condition: Condition, situation: Situation, component: Component) -> Condition:
    """The part isn't what the spec asks for while its pods have to stay as they are."""
    blocks = [problem.reason for problem in situation.problems if component in problem.blocks]
    if not blocks:
        return condition
    reasons = ", ".join(dict.fromkeys(blocks))
    sentence = f"{condition.message}; its pods stay as they are: {reasons}, see the condition Stalled"
    return Condition(condition.type, False, condition.reason if condition.status is False else BLOCKED, sentence)


def make_status(situation: Situation, previous: Manifest, now: datetime) -> Manifest:
    """The whole `status`; equal to `previous` when there is nothing new."""
    before = {condition["type"]: condition for condition in previous.get("conditions", ())}
    context, observed = situation.context, situation.observed
    reported = previous.get("report", {})
    if context is not None and observed is not None:
        cron = observed.objects.get(Ref("CronJob", context.report))
        reported = report_headline.of_pods(cron, observed.report_pods, reported)
    counted = previous.get("replicants", {})
    situation = situation._replace(before=before, counted=counted, now=now, reported=reported)
    status: Manifest = {
        "observedGeneration": situation.generation,
        "conditions": [
            render(condition, before.get(condition.type), situation.generation, now)
            for condition in conditions(situation)
        ],
    }
    if context is None or observed is None:  # nothing was looked at: what was said before still stands
        return {**previous, **status}
    live = observed.objects
    status |= {
        "selector": selector_string(context, "replicant"),
        "endpoint": _endpoint(situation),
        "updatePending": situation.update_pending,
        "cores": _counts(live.get(Ref("StatefulSet", context.core)), observed.core_pods),
        "replicants": _counts(live.get(Ref("Deployment", context.replicant))),
    }
    ports = live.get(Ref("Service", context.name), {}).get("spec", {}).get("ports") or [{}]
    if "nodePort" in ports[0]:
        status["nodePort"] = ports[0]["nodePort"]
    if context.spec.backup:
        cron = live.get(Ref("CronJob", context.backup))
        status["backup"] = backup_succeeded.count(cron, previous.get("backup", {}))
    if context.spec.report.enabled and reported:
        status["report"] = reported
    if situation.settings:
        status["settings"] = situation.settings
    if context.spec.autoscaling:
        status["autoscalingFloor"] = context.floor or context.spec.autoscaling.min_replicas
    return status


def of_failed_pass(problem: Problem, generation: int, previous: Manifest, now: datetime) -> Manifest:
    """What was said before still stands, but for what stalls the cluster."""
    situation = Situation(generation, problems=(problem,))
    if "conditions" not in previous:
        return make_status(situation, previous, now)
    said = previous["conditions"]
    before = next((condition for condition in said if condition["type"] == stalled.TYPE), None)
    told = render(stalled.judge(situation), before, generation, now)
    return {**previous, "conditions": [told if condition is before else condition for condition in said]}


def render(condition: Condition, before: Manifest | None, generation: int, now: datetime) -> Manifest:
    status = {True: "True", False: "False", None: "Unknown"}[condition.status]
    same = before is not None and before["status"] == status
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message[:MESSAGE_MAX],
        "observedGeneration": generation,
        "lastTransitionTime": before["lastTransitionTime"]
        if same and before
        else now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _endpoint(situation: Situation) -> str:
    assert situation.context
    assert situation.observed
    context = situation.context
    service = situation.observed.objects.get(Ref("Service", context.name), {})
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
    host = ingress[0].get("hostname") or ingress[0].get("ip") or f"{context.name}.{context.namespace}.svc"
    ports = service.get("spec", {}).get("ports") or [{}]  # its own: an edit may wait for its turn
    return f"{host}:{ports[0].get('port', context.spec.listeners[0].port)}"


def _counts(live: Manifest | None, pods: list[Manifest] | None = None) -> Manifest:
    status = (live or {}).get("status", {})
    updated = status.get("updatedReplicas", 0)
    if pods is not None:  # an OnDelete StatefulSet's own count of updated pods stays behind
        newest = status.get("updateRevision")
        updated = sum(pod["metadata"]["labels"].get("controller-revision-hash") == newest for pod in pods)
    return {"replicas": status.get("replicas", 0), "ready": status.get("readyReplicas", 0), "updated": updated}
