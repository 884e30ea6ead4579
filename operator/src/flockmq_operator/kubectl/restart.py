"""`kubectl flockmq restart`: new pods from the same spec, as `kubectl rollout restart` has them: an annotation with the
time goes into the pods' template, and the operator rolls that out like any other edit, one pod at a time."""

from collections.abc import Iterator
from datetime import UTC, datetime

from flockmq_operator.kube import Kube
from flockmq_operator.kubectl.advice import conditions_of
from flockmq_operator.kubectl.failed import Failed
from flockmq_operator.kubectl.screen import wanted
from flockmq_operator.kubectl.status import cluster
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import Component
from flockmq_operator.revisions import RESTARTED_AT
from flockmq_operator.status import stalled
from flockmq_operator.workloads import CALLED

PARTS: dict[str, Component] = {"cores": "core", "replicants": "replicant", "redis": "redis"}
"""Field of the spec → component; in the order in which the operator restarts them."""


async def restart(kube: Kube, namespace: str, name: str, part: str | None) -> list[str]:
    """What was set, and how to watch it. `part`: a key of PARTS; None: all. Raises Failed, Refused and Unreachable."""
    body = await cluster(kube, namespace, name)
    parts = parts_to_restart(body, part)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    await kube.patch(restarted(body, parts, at))
    return list(said(body, parts, at))


def parts_to_restart(body: Manifest, part: str | None) -> list[str]:
    """Raises Failed where there is none."""
    there = [name for name, component in PARTS.items() if wanted(body.get("spec") or {}, component)]
    if part is None:
        return there
    if part not in there:
        where = f"MqttCluster {body['metadata']['name']} in namespace {body['metadata']['namespace']}"
        if part == "redis":
            raise Failed(f"{where}: its Redis is another's (spec.redis.external): restart it where it runs")
        raise Failed(f"{where} has no {part}: restart {' or '.join(there)}")
    return [part]


def restarted(body: Manifest, parts: list[str], at: str) -> Manifest:
    """What is merged into the MqttCluster `body`."""
    template = {"podTemplate": {"metadata": {"annotations": {RESTARTED_AT: at}}}}
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {key: body["metadata"][key] for key in ("name", "namespace", "uid")},
        "spec": dict.fromkeys(parts, template),
    }


def said(body: Manifest, parts: list[str], at: str) -> Iterator[str]:
    name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
    called = [CALLED[PARTS[part]] for part in parts]
    yield f"MqttCluster {name}: {RESTARTED_AT} of {', '.join(called)} is {at}"
    yield f"The operator replaces their pods, one at a time: {', then '.join(called)}"
    yield from (f"! {note}" for note in notes(body, parts))
    yield f"Watch it:     kubectl flockmq status {name} --namespace {namespace}"
    yield f"Wait for it:  kubectl wait mqc/{name} --namespace {namespace} --for=condition=Ready --timeout=1h"


def notes(body: Manifest, parts: list[str]) -> Iterator[str]:
    """What whoever restarts it may not expect."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    if spec.get("pause"):
        yield "spec.pause is true: nothing is restarted before it is false"
    if conditions_of(body).get(stalled.TYPE, {}).get("status") == "True":
        yield "the cluster is stalled: what that blocks isn't restarted before it is mended"
    if status.get("updatePending"):
        yield "pods also become as this operator makes them, which is newer than they are (status.updatePending)"
    for part, waits in (
        ("cores", "sessions that last, and the log, wait"),
        ("redis", "QoS 1 and 2 aren't acknowledged"),
    ):
        if part in parts and wanted(spec, PARTS[part]) == 1:
            yield f"there is one pod of {CALLED[PARTS[part]]}: {waits} while it restarts"
