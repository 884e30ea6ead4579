"""Conditions: one fact each, kstatus' three among them."""

from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.problems import Problem
from flockmq_operator.resources.context import Context
from flockmq_operator.revisions import is_whole
from flockmq_operator.status import make_status
from flockmq_operator.status.condition import Situation
from unit.operator.schema import SCHEMA, violations
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, running, step
from unit.operator.test_restarts import TestCores
from unit.operator.world import World, context, pod

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = datetime(2026, 11, 21, 13, tzinfo=UTC)


async def status(
    world: World, at: Context | None = None, previous: Manifest | None = None, **facts: object
) -> Manifest:
    at = at or context()
    situation = Situation(generation=4, context=at, observed=await world.observe(at))._replace(**facts)
    made = make_status(situation, previous or {}, NOW)
    assert list(violations(made, SCHEMA["properties"]["status"])) == []
    return made


def condition(status: Manifest, kind: str) -> Manifest:
    found: Manifest = next(item for item in status["conditions"] if item["type"] == kind)
    return found


def summary(status: Manifest) -> dict[str, str]:
    return {item["type"]: item["status"] for item in status["conditions"]}


async def test_a_running_cluster_is_ready_and_says_where_it_is_reached() -> None:
    made = await status(await running())
    assert summary(made) == {
        "Ready": "True",
        "Available": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "CoresReady": "True",
        "ReplicantsReady": "True",
        "RedisReady": "True",
        "ReportSucceeded": "Unknown",
        "BackupSucceeded": "Unknown",
    }
    assert made["endpoint"] == "demo.fleet.svc:1883"
    assert made["observedGeneration"] == 4
    assert all(item["observedGeneration"] == 4 for item in made["conditions"])
    assert made["cores"] == {"replicas": 3, "ready": 3, "updated": 3}
    assert made["replicants"] == {"replicas": 2, "ready": 2, "updated": 2}


async def test_the_selector_is_the_deployments() -> None:
    world = await running()
    labels = world.objects[REPLICANTS]["spec"]["selector"]["matchLabels"]
    selector = (await status(world))["selector"]
    assert dict(pair.split("=") for pair in selector.split(",")) == labels


@pytest.mark.parametrize(
    ("name", "kind"), [(CORES, "CoresReady"), (REPLICANTS, "ReplicantsReady"), (REDIS, "RedisReady")]
)
async def test_one_pod_less_is_that_parts_condition_and_ready(name: Ref, kind: str) -> None:
    world = await running()
    world.objects[name]["status"]["readyReplicas"] -= 1
    made = await status(world)
    not_true = {kind for kind, value in summary(made).items() if value == "False"} - {"Stalled", "Available"}
    assert not_true == {kind, "Ready"}
    assert summary(made)["Reconciling"] == "True"
    assert condition(made, "Ready")["message"].startswith(f"{kind}: ")


async def test_cores_that_are_still_to_be_restarted_are_named() -> None:
    world = await TestCores().outdated()
    found = condition(await status(world, context(TestCores.CHANGED)), "CoresReady")
    assert (found["status"], found["reason"]) == ("False", "Restarting")
    assert found["message"].endswith("one at a time: demo-core-0, demo-core-1, demo-core-2")


async def test_cores_are_not_ready_while_one_is_to_be_ready_before_others_are_removed() -> None:
    world = await running()
    world.objects[CORES]["status"]["readyReplicas"] = 2
    made = await status(world, context({"cores": {"replicas": 1}}))
    assert condition(made, "CoresReady")["status"] == "False"
    assert condition(made, "CoresReady")["message"] == "2 of 3 ready"


async def test_a_problem_is_stalled_and_not_ready_though_everything_runs() -> None:
    made = await status(await running(), problems=(Problem("NameTaken", "it is taken: rename it"),))
    assert summary(made)["Stalled"] == "True"
    assert summary(made)["Ready"] == "False"
    assert summary(made)["Reconciling"] == "False"
    assert condition(made, "Ready")["message"] == condition(made, "Stalled")["message"] == "it is taken: rename it"


