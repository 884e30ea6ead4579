"""What came of a pass is told within the API server's bounds."""

from datetime import UTC, datetime

import pytest

from flockmq_operator.events import Event
from flockmq_operator.kube import Refused
from flockmq_operator.manifest import Manifest, ref
from flockmq_operator.reconcile import transitions
from flockmq_operator.report import event_manifest, report
from unit.operator.world import World, mqtt_cluster


class FullOfEvents(World):
    """Its namespace has a quota of events, and they are used up."""

    async def create(self, manifest: Manifest) -> Manifest:
        raise Refused(403, "events is forbidden: exceeded quota")


async def test_an_event_that_is_refused_fails_no_pass() -> None:
    """Its cluster would be told to stall, though nothing is wrong with it."""
    world = FullOfEvents(mqtt_cluster())
    status: Manifest = {"conditions": []}
    await report(world, mqtt_cluster(), status, [Event("Normal", "Ready", "ready")], "operator-0")
    assert world.objects[ref(mqtt_cluster())]["status"] == status


def test_events_are_told_on_the_object_within_the_api_servers_bounds() -> None:
    event = transitions(
        {}, {"conditions": [{"type": "Stalled", "status": "True", "reason": "R", "message": "m" * 5000}]}
    )[0]
    made = event_manifest(mqtt_cluster(), event, "pod" * 100, datetime.now(UTC))
    assert made["regarding"]["uid"] == mqtt_cluster()["metadata"]["uid"]
    assert len(made["note"]) <= 1024
    assert len(made["reportingInstance"]) <= 128


def test_a_sentence_is_cut_by_its_bytes_and_between_letters() -> None:
    note = event_manifest(mqtt_cluster(), Event("Normal", "Ready", "zü" * 500), "pod", datetime.now(UTC))["note"]
    assert 1020 <= len(note.encode()) <= 1024
    assert ("zü" * 500).startswith(note)


@pytest.mark.parametrize("name", ["a", "n" * 253, "n" * 235 + "-.a"])
def test_the_name_of_an_event_is_none_that_is_refused(name: str) -> None:
    body = mqtt_cluster()
    body["metadata"]["name"] = name
    made = event_manifest(body, Event("Normal", "Ready", "ready"), "pod", datetime.now(UTC))
    head, _, tail = made["metadata"]["name"].rpartition(".")
    assert name.startswith(head)
    assert head[-1] not in ".-"
    assert (len(tail), made["regarding"]["name"]) == (16, name)
    assert len(made["metadata"]["name"]) <= 253
