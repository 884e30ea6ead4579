"""A cluster without pods: it falls asleep part by part, and comes back with what it had."""

import pytest

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.status import conditions
from flockmq_operator.status.condition import Situation

from .test_plan import converge, running, settings
from .world import World, context, pod

ASLEEP: Manifest = {"hibernate": True, "backup": {"schedule": "0 3 * * *", "claimName": "backups"}}
CORES, REPLICANTS, REDIS = (
    Ref("StatefulSet", "demo-core"),
    Ref("Deployment", "demo-replicant"),
    Ref("StatefulSet", "demo-redis"),
)
BACKUPS = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "backups", "namespace": "fleet", "labels": {}},
    "spec": {},
}


async def cluster(said: Manifest | None = None) -> World:
    world = World(BACKUPS)
    await converge(world, context({key: value for key, value in (said or ASLEEP).items() if key != "hibernate"}))
    return world


def numbers(world: World) -> tuple[int, ...]:
    """Of replicants, cores and pods of Redis."""
    return tuple(world.objects[name]["spec"]["replicas"] for name in (REPLICANTS, CORES, REDIS))


async def step(world: World, spec: Manifest) -> str:
    """One pass; what it waits for."""
    plan = await world.plan(context(spec))
    for manifest in plan.apply:
        await world.apply(manifest)
    for live in plan.delete:
        await world.delete(live)
    world.settle()
    return plan.waiting_for


async def fallen_asleep() -> World:
    world = await cluster()
    await step(world, ASLEEP)
    await step(world, ASLEEP)
    world.end("core")
    await step(world, ASLEEP)
    world.end("redis")
    assert await step(world, ASLEEP) == ""
    return world


async def said(world: World, spec: Manifest) -> dict[str, tuple[bool | None, str]]:
    observed = await world.observe(context(spec))
    situation = Situation(1, context(spec), observed)
    return {found.type: (found.status, found.reason) for found in conditions(situation)}


