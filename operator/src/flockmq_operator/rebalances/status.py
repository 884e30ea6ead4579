"""A MqttRebalance's status, and what is told of it: pure, from how far it is."""

from datetime import UTC, datetime

from flockmq_operator.events import MESSAGE_MAX, Event
from flockmq_operator.manifest import Manifest
from flockmq_operator.rebalances.progress import Phase, Verdict
from flockmq_operator.rebalances.spec import OVER
from flockmq_operator.status import render
from flockmq_operator.status.condition import Condition

SUCCEEDED = "Succeeded"
"""The one condition: Unknown until it is over."""
_CONDITION: dict[Phase, bool | None] = {"Pending": None, "Running": None, "Succeeded": True, "Failed": False}


def make_rebalance_status(body: Manifest, verdict: Verdict, now: datetime) -> Manifest:
    """The whole `status`; equal to what it was when there is nothing new."""
    previous: Manifest = body.get("status") or {}
    generation = body["metadata"]["generation"]
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    nodes = previous.get("nodes", []) if verdict.nodes is None else verdict.nodes
    before = next((item for item in previous.get("conditions", ()) if item["type"] == SUCCEEDED), None)
    condition = Condition(SUCCEEDED, _CONDITION[verdict.phase], verdict.reason, verdict.message)
    times: Manifest = {name: previous[name] for name in ("startTime", "endTime") if name in previous}
    if verdict.phase in ("Running", "Succeeded"):
        times.setdefault("startTime", at)
    if verdict.phase in OVER:
        times.setdefault("endTime", at)
    return {
        "observedGeneration": generation,
        "phase": verdict.phase,
        **times,
        **{field: sum(node.get(field, 0) for node in nodes) for field in ("moved", "left")},
        "nodes": nodes,
        "conditions": [render(condition, before, generation, now)],
    }


def rebalance_events(previous: Manifest, verdict: Verdict) -> list[Event]:
    """That it began, and how it ended."""
    if previous.get("phase", "") == verdict.phase or verdict.phase == "Pending":
        return []
    return [Event("Warning" if verdict.phase == "Failed" else "Normal", verdict.reason, verdict.message[:MESSAGE_MAX])]
