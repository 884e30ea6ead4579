"""A pod's settings stand in a ConfigMap that never changes, and that is there for as long as somebody names it."""

import copy
import json

import pytest

from flockmq_operator.apply import carry_out, refusal_problems
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from flockmq_operator.resources.labels import POD_TEMPLATE
from flockmq_operator.workloads import template_of
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, converge, running, settings, settings_of, step
from unit.operator.test_resources_backup import CRON_JOB as BACKUP
from unit.operator.test_resources_backup import SPEC as BACKED_UP
from unit.operator.test_resources_backup import claim
from unit.operator.world import NAMESPACE, World, context

CHANGED: Manifest = {"mqtt": {"maxInflight": 7}}


def named(world: World, name: Ref) -> Ref:
    template = template_of(world.objects[name])
    assert template
    return settings_of(template)


def config_maps(world: World) -> set[Ref]:
    return {name for name in world.objects if name.kind == "ConfigMap"}


async def test_each_part_has_its_own_which_never_changes() -> None:
    world = await running()
    assert {name: sorted(settings(world, name)) for name in (CORES, REPLICANTS, REDIS)} == {
        CORES: ["core.toml"],
        REPLICANTS: ["replicant.toml"],
        REDIS: ["valkey.conf", "valkey.sh"],
    }
    assert len(config_maps(world)) == 3


async def test_those_of_before_are_there_while_a_pod_names_them() -> None:
    world = await running()
    former, kept = named(world, CORES), copy.deepcopy(world.objects[named(world, CORES)])
    for _ in range(3):
        await step(world, context(CHANGED))
        world.settle()
    old = next(pod for pod in world.pods("core") if settings_of(pod) == former)
    assert old["metadata"]["name"] == "demo-core-0", "the others were restarted"
    assert world.objects[former]["data"] == kept["data"]
    await converge(world, context(CHANGED))
    assert former not in world.objects


async def test_those_of_replicants_are_there_while_a_replica_set_names_them() -> None:
    world = await running()
    former = named(world, REPLICANTS)
    await converge(world, context(CHANGED))
    assert former in world.objects
    for name in [name for name in world.objects if name.kind == "ReplicaSet"]:
        if settings_of(world.objects[name]["spec"]["template"]) == former:
            del world.objects[name]
    await converge(world, context(CHANGED))
    assert former not in world.objects