async def test_replicants_end_first_then_cores_then_redis_each_when_those_before_are_gone() -> None:
    world = await cluster()
    labels = world.objects[REPLICANTS]["spec"]["template"]["metadata"]["labels"]
    world.put(pod("demo-replicant-x", labels, "1"))
    world.objects[Ref("Pod", "demo-replicant-x")]["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    await step(world, ASLEEP)
    assert numbers(world) == (0, 3, 1)
    assert await step(world, ASLEEP) == "1 pods of replicants to end", "it sends its clients away"
    assert numbers(world) == (0, 3, 1)
    world.end("replicant")
    await step(world, ASLEEP)
    assert numbers(world) == (0, 0, 1)
    assert await step(world, ASLEEP) == "3 pods of cores to end"
    assert (await said(world, ASLEEP))["CoresReady"] == (False, "Hibernating")
    world.end("core")
    await step(world, ASLEEP)
    assert numbers(world) == (0, 0, 0)
    world.end("redis")
    assert await step(world, ASLEEP) == ""
    assert not (await world.plan(context(ASLEEP))).changes


async def test_volumes_and_secrets_stay_and_jobs_are_suspended() -> None:
    before = await cluster()
    world = await fallen_asleep()
    for kind in ("PersistentVolumeClaim", "Secret"):
        kept = {name for name in before.objects if name.kind == kind}
        assert kept <= world.objects.keys()
    policy = world.objects[CORES]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenScaled"] == "Retain", "or the volumes of three cores that are too many would be deleted"
    assert world.objects[Ref("CronJob", "demo-backup")]["spec"]["suspend"] is True


async def test_it_is_ready_as_the_spec_asks_and_serves_nobody() -> None:
    found = await said(await fallen_asleep(), ASLEEP)
    for part in ("CoresReady", "ReplicantsReady", "RedisReady"):
        assert found[part] == (True, "Hibernated")
    assert found["Ready"] == (True, "AllReady")
    assert found["Available"] == (False, "Hibernated")
    assert found["Reconciling"][0] is False


async def test_it_wakes_with_redis_first_and_is_what_it_was() -> None:
    world = await fallen_asleep()
    awake = {key: value for key, value in ASLEEP.items() if key != "hibernate"}
    plan = await world.plan(context(awake))
    for manifest in plan.apply:
        await world.apply(manifest)
    assert (numbers(world), plan.waiting_for) == ((0, 0, 1), "Redis (demo-redis) to be ready")
    assert not (await world.plan(context(awake))).changes, "it isn't ready yet"
    world.settle()
    await converge(world, context(awake))
    assert numbers(world) == (2, 3, 1)
    policy = world.objects[CORES]["spec"]["persistentVolumeClaimRetentionPolicy"]
    assert policy["whenScaled"] == "Delete"
    assert world.objects[Ref("CronJob", "demo-backup")]["spec"]["suspend"] is False
    assert (await said(world, awake))["Available"] == (True, "Serving")


async def test_an_edit_made_meanwhile_holds_when_it_wakes() -> None:
    world = await fallen_asleep()
    edited = ASLEEP | {"mqtt": {"maxInflight": 7}, "replicants": {"replicas": 5}}
    await step(world, edited)
    await step(world, edited)
    assert numbers(world) == (0, 0, 0)
    await converge(world, context({key: value for key, value in edited.items() if key != "hibernate"}))
    assert numbers(world) == (5, 3, 1)


async def test_it_falls_asleep_though_somebody_has_to_act_for_its_cores_and_they_stay_so_until_then() -> None:
    world = await cluster()
    edited = ASLEEP | {"image": "elsewhere.example/broker:1", "cores": {"replicas": 5}}
    await step(world, edited)
    await step(world, edited)
    assert numbers(world) == (0, 0, 1)
    world.end("core")
    await step(world, edited)
    assert numbers(world) == (0, 0, 0)
    world.end("redis")
    awake = {key: value for key, value in edited.items() if key != "hibernate"}
    await step(world, awake)
    await step(world, awake)
    assert numbers(world) == (2, 0, 1)


async def test_the_redis_of_somebody_else_is_left_alone() -> None:
    spec: Manifest = {"redis": {"external": {"url": "redis://there:6379"}}}
    world = await running(spec)
    await step(world, spec | {"hibernate": True})
    await step(world, spec | {"hibernate": True})
    world.end("core")
    await step(world, spec | {"hibernate": True})
    assert (world.objects[REPLICANTS]["spec"]["replicas"], world.objects[CORES]["spec"]["replicas"]) == (0, 0)
    assert (await said(world, spec | {"hibernate": True}))["RedisReady"] == (True, "External")


@pytest.mark.parametrize("when", ["while it sleeps", "as it falls asleep"])
async def test_fewer_cores_of_one_that_sleeps_are_removed_when_it_has_woken(when: str) -> None:
    """What was trimmed from the log may be in the volumes of those that go alone."""
    fewer = {**ASLEEP, "cores": {"replicas": 1}}
    awake = {key: value for key, value in fewer.items() if key != "hibernate"}
    if when == "while it sleeps":
        world = await fallen_asleep()
    else:
        world = await cluster()
        for component in ("replicant", "core", "redis"):
            await step(world, fewer)
            world.end(component)
    assert [await step(world, fewer) for _ in range(3)][-1] == "", "it sleeps, and waits for nothing"
    assert numbers(world) == (0, 0, 0)
    for _ in range(3):
        if not numbers(world)[1]:
            await step(world, awake)
    assert numbers(world)[1] == 3
    assert "cores = 3" in settings(world, CORES)["core.toml"]
    for last in (2, 1):
        await converge(world, context(awake))
        assert numbers(world)[1] == last
        del world.objects[Ref("Pod", f"demo-core-{last}")]
    assert "cores = 1" in settings(world, CORES)["core.toml"]
