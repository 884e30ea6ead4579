"""A new cluster begins with a backup, once, and never beside volumes of an earlier one."""

import copy

from flockmq_operator.manifest import Manifest, Ref, annotation, ref
from flockmq_operator.plan import Plan
from flockmq_operator.resources.labels import RESTORED_FOR
from unit.operator.built import built, restricted_violations, templates
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, converge, reasons, running, step
from unit.operator.test_resources_backup import claim
from unit.operator.world import UID, World, context

JOB = Ref("Job", "demo-restore")
VOLUMES = (Ref("PersistentVolumeClaim", "data-demo-redis-0"), Ref("PersistentVolumeClaim", "data-demo-core-0"))
SPEC: Manifest = {"restore": {"claimName": "backups", "backup": "demo"}, "redis": {"replicas": 3}}


async def begun() -> World:
    """The job is made, and has not ended."""
    world = World(claim())
    await converge(world, context(SPEC))
    return world


def end(world: World, how: str) -> None:
    world.objects[JOB]["status"] = {"conditions": [{"type": how, "status": "True"}]}


def problem(plan: Plan) -> tuple[str, str]:
    (found,) = plan.problems
    return found.reason, found.message


def test_its_pod_meets_the_restricted_standard_and_connects_to_nothing() -> None:
    template = templates(SPEC)["restore"]
    assert list(restricted_violations(template["spec"])) == []
    (container,) = template["spec"]["containers"]
    assert {mount["mountPath"]: mount.get("readOnly") for mount in container["volumeMounts"]}["/backups"] is True
    policy = built(SPEC)[Ref("NetworkPolicy", "demo-restore")]["spec"]
    assert (policy["ingress"], policy["egress"]) == ([], [])
    assert not [volume for volume in template["spec"]["volumes"] if "projected" in volume or "secret" in volume]


async def test_the_first_volumes_are_filled_before_there_is_a_pod_that_uses_them() -> None:
    world = await begun()
    assert JOB in world.objects
    assert not {CORES, REDIS, REPLICANTS} & world.objects.keys()
    for name in VOLUMES:
        made = world.objects[name]
        assert annotation(made, RESTORED_FOR) == UID
        assert "ownerReferences" not in made["metadata"], "it outlives the MqttCluster"
    plan = await world.plan(context(SPEC))
    assert plan.waiting_for == "the backup demo of backups to be restored (Job demo-restore)"
    assert not plan.changes


async def test_the_volumes_are_those_that_the_pods_ask_for() -> None:
    world = await begun()
    made = {name: world.objects[name]["spec"] for name in VOLUMES}
    end(world, "Complete")
    await converge(world, context(SPEC))
    for name, workload in zip(VOLUMES, (REDIS, CORES), strict=True):
        (template,) = world.objects[workload]["spec"]["volumeClaimTemplates"]
        assert made[name] == template["spec"]
        assert world.objects[name]["metadata"]["labels"] == template["metadata"]["labels"]


async def test_when_the_job_is_done_all_is_made_and_nothing_is_restored_again() -> None:
    world = await begun()
    end(world, "Complete")
    await converge(world, context(SPEC))
    assert {CORES, REDIS, REPLICANTS} <= world.objects.keys()
    del world.objects[JOB]
    assert not (await world.plan(context(SPEC))).changes
    world.put(copy.deepcopy(built(SPEC)[JOB]))
    plan = await world.plan(context({"redis": {"replicas": 3}}))
    assert [ref(live) for live in plan.delete if live["kind"] == "Job"] == [JOB]


async def test_a_redis_that_somebody_deleted_comes_back_with_what_its_volumes_hold() -> None:
    """Its pods' volumes, all but the first, aren't a restore's; nor is there its job any more."""
    world = await begun()
    end(world, "Complete")
    await converge(world, context(SPEC))
    del world.objects[JOB], world.objects[REDIS]
    plan = await step(world, context(SPEC))
    assert plan.problems == ()
    assert REDIS in world.objects
    assert JOB not in world.objects


async def test_what_was_begun_is_done_first_though_the_spec_asks_for_it_no_longer() -> None:
    """The volume of the first core may be filled and that of Redis not: such a core would have the log begin anew."""
    world, without = await begun(), context({"redis": {"replicas": 3}})
    files = {name for name in world.objects if name.kind == "ConfigMap" and "-restore-" in name.name}
    await converge(world, without)
    assert {JOB, *files} <= world.objects.keys()
    assert not {CORES, REDIS} & world.objects.keys()
    assert (await world.plan(without)).waiting_for.startswith("the backup demo of backups to be restored")
    end(world, "Complete")
    await converge(world, without)
    assert {CORES, REDIS} <= world.objects.keys()
    assert not {JOB, *files} & world.objects.keys()


async def test_volumes_that_are_filled_by_half_are_not_run_though_the_spec_asks_for_no_restore() -> None:
    world, without = await begun(), context({"redis": {"replicas": 3}})
    end(world, "Failed")
    await converge(world, without)
    assert JOB in world.objects
    assert not {CORES, REDIS} & world.objects.keys()
    reason, message = problem(await world.plan(without))
    assert reason == "RestoreFailed"
    away = "pvc/data-demo-redis-0 pvc/data-demo-core-0 job/demo-restore"
    assert f"kubectl delete --namespace fleet {away}" in message


async def test_one_that_failed_is_said_and_begins_again_when_another_backup_is_named() -> None:
    world = await begun()
    end(world, "Failed")
    plan = await world.plan(context(SPEC))
    assert not plan.changes
    reason, message = problem(plan)
    assert reason == "RestoreFailed"
    assert "kubectl delete job --namespace fleet demo-restore" in message
    other = context({**SPEC, "restore": {"claimName": "backups", "backup": "demo/20261126T021700Z"}})
    plan = await step(world, other)
    assert ([ref(live) for live in plan.delete], reasons(plan)) == ([JOB], ["Deleted"])
    await converge(world, other)
    (container,) = world.objects[JOB]["spec"]["template"]["spec"]["containers"]
    assert {"name": "BACKUP", "value": "demo/20261126T021700Z"} in container["env"]


async def test_volumes_of_an_earlier_cluster_are_neither_filled_nor_used() -> None:
    earlier = await running()
    old = [item for name, item in earlier.objects.items() if name.kind == "PersistentVolumeClaim"]
    world = World(claim(), *(item for item in old if item["metadata"]["name"] == "data-demo-core-2"))
    await converge(world, context(SPEC))
    assert not {JOB, CORES, REDIS, *VOLUMES} & world.objects.keys()
    reason, message = problem(await world.plan(context(SPEC)))
    assert reason == "RestoreRefused"
    assert "kubectl delete pvc --namespace fleet data-demo-core-2" in message


async def test_a_claim_that_isnt_there_is_said() -> None:
    world = World()
    await converge(world, context(SPEC))
    assert not {JOB, CORES, REDIS, *VOLUMES} & world.objects.keys()
    reason, message = problem(await world.plan(context(SPEC)))
    assert reason == "ClaimMissing"
    assert message.startswith("spec.restore.claimName: PersistentVolumeClaim backups in namespace fleet")