@pytest.mark.parametrize(
    ("ready", "available", "reason"),
    [
        ({}, "True", "Serving"),
        ({CORES: 2, REPLICANTS: 1}, "True", "Serving"),
        ({REPLICANTS: 0}, "False", "NoReplicantReady"),
        ({CORES: 1}, "False", "NoQuorum"),
        ({REDIS: 0}, "False", "RedisAway"),
    ],
)
async def test_clients_are_served_while_enough_of_each_part_is_ready(
    ready: dict[Ref, int], available: str, reason: str
) -> None:
    world = await running()
    for name, count in ready.items():
        world.objects[name]["status"]["readyReplicas"] = count
    found = condition(await status(world), "Available")
    assert (found["status"], found["reason"]) == (available, reason)


@pytest.mark.parametrize(("before", "now", "served"), [(0, 2, "True"), (2, 0, "False")])
async def test_clients_are_served_by_whom_the_service_leads_to(before: int, now: int, served: str) -> None:
    """Amid a change of who takes them, while no replicant is ready."""
    world = await running({"replicants": {"replicas": before}})
    world.objects[REPLICANTS]["status"]["readyReplicas"] = 0
    assert summary(await status(world, context({"replicants": {"replicas": now}})))["Available"] == served


class TestAnotherNumberOfReplicants:
    MORE: ClassVar[Manifest] = {"replicants": {"replicas": 4}}

    async def scaled(self) -> tuple[World, Manifest]:
        """Two are ready, four are asked for; and the status of before."""
        world = await running()
        before = await status(world)
        await step(world, context(self.MORE))
        return world, before

    async def test_it_stays_ready_while_they_are_on_their_way(self) -> None:
        world, before = await self.scaled()
        plan_made = await status(world, context(self.MORE), before, changed=True, resized=True)
        for made in (plan_made, await status(world, context(self.MORE), plan_made)):
            assert (condition(made, "Ready")["status"], condition(made, "ReplicantsReady")["reason"]) == (
                "True",
                "Scaling",
            )
            assert condition(made, "Reconciling")["status"] == "True"

    async def test_one_that_is_lost_meanwhile_is_not_excused(self) -> None:
        world, before = await self.scaled()
        made = await status(world, context(self.MORE), before)
        world.objects[REPLICANTS]["status"]["readyReplicas"] = 1
        made = await status(world, context(self.MORE), made)
        assert condition(made, "Ready")["reason"] == "NotAllReady"
        made = await status(world, context(self.MORE), made)
        assert condition(made, "Ready")["status"] == "False", "until all are there"

    async def test_they_may_take_ten_minutes(self) -> None:
        world, before = await self.scaled()
        made = await status(world, context(self.MORE), before)
        at = context(self.MORE)
        situation = Situation(generation=4, context=at, observed=await world.observe(at))
        assert condition(make_status(situation, made, NOW + timedelta(minutes=9)), "Ready")["status"] == "True"
        assert condition(make_status(situation, made, NOW + timedelta(minutes=11)), "Ready")["status"] == "False"

    async def test_a_new_template_is_no_change_of_size(self) -> None:
        world = await running()
        before = await status(world)
        made = await status(world, previous=before, changed=True, rolls=frozenset({"replicant"}))
        assert condition(made, "ReplicantsReady")["reason"] == "Rolling"
        world.objects[REPLICANTS]["metadata"]["generation"] += 1  # its controller hasn't seen it yet
        assert condition(await status(world, previous=made), "Ready")["status"] == "False"


async def test_a_part_whose_pods_have_to_stay_says_so_and_the_others_do_not() -> None:
    problem = Problem("SecretMissing", "create it", frozenset({"replicant"}))
    made = await status(await running(), problems=(problem,))
    assert condition(made, "ReplicantsReady")["reason"] == "Blocked"
    assert condition(made, "ReplicantsReady")["message"] == (
        "2 of 2 ready; its pods stay as they are: SecretMissing, see the condition Stalled"
    )
    assert summary(made)["CoresReady"] == summary(made)["RedisReady"] == summary(made)["Available"] == "True"


async def test_a_pause_is_told_and_what_waits_is_not_ready() -> None:
    made = await status(await running(), paused="spec.pause: 1 changes wait: Service demo", behind=True)
    assert condition(made, "Reconciling")["reason"] == condition(made, "Ready")["reason"] == "Paused"
    made = await status(await running(), paused="spec.pause: 0 changes wait")
    assert (summary(made)["Reconciling"], summary(made)["Ready"]) == ("False", "True")


