"""One thing at a time: an edit of all parts changes cores, then replicants, then Redis, each when that is whole."""

from datetime import timedelta
from typing import ClassVar

import pytest

from flockmq_operator.apply import carry_out
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, running, step
from unit.operator.test_problems import template
from unit.operator.world import World, context, pod

ALL: Manifest = {"imagePullSecrets": [{"name": "registry"}]}
"""An edit that shows in every pod."""


def unseen(world: World, name: Ref) -> None:
    """The controller has found nothing new of it from now on."""
    entry = {"manager": "kube-controller-manager", "subresource": "status", "time": world.now.isoformat()}
    world.objects[name]["metadata"].setdefault("managedFields", []).append(entry)


def unready(world: World, name: str) -> Manifest:
    found = world.objects[Ref("Pod", name)]
    found["status"]["conditions"][0] |= {"status": "False", "lastTransitionTime": world.now.isoformat()}
    return found


@pytest.mark.parametrize("replicas", [1, 3])
async def test_the_whole_of_an_edit(replicas: int) -> None:
    spec = {"redis": {"replicas": replicas}}
    world = await running(spec)
    at = context(spec | ALL)
    told = []
    for _ in range(40):
        plan = await step(world, at)
        assert len(plan.delete) <= 1, "one pod at a time"
        assert len(plan.rolls) <= 1, "one part at a time"
        assert not (plan.rolls and plan.delete)
        told += sorted(plan.rolls) + [live["metadata"]["name"] for live in plan.delete]
        if not plan.changes:
            break
        assert not (plan.delete and (await world.plan(at)).changes), "it has not come back yet"
        world.settle()
    cores = [f"demo-core-{number}" for number in (2, 1, 0)]
    redis = [f"demo-redis-{number}" for number in reversed(range(replicas))]
    assert told == ["core", *cores, "replicant", "redis", *redis]
    assert await world.plan(at) == Plan()


async def test_a_redis_that_grows_is_last_so_that_nodes_wait_for_two_replicas_before_there_are_five_pods() -> None:
    world = await running({"redis": {"replicas": 3}})
    at = context({"redis": {"replicas": 5}})
    rolled = []
    for _ in range(40):
        there = world.objects[REDIS]["spec"]["replicas"]
        plan = await step(world, at)
        rolled += [(part, there) for part in plan.rolls]
        if not plan.changes:
            break
        world.settle()
    assert rolled == [("core", 3), ("replicant", 3), ("redis", 3)]
    assert world.objects[REDIS]["spec"]["replicas"] == 5


class TestTheNextWaits:
    async def after_the_cores(self) -> World:
        """All cores have the new template, and the replicants' turn has come."""
        world = await running()
        for _ in range(4):
            await step(world, context(ALL))
            world.settle()
        return world

    async def test_for_the_last_core_to_be_ready(self) -> None:
        world = await self.after_the_cores()
        unready(world, "demo-core-0")
        plan = await world.plan(context(ALL))
        assert not plan.changes
        assert plan.waiting_for == "cores to be rolled out and ready before replicants are changed"
        world.settle()
        world.objects[Ref("Pod", "demo-core-0")]["status"]["conditions"][0]["status"] = "True"
        assert (await world.plan(context(ALL))).rolls == {"replicant"}

    async def test_not_for_one_that_does_not_come_back_at_all(self) -> None:
        world = await self.after_the_cores()
        unready(world, "demo-core-0")
        world.now += timedelta(minutes=11)
        assert (await world.plan(context(ALL))).rolls == {"replicant"}

    async def test_not_for_one_that_was_never_scheduled(self) -> None:
        world = await self.after_the_cores()
        core = unready(world, "demo-core-0")
        core["metadata"]["creationTimestamp"] = world.now.isoformat()
        core["status"] = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"}]}
        world.now += timedelta(minutes=9)
        assert not (await world.plan(context(ALL))).changes
        world.now += timedelta(minutes=2)
        assert (await world.plan(context(ALL))).rolls == {"replicant"}

    async def test_not_for_one_that_a_quota_refuses(self) -> None:
        world = await self.after_the_cores()
        del world.objects[Ref("Pod", "demo-core-0")]
        unseen(world, CORES)
        world.now += timedelta(minutes=9)
        assert not (await world.plan(context(ALL))).changes
        world.now += timedelta(minutes=2)
        assert (await world.plan(context(ALL))).rolls == {"replicant"}

    @pytest.mark.parametrize("there", [1, 2])
    async def test_not_for_a_replicant_that_does_not_come_or_is_not_among_those_listed(self, there: int) -> None:
        world = await running()
        spec = {"redis": {"image": "redis:2"}}
        world.objects[REPLICANTS]["status"] |= {"replicas": there, "updatedReplicas": there, "readyReplicas": 1}
        unseen(world, REPLICANTS)
        assert not (await world.plan(context(spec))).changes
        world.now += timedelta(minutes=11)
        assert (await world.plan(context(spec))).rolls == {"redis"}

    async def test_for_replicants_that_are_rolled_out(self) -> None:
        world = await self.after_the_cores()
        await step(world, context(ALL))
        assert not (await world.plan(context(ALL))).changes, "their controller hasn't seen it"
        world.settle()
        world.objects[REPLICANTS]["status"] |= {"replicas": 3, "updatedReplicas": 1}
        assert not (await world.plan(context(ALL))).changes
        world.settle()
        assert (await world.plan(context(ALL))).rolls == {"redis"}

    async def test_for_redis_that_another_edit_has_begun_to_change(self) -> None:
        world = await running({"redis": {"replicas": 3}})
        spec = {"redis": {"replicas": 3, "image": "redis:2"}}
        await step(world, context(spec))
        world.settle()
        plan = await step(world, context(spec | {"mqtt": {"maxInflight": 7}}))
        assert plan.rolls == set()
        assert [live["metadata"]["name"] for live in plan.delete] == ["demo-redis-2"]


