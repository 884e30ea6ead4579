"""What is wrong with a MqttCluster, by its conditions, and what to do about it. Pure."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from flockmq_operator.kubectl.text import age_of, shown
from flockmq_operator.manifest import Manifest
from flockmq_operator.status import (
    BLOCKED,
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

ORDER = (
    *(available.TYPE, stalled.TYPE, cores_ready.TYPE, replicants_ready.TYPE, redis_ready.TYPE, ready.TYPE),
    *(report_succeeded.TYPE, backup_succeeded.TYPE, reconciling.TYPE),
)
"""What matters first, first."""
GOES_ON = "wait: it goes on by itself; after ten minutes without progress look at the pods below"
LOOK = "look at the pods below that aren't ready"
WHAT_TO_DO = {
    "NoReplicantReady": "look at the pods below: one is ready when it reaches a core and Redis",
    "NoQuorum": "have the cores below running again; don't delete their volumes, which hold what the log has no more",
    "RedisAway": "have Redis below running again; don't delete its volume, which holds sessions and their messages",
    "Restarting": GOES_ON,
    "Rolling": GOES_ON,
    "Scaling": GOES_ON,
    "NotAllReady": LOOK,
    "NotReady": LOOK,
    BLOCKED: "do what Stalled says",
    hibernated.REASON: (
        'kubectl patch mqc {name} --namespace {namespace} --type=merge --patch \'{{"spec":{{"hibernate":false}}}}\''
    ),
    "Paused": 'kubectl patch mqc {name} --namespace {namespace} --type=merge --patch \'{{"spec":{{"pause":false}}}}\'',
}
"""By a condition's reason; where the condition's own sentence says what to do there is nothing to add."""
OPERATOR = "kubectl get pods --all-namespaces --selector app.kubernetes.io/name=flockmq-operator"


class Finding(NamedTuple):
    text: str
    todo: str = ""
    """Empty: the text says it, or there is nothing to do."""


class Findings(NamedTuple):
    headline: str
    wrong: list[Finding]
    working: list[str]
    """What is being done, or waits."""
    fine: list[str]
    """The types of conditions that are as they should be."""


def findings(body: Manifest, now: datetime) -> Findings:
    """Of a MqttCluster as the API server has it."""
    conditions = sorted(conditions_of(body).values(), key=lambda condition: place(condition["type"]))
    wrong = [condition for condition in conditions if is_wrong(condition)]
    if len(wrong) > 1:  # Ready says no more than they do
        wrong = [condition for condition in wrong if condition["type"] != ready.TYPE]
    return Findings(
        headline(body),
        [*unseen(body), *(finding(condition, body, now) for condition in wrong)],
        [shown(condition["message"]) for condition in conditions if is_work(condition)],
        [condition["type"] for condition in conditions if is_fine(condition)],
    )


def conditions_of(body: Manifest) -> dict[str, Manifest]:
    """By type."""
    return {condition["type"]: condition for condition in (body.get("status") or {}).get("conditions") or ()}


def place(kind: str) -> int:
    return ORDER.index(kind) if kind in ORDER else len(ORDER)


def is_wrong(condition: Manifest) -> bool:
    if condition["type"] == reconciling.TYPE:
        return False
    return bool(condition["status"] == ("True" if condition["type"] == stalled.TYPE else "False"))


def is_work(condition: Manifest) -> bool:
    if condition["type"] != reconciling.TYPE:
        return False
    return bool(condition["status"] == "True" or condition["reason"] == "Paused")


def is_fine(condition: Manifest) -> bool:
    return bool(condition["status"] == "True" and condition["type"] not in (stalled.TYPE, reconciling.TYPE))


def headline(body: Manifest) -> str:
    conditions = conditions_of(body)
    served = {"True": "clients are served", "False": "CLIENTS ARE NOT SERVED"}
    whole = {"True": "all is as the spec asks", "False": "not all is as the spec asks"}
    said = [
        served.get(conditions.get(available.TYPE, {}).get("status", ""), "whether clients are served isn't known"),
        whole.get(conditions.get(ready.TYPE, {}).get("status", ""), "whether all is as the spec asks isn't known"),
    ]
    return "; ".join(said)


def unseen(body: Manifest) -> Iterator[Finding]:
    """The operator hasn't said anything of the newest spec."""
    newest, seen = body["metadata"]["generation"], (body.get("status") or {}).get("observedGeneration", 0)
    todo = f"if it stays so for a minute, see whether the operator runs, and watches this namespace: {OPERATOR}"
    if not seen:
        yield Finding("the operator hasn't looked at this MqttCluster yet", todo)
    elif seen < newest:
        yield Finding(
            f"the operator hasn't looked at generation {newest} of the spec yet: what is here is of {seen}", todo
        )


def finding(condition: Manifest, body: Manifest, now: datetime) -> Finding:
    lasts = age_of(condition.get("lastTransitionTime", ""), now)
    text = f"{condition['type']} is {condition['status']} for {lasts} ({condition['reason']}): {condition['message']}"
    names = {key: body["metadata"][key] for key in ("name", "namespace")}
    return Finding(shown(text), WHAT_TO_DO.get(condition["reason"], "").format(**names))
