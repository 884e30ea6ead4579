"""What came of a pass is told within the API server's bounds."""

from datetime import UTC, datetime

from flockmq_operator.reconcile import transitions
from flockmq_operator.report import event_manifest
from unit.operator.world import mqtt_cluster


def test_events_are_told_on_the_object_within_the_api_servers_bounds() -> None:
    event = transitions(
        {}, {"conditions": [{"type": "Stalled", "status": "True", "reason": "R", "message": "m" * 5000}]}
    )[0]
    made = event_manifest(mqtt_cluster(), event, "pod" * 100, datetime.now(UTC))
    assert made["regarding"]["uid"] == mqtt_cluster()["metadata"]["uid"]
    assert len(made["note"]) <= 1024
    assert len(made["reportingInstance"]) <= 128