async def test_those_of_a_job_are_there_until_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pod may still have to start, or be tried again; the next run waits for it, up to four hours."""
    world = World(claim())
    await converge(world, context(BACKED_UP))
    former, cron_job = named(world, BACKUP), world.objects[BACKUP]
    owner = {"kind": "CronJob", "name": BACKUP.name, "uid": cron_job["metadata"]["uid"], "controller": True}
    metadata = {"name": "demo-backup-29", "namespace": NAMESPACE, "ownerReferences": [owner]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
    world.put(job | {"spec": copy.deepcopy(cron_job["spec"]["jobTemplate"]["spec"])})
    cron_job["status"] = {"active": [{"kind": "Job", "name": "demo-backup-29", "namespace": NAMESPACE}]}
    monkeypatch.setattr("flockmq_operator.resources.config.BACKUP_SCRIPT", "# of the next release")
    for _ in range(3):
        await step(world, context(BACKED_UP))
    assert named(world, BACKUP) != former
    assert former in world.objects
    world.objects[BACKUP]["status"] = {}
    await converge(world, context(BACKED_UP))
    assert former not in world.objects


async def test_going_back_is_an_edit() -> None:
    world = await running()
    former = {name: named(world, name) for name in (CORES, REPLICANTS)}
    await step(world, context(CHANGED))
    world.settle()
    await step(world, context(CHANGED))
    world.settle()
    bad = world.objects[Ref("Pod", "demo-core-2")]
    bad["status"]["conditions"][0]["status"] = "False"
    assert not (await world.plan(context(CHANGED))).changes, "the others go on with what they have"
    plan = await step(world, context())
    assert plan.rolls == {"core"}
    world.settle()
    plan = await step(world, context())
    assert [live["metadata"]["name"] for live in plan.delete] == ["demo-core-2"]
    world.settle()
    await converge(world, context())
    assert {name: named(world, name) for name in (CORES, REPLICANTS)} == former


async def test_what_an_upgrade_of_the_operator_holds_keeps_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await running()
    before = {name: named(world, name) for name in (CORES, REPLICANTS)}
    monkeypatch.setattr("flockmq_operator.resources.node_config.REDIS_WAIT_S", 5)
    assert await world.plan(context()) == Plan(update_pending=True)
    await converge(world, context({"update": "Automatic"}))
    assert before[CORES] not in world.objects
    assert named(world, REPLICANTS) != before[REPLICANTS]


async def test_where_held_settings_are_lost_pods_get_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await running()
    lost = named(world, CORES)
    monkeypatch.setattr("flockmq_operator.resources.node_config.REDIS_WAIT_S", 5)
    del world.objects[lost]
    plan = await step(world, context())
    assert plan.rolls == {"core"}
    assert named(world, CORES) in world.objects


async def test_where_new_ones_are_refused_pods_stay_as_they_are() -> None:
    world = await running()
    before = world.objects[CORES]
    plan = await world.plan(context(CHANGED))
    (new,) = [ref(manifest) for manifest in plan.apply if str(ref(manifest)).startswith("ConfigMap demo-core")]
    world.refuses[new] = "exceeded quota"
    refusals = await carry_out(world, plan)
    (problem,) = refusal_problems(refusals, await world.observe(context(CHANGED)), NAMESPACE)
    assert problem.blocks == {"core"}
    assert "StatefulSet demo-core: its pods need ConfigMap demo-core" in problem.message
    assert world.objects[CORES] is before


async def test_no_pod_is_restarted_into_settings_that_are_not_there() -> None:
    world = await running()
    await step(world, context(CHANGED))
    world.settle()
    lost = named(world, CORES)
    del world.objects[lost]
    assert (await world.plan(context(CHANGED))).delete == ()
    await step(world, context(CHANGED))
    assert lost in world.objects
    assert [str(ref(live)) for live in (await world.plan(context(CHANGED))).delete] == ["Pod demo-core-2"]


class TestAClusterOfAnEarlierOperator:
    """It has one ConfigMap for all, which changed with the spec."""

    LEGACY = Ref("ConfigMap", "demo-config")

    async def earlier(self) -> World:
        world = await running()
        data: dict[str, str] = {}
        for name in (CORES, REPLICANTS, REDIS):
            data |= settings(world, name)
            own = named(world, name)
            live = json.loads(json.dumps(world.objects.pop(name)).replace(own.name, self.LEGACY.name))
            world.put(live)
            metadata = world.objects.pop(own)["metadata"]
        metadata = {**metadata, "name": self.LEGACY.name}
        world.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        for name in [name for name in world.objects if name.kind in ("Pod", "ReplicaSet")]:
            del world.objects[name]
        world.settle()
        assert self.LEGACY.name in world.objects[CORES]["metadata"]["annotations"][POD_TEMPLATE]
        return world

    async def test_it_is_taken_over_without_a_restart(self) -> None:
        world = await self.earlier()
        assert await world.plan(context()) == Plan(update_pending=True)

    async def test_its_pods_keep_theirs_until_it_is_their_turn(self) -> None:
        world = await self.earlier()
        former = copy.deepcopy(world.objects[self.LEGACY]["data"])
        for _ in range(5):
            await step(world, context(CHANGED))
            assert world.objects[self.LEGACY]["data"] == former
            world.settle()
        await converge(world, context(CHANGED))
        assert named(world, CORES) != self.LEGACY
        assert named(world, REDIS) == self.LEGACY, "nothing of Redis was changed"
