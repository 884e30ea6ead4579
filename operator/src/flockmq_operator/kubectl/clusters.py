"""All MqttClusters, a line each: by what Kubernetes knows. Pure."""

from collections.abc import Sequence
from datetime import datetime

from flockmq_operator.kubectl.advice import conditions_of, findings
from flockmq_operator.kubectl.screen import wanted
from flockmq_operator.kubectl.text import age_of, table
from flockmq_operator.manifest import Manifest
from flockmq_operator.status import available, ready, redis_ready

WRONG_MAX = 100
"""Characters of what is wrong."""


def cluster_lines(bodies: Sequence[Manifest], now: datetime, *, with_namespace: bool) -> list[str]:
    head = ["NAME", "AVAILABLE", "READY", "CORES", "REPLICANTS", "REDIS", "AGE", "WRONG"]
    rows = [row(body, now) for body in bodies]
    if with_namespace:
        head = ["NAMESPACE", *head]
        rows = [[body["metadata"]["namespace"], *cells] for body, cells in zip(bodies, rows, strict=True)]
    return table(head, rows)


def row(body: Manifest, now: datetime) -> list[str]:
    spec, status, conditions = body.get("spec") or {}, body.get("status") or {}, conditions_of(body)
    wrong = findings(body, now).wrong
    said = wrong[0].text if wrong else "-"
    return [
        body["metadata"]["name"],
        *(conditions.get(kind, {}).get("status", "Unknown") for kind in (available.TYPE, ready.TYPE)),
        f"{(status.get('cores') or {}).get('ready', 0)}/{wanted(spec, 'core')}",
        f"{(status.get('replicants') or {}).get('ready', 0)}/{wanted(spec, 'replicant')}",
        conditions.get(redis_ready.TYPE, {}).get("status", "Unknown"),
        age_of(body["metadata"].get("creationTimestamp", ""), now),
        said if len(said) <= WRONG_MAX else f"{said[: WRONG_MAX - 1]}…",
    ]
