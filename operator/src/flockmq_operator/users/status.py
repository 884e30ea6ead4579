"""A MqttUser's status, and what is told of it: pure, from what came of a pass."""

from datetime import datetime
from typing import NamedTuple

from flockmq_operator.events import MESSAGE_MAX, Event
from flockmq_operator.manifest import Manifest
from flockmq_operator.status import render
from flockmq_operator.status.condition import Condition

WAITS = frozenset({"ClusterNotReady", "ClusterPaused"})
"""Reasons for which nobody has to do anything about the MqttUser."""


class Verdict(NamedTuple):
    ready: bool
    reason: str
    message: str
    applied: str = ""
    """What to know the password by; empty: as it was."""
    event: Event | None = None
    """What was changed in the cluster."""


def make_user_status(body: Manifest, verdict: Verdict, now: datetime) -> Manifest:
    """The whole `status`; equal to what it was when there is nothing new."""
    previous: Manifest = body.get("status") or {}
    generation = body["metadata"]["generation"]
    condition = Condition("Ready", verdict.ready, verdict.reason, verdict.message)
    known = verdict.applied or previous.get("applied", "")
    return {
        "observedGeneration": generation,
        "username": (body.get("spec") or {}).get("username") or body["metadata"]["name"],
        **({"applied": known} if known else {}),
        "conditions": [render(condition, ready_in(previous), generation, now)],
    }


def ready_in(status: Manifest) -> Manifest | None:
    return next((item for item in status.get("conditions", ()) if item["type"] == "Ready"), None)


def user_events(previous: Manifest, verdict: Verdict) -> list[Event]:
    """What changed in the cluster; and that the user isn't as it should be, or is again."""
    events = [verdict.event] if verdict.event else []
    before = ready_in(previous) or {"status": "Unknown", "reason": ""}
    if verdict.ready and before["status"] != "True":
        events.append(Event("Normal", "Ready", verdict.message[:MESSAGE_MAX]))
    elif not verdict.ready and verdict.reason != before["reason"] and verdict.reason not in WAITS:
        events.append(Event("Warning", verdict.reason, verdict.message[:MESSAGE_MAX]))
    return events