async def test_what_was_just_changed_is_not_ready_yet() -> None:
    made = await status(await running(), changed=True)
    assert (summary(made)["Ready"], summary(made)["Reconciling"]) == ("False", "True")


async def test_an_edit_that_waits_for_its_turn_is_not_ready_though_every_part_is() -> None:
    """Replicants that come don't make it False; what waits for them does, or it would be a spec to go back to."""
    world = await running()
    previous = await status(world)
    await step(world, context({"replicants": {"replicas": 4}}))
    world.settle()
    world.objects[REPLICANTS]["status"]["readyReplicas"] = 2
    spec: Manifest = {"replicants": {"replicas": 4}, "redis": {"image": "redis:2"}}
    plan = await step(world, context(spec))
    assert not plan.changes
    assert plan.waiting_for
    made = await status(world, context(spec), previous, waiting_for=plan.waiting_for)
    assert condition(made, "ReplicantsReady")["reason"] == "Scaling"
    assert condition(made, "Ready")["reason"] == "Waiting"
    assert not is_whole(made)


async def test_waiting_says_for_what() -> None:
    made = await status(World(), waiting_for="Redis (demo-redis) to be ready")
    assert condition(made, "Reconciling")["message"] == "waiting for Redis (demo-redis) to be ready"
    assert made["cores"] == {"replicas": 0, "ready": 0, "updated": 0}


async def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    world = await running()
    before = await status(world)
    for item in before["conditions"]:
        item["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    world.objects[CORES]["status"]["readyReplicas"] = 2
    after = await status(world, previous=before)
    moved = {item["type"] for item in after["conditions"] if item["lastTransitionTime"] != "2026-01-01T00:00:00Z"}
    assert moved == {"Ready", "Reconciling", "CoresReady"}


async def test_the_status_of_an_unchanged_cluster_is_equal_to_the_one_before() -> None:
    world = await running()
    at = context()
    situation = Situation(generation=1, context=at, observed=await world.observe(at))
    first = make_status(situation, {}, NOW)
    assert make_status(situation, first, LATER) == first


def test_a_spec_that_cannot_be_decoded_keeps_what_was_known() -> None:
    made = make_status(Situation(5, problems=(Problem("InvalidSpec", "spec.x: mend it"),)), {"endpoint": "here"}, NOW)
    assert made["endpoint"] == "here"
    assert summary(made) == {
        "Ready": "False",
        "Available": "Unknown",
        "Reconciling": "False",
        "Stalled": "True",
        "CoresReady": "Unknown",
        "ReplicantsReady": "Unknown",
        "RedisReady": "Unknown",
        "ReportSucceeded": "Unknown",
        "BackupSucceeded": "Unknown",
    }


FIRST, SECOND = "2026-11-20T02:00:00Z", "2026-11-21T02:00:00Z"


@pytest.mark.parametrize(
    ("told", "value", "reason"),
    [
        ({}, "Unknown", "NotRunYet"),
        ({"lastScheduleTime": FIRST, "active": [{}]}, "Unknown", "Running"),
        ({"lastScheduleTime": FIRST}, "False", "Failed"),
        ({"lastScheduleTime": FIRST, "lastSuccessfulTime": "2026-11-20T02:01:00Z"}, "True", "Succeeded"),
        ({"lastScheduleTime": SECOND, "lastSuccessfulTime": "2026-11-20T02:01:00Z"}, "False", "Failed"),
        ({"lastSuccessfulTime": SECOND}, "True", "Succeeded"),
    ],
)
async def test_a_report_that_failed_is_told_and_the_cluster_is_ready(told: Manifest, value: str, reason: str) -> None:
    world = await running()
    world.objects[Ref("CronJob", "demo-report")]["status"] = told
    made = await status(world)
    found = condition(made, "ReportSucceeded")
    assert (found["status"], found["reason"]) == (value, reason)
    assert summary(made)["Ready"] == "True"


async def test_an_ingest_that_failed_is_told() -> None:
    world = await running()
    world.objects[Ref("CronJob", "demo-report")]["status"] = {"lastSuccessfulTime": SECOND}
    ingest = world.objects[Ref("CronJob", "demo-ingest")]
    ingest["status"] = {"lastScheduleTime": SECOND, "lastSuccessfulTime": FIRST}
    found = condition(await status(world), "ReportSucceeded")
    assert (found["status"], found["reason"]) == ("False", "IngestFailed")
    ingest["status"]["active"] = [{}]
    assert condition(await status(world), "ReportSucceeded")["status"] == "True"


async def test_no_report_is_no_failure() -> None:
    at = context({"report": {"enabled": False}})
    found = condition(await status(await running(), at), "ReportSucceeded")
    assert (found["status"], found["reason"]) == ("Unknown", "Disabled")


async def test_a_load_balancers_address_and_a_node_port_are_told() -> None:
    world = await running({"service": {"type": "LoadBalancer"}})
    service = world.objects[Ref("Service", "demo")]
    service["spec"]["ports"][0]["nodePort"] = 31883
    service["status"] = {"loadBalancer": {"ingress": [{"hostname": "mqtt.example.com"}]}}
    made = await status(world)
    assert (made["endpoint"], made["nodePort"]) == ("mqtt.example.com:1883", 31883)


async def test_a_long_message_is_cut_to_what_the_schema_admits() -> None:
    made = await status(await running(), problems=(Problem("ApplyRefused", "x" * 5000),))
    assert len(condition(made, "Stalled")["message"]) == 1000


async def test_what_keeps_a_pod_from_starting_is_told() -> None:
    world = await running()
    for name, number in ((CORES, 2), (REDIS, 0)):
        world.objects[name]["status"]["readyReplicas"] = number
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "b:9"'}}
    world.objects[Ref("Pod", "demo-core-1")]["status"] = {"containerStatuses": [{"state": waiting}]}
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "no StorageClass is the default"}
    world.objects[Ref("Pod", "demo-redis-0")]["status"] = {"conditions": [unscheduled]}
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
    world.objects[REPLICANTS]["status"] |= {"readyReplicas": 0, "conditions": [failure]}
    made = await status(world)
    assert {kind: condition(made, kind)["message"] for kind in ("CoresReady", "RedisReady", "ReplicantsReady")} == {
        "CoresReady": '2 of 3 ready; demo-core-1: ImagePullBackOff: Back-off pulling image "b:9"',
        "RedisReady": "demo-redis-0 can't be scheduled: no StorageClass is the default",
        "ReplicantsReady": "0 of 2 ready; exceeded quota: small",
    }


