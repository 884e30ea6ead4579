"""What the last report says first: from a pod's last words to the status, its sentence and an event."""

import json
from typing import Any

import msgspec
import pytest

from flockmq_analytics import headline as analytics
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.observe import observe
from flockmq_operator.reconcile import transitions
from flockmq_operator.report_headline import Headline, last_words, of_pods, sentence
from flockmq_operator.status import make_status
from flockmq_operator.status.condition import Situation
from unit.analytics.made_day import summary
from unit.operator.schema import SCHEMA, violations
from unit.operator.world import World, context, pod

FIRST, SECOND = "2026-11-20T02:20:00Z", "2026-11-21T02:20:00Z"
TOLD: dict[str, Any] = {
    "day": "2026-11-20",
    "timeZone": "Europe/Berlin",
    "madeAt": "2026-11-21T02:17:00+01:00",
    "isOver": True,
    "clients": 1200,
    "refused": 0,
    "lostEvents": 1,
    "peakConnections": 1000,
    "worstLagMs": 4000,
    "changed": ["1,200 distinct clients: 50% more than 800, the mean of 7 days before."],
}
SAID = (
    "2026-11-20: 1,000 connections at the peak, 1,200 clients, 0 refused, lag up to 4,000 ms, 1 event lost; "
    "1,200 distinct clients: 50% more than 800, the mean of 7 days before"
)


def report_pod(name: str, finished: str, message: str | None, code: int = 0) -> Manifest:
    labels = {"app.kubernetes.io/name": "flockmq", "app.kubernetes.io/instance": "demo"}
    labels |= {"app.kubernetes.io/component": "report", "app.kubernetes.io/managed-by": "flockmq-operator"}
    made = pod(name, labels, "1")
    ended = {"exitCode": code, "finishedAt": finished, **({"message": message} if message is not None else {})}
    made["status"] = {"containerStatuses": [{"name": "report", "state": {"terminated": ended}}]}
    return made


def succeeded(at: str) -> Manifest:
    return {"status": {"lastSuccessfulTime": at, "lastScheduleTime": at}}


def test_what_the_report_writes_is_understood() -> None:
    line = analytics.headline([summary()])
    assert [told for _, told in last_words([report_pod("r", FIRST, line.decode())])] == [
        msgspec.json.decode(line, type=Headline)
    ]
    ours, theirs = (
        {field.encode_name for field in msgspec.structs.fields(kind)} for kind in (Headline, analytics.Headline)
    )
    assert ours == theirs


def test_the_newest_words_of_a_report_count() -> None:
    pods = [
        report_pod("older", FIRST, json.dumps({**TOLD, "day": "2026-11-19"})),
        report_pod("newer", SECOND, json.dumps({**TOLD, "later": "field"})),
        report_pod("ingest", "2026-11-21T03:00:00Z", None),
        report_pod("failed", "2026-11-21T04:00:00Z", json.dumps(TOLD), code=1),
    ]
    assert of_pods(succeeded(SECOND), pods, {}) == {**TOLD, "lastSuccessfulTime": SECOND}


def test_a_report_that_tells_nothing_leaves_what_was_told() -> None:
    known = {**TOLD, "lastSuccessfulTime": FIRST}
    assert of_pods(succeeded(SECOND), [], known) == {**TOLD, "lastSuccessfulTime": SECOND}
    assert of_pods(succeeded(FIRST), [], known) is known
    assert of_pods(None, [], known) is known


@pytest.mark.parametrize(
    "message",
    [
        "",
        "no JSON",
        "[]",
        json.dumps({**TOLD, "day": "yesterday"}),
        json.dumps({**TOLD, "clients": -1}),
        json.dumps({**TOLD, "refused": 2**64}),
        json.dumps({**TOLD, "madeAt": "x" * 65}),
        json.dumps({**TOLD, "changed": ["x"] * 17}),
        json.dumps({**TOLD, "changed": ["x" * 513]}),
    ],
)
def test_words_that_the_status_has_no_place_for_are_left_out(message: str) -> None:
    assert of_pods(succeeded(FIRST), [report_pod("r", FIRST, message)], {}) == {"lastSuccessfulTime": FIRST}


def test_the_sentence() -> None:
    assert sentence(TOLD) == SAID
    assert sentence({"lastSuccessfulTime": FIRST}) == ""
    early = {"day": "2026-11-21", "isOver": False, "clients": 1, "refused": 2, "lostEvents": 0}
    assert sentence(early) == "2026-11-21 so far: connections unknown, 1 client, 2 refused, no event lost"


async def test_it_is_in_the_status_and_told_once() -> None:
    at = context()
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", **succeeded(SECOND)}
    owner = {"kind": "MqttCluster", "name": at.name, "uid": at.cluster.uid, "controller": True}
    instance = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/managed-by": "flockmq-operator"}
    cron["metadata"] = {"name": at.report, "namespace": at.namespace, "labels": instance, "ownerReferences": [owner]}
    world = World(cron, report_pod("demo-report-1", SECOND, json.dumps(TOLD)))

    async def look(before: Manifest) -> Manifest:
        observed = await observe(world, at, [], before)
        assert bool(observed.report_pods) is not bool(before), "pods are looked at where there is something new"
        return make_status(Situation(1, at, observed), before, world.now)

    status = await look({})
    assert status["report"] == {**TOLD, "lastSuccessfulTime": SECOND}
    assert list(violations(status, SCHEMA["properties"]["status"])) == []
    condition = next(one for one in status["conditions"] if one["type"] == "ReportSucceeded")
    assert condition["message"] == f"at {SECOND}; {SAID}"
    assert [(event.type, event.message) for event in transitions({}, status) if event.reason == "Reported"] == [
        ("Normal", SAID)
    ]
    again = await look(status)
    assert again == status
    assert [event for event in transitions(status, again) if event.reason == "Reported"] == []
    del world.objects[Ref("CronJob", at.report)]
    assert (await observe(world, at, [], status)).report_pods == []