class TestWhatIsBrokenIsFirst:
    MENDED: ClassVar[Manifest] = {"image": "broker:2", "redis": {"image": "redis:2"}}

    async def test_redis(self) -> None:
        world = await running()
        unready(world, "demo-redis-0")
        world.now += timedelta(minutes=2)
        plan = await step(world, context(self.MENDED))
        assert plan.rolls == {"redis"}
        world.settle()
        plan = await step(world, context(self.MENDED))
        assert [live["metadata"]["name"] for live in plan.delete] == ["demo-redis-0"]
        world.settle()
        assert (await world.plan(context(self.MENDED))).rolls == {"core"}

    async def test_replicants_whose_rollout_is_stuck(self) -> None:
        world = await running()
        self.begin(world, unavailableReplicas=1)
        name = f"{REPLICANTS.name}-new"
        world.put(pod(name, world.objects[REPLICANTS]["spec"]["template"]["metadata"]["labels"], ""))
        unready(world, name)
        assert not (await world.plan(context(self.MENDED))).changes
        world.now += timedelta(minutes=2)
        assert (await world.plan(context(self.MENDED))).rolls == {"replicant"}

    async def test_no_rollout_in_which_pods_only_end(self) -> None:
        world = await running()
        self.begin(world, unavailableReplicas=1)
        name = f"{REPLICANTS.name}-old"
        world.put(pod(name, world.objects[REPLICANTS]["spec"]["template"]["metadata"]["labels"], ""))
        unready(world, name)["metadata"]["deletionTimestamp"] = world.now.isoformat()
        world.now += timedelta(minutes=2)
        assert not (await world.plan(context(self.MENDED))).changes

    async def test_no_rollout_that_its_controller_has_not_seen(self) -> None:
        world = await running()
        unseen(world, REPLICANTS)
        world.now += timedelta(minutes=11)
        world.objects[REPLICANTS]["metadata"]["generation"] += 1
        assert not (await world.plan(context(self.MENDED))).rolls

    async def test_replicants_whose_rollout_a_quota_stops(self) -> None:
        world = await running()
        self.begin(world, replicas=2, updatedReplicas=0)
        unseen(world, REPLICANTS)
        assert not (await world.plan(context(self.MENDED))).changes
        world.now += timedelta(minutes=11)
        assert (await world.plan(context(self.MENDED))).rolls == {"replicant"}

    def begin(self, world: World, **status: int) -> None:
        """A rollout: those of before stay ready until a new one is."""
        rolling = {"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2}
        world.objects[REPLICANTS]["status"] |= {**rolling, **status}


async def test_a_ready_core_stays_while_redis_is_away() -> None:
    world = await running()
    await step(world, context(ALL))
    world.settle()
    unready(world, "demo-redis-0")
    assert not (await world.plan(context(ALL))).changes


@pytest.mark.parametrize(
    ("replicas", "away", "restarted"),
    [
        (3, "demo-redis-0", ["Pod demo-core-2"]),
        (1, "demo-redis-0", []),  # a core couldn't start without Redis
        (1, "demo-core-1", ["Pod demo-redis-0"]),
    ],
)
async def test_after_ten_minutes_what_is_away_holds_up_no_restart_of_the_other_kind(
    replicas: int, away: str, restarted: list[str]
) -> None:
    spec = {"redis": {"replicas": replicas}}
    world = await running(spec)
    changed = REDIS if "core" in away else CORES
    world.objects[changed]["status"]["updateRevision"] = "newer"
    unready(world, away)
    world.now += timedelta(minutes=9)
    assert (await world.plan(context(spec))).delete == ()
    world.now += timedelta(minutes=2)
    assert [str(ref(live)) for live in (await world.plan(context(spec))).delete] == restarted


async def test_a_part_that_somebody_must_mend_first_holds_up_no_other() -> None:
    world = await running()
    before = template(world, CORES)
    spec = ALL | {"authentication": {"users": {"secretName": "gone"}}}
    for _ in range(8):
        await carry_out(world, await world.plan(context(spec)))
        world.settle()
    assert template(world, CORES) == before
    assert template(world, REPLICANTS)["spec"]["imagePullSecrets"]
    assert template(world, REDIS)["spec"]["imagePullSecrets"]


async def test_one_pod_is_deleted_in_a_pass_though_two_parts_are_broken() -> None:
    world = await running()
    await step(world, context({"redis": {"image": "redis:2"}}))
    world.settle()
    world.objects[REDIS]["status"]["updateRevision"] = "newer"
    world.objects[CORES]["status"]["updateRevision"] = "newer"
    unready(world, "demo-redis-0")
    unready(world, "demo-core-1")
    plan = await world.plan(context({"redis": {"image": "redis:2"}}))
    assert [str(ref(live)) for live in plan.delete] == ["Pod demo-redis-0"]