async def test_what_keeps_a_redis_of_a_new_template_from_starting_is_told() -> None:
    world = await running()
    world.objects[REDIS]["status"] |= {"updateRevision": "new", "readyReplicas": 0}
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "redis:typo"'}}
    world.objects[Ref("Pod", "demo-redis-0")]["status"] = {"containerStatuses": [{"state": waiting}]}
    found = condition(await status(world), "RedisReady")
    assert found["reason"] == "Rolling"
    assert found["message"].endswith('demo-redis-0: ImagePullBackOff: Back-off pulling image "redis:typo"')


async def test_what_a_node_said_before_it_ended_is_told() -> None:
    world = await running()
    words = (
        '{"msg": "starting"}\nflockmq: error: flockmq.toml: mqtt.max_inflght: unknown key; did you mean max_inflight?\n'
    )
    crashed = {
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}},
        "lastState": {"terminated": {"exitCode": 2, "message": words}},
    }
    world.objects[Ref("Pod", "demo-core-2")]["status"] = {"containerStatuses": [crashed]}
    replicant = pod("demo-replicant-a", dict(world.objects[REPLICANTS]["spec"]["selector"]["matchLabels"]), "new")
    replicant["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "flockmq-operator"
    world.put({**replicant, "status": {"containerStatuses": [crashed]}})
    world.objects[REPLICANTS]["status"] |= {"replicas": 3, "updatedReplicas": 1, "unavailableReplicas": 1}
    made = await status(world)
    said = "CrashLoopBackOff: " + words.splitlines()[1]
    assert said in condition(made, "CoresReady")["message"]
    assert condition(made, "ReplicantsReady")["reason"] == "Rolling"
    assert said in condition(made, "ReplicantsReady")["message"]
