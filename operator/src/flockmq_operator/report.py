"""Saying what came of a pass: the object's status if it changed, and an event for each thing that happened."""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import uuid4

from flockmq_operator.apply import status_manifest
from flockmq_operator.events import Event
from flockmq_operator.kube import Kube, Refused
from flockmq_operator.manifest import Manifest
from flockmq_operator.spec import GROUP

log = logging.getLogger(__name__)

NAME_MAX = 253
NOTE_MAX_BYTES = 1024
"""The API server's bounds of an event: it refuses a longer one."""


async def report(kube: Kube, body: Manifest, status: Manifest, events: Iterable[Event], instance: str) -> None:
    """`body`: as it was read; `instance`: this operator's pod. Raises Refused where the status is refused, Unreachable;
    an event that is refused, by a quota for example, is in the log alone."""
    metadata = body["metadata"]
    where = f"{metadata['namespace']}/{metadata['name']}"
    try:
        if status != (body.get("status") or {}):
            await kube.apply(status_manifest(body, status), "status")
    except Refused as refused:
        if refused.status not in (404, 409):  # gone, or being deleted, in the meantime
            raise
        return
    for event in events:
        log.info("%s: %s: %s", where, event.reason, event.message)
        try:
            await kube.create(event_manifest(body, event, instance, datetime.now(UTC)))
        except Refused as refused:
            log.warning("%s: the event %s is refused: %s", where, event.reason, refused)


def event_manifest(body: Manifest, event: Event, instance: str, now: datetime) -> Manifest:
    metadata, tail = body["metadata"], f".{uuid4().hex[:16]}"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][: NAME_MAX - len(tail)].rstrip('.-')}{tail}",
            "namespace": metadata["namespace"],
        },
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "type": event.type,
        "reason": event.reason,
        "action": "Reconcile",
        "note": event.message.encode()[:NOTE_MAX_BYTES].decode(errors="ignore"),
        "reportingController": f"{GROUP}/operator",
        "reportingInstance": instance[:128],
        "regarding": {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
    }
