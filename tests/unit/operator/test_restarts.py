"""Pods are restarted one at a time, and only while nothing is lost by it."""

from datetime import timedelta
from typing import ClassVar

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from unit.operator.test_plan import CORES, REDIS, converge, reasons, running, step
from unit.operator.world import World, context, pod


class TestCores:
    """They are restarted one at a time, and only while nothing is lost by it."""

    CHANGED: ClassVar[Manifest] = {"mqtt": {"maxInflight": 7}}

    async def outdated(self) -> World:
        world = await running()
        await step(world, context(self.CHANGED))
        world.settle()
        return world

    def restarted(self, plan: Plan) -> list[str]:
        return [live["metadata"]["name"] for live in plan.delete if live["kind"] == "Pod"]

    async def test_the_last_one_first_and_one_after_the_other(self) -> None:
        world = await self.outdated()
        order = []
        for left in (2, 1, 0):
            plan = await step(world, context(self.CHANGED))
            order += self.restarted(plan)
            assert reasons(plan) == ["RestartingCore"]
            assert plan.events[0].message.endswith(f"{left} more to restart")
            assert not self.restarted(await world.plan(context(self.CHANGED))), "it has not come back yet"
            world.settle()
        assert order == ["demo-core-2", "demo-core-1", "demo-core-0"]
        await converge(world, context(self.CHANGED))
        assert await world.plan(context(self.CHANGED)) == Plan()

    async def test_not_while_a_fresh_one_is_not_ready(self) -> None:
        world = await self.outdated()
        await step(world, context(self.CHANGED))
        world.settle()
        world.objects[Ref("Pod", "demo-core-2")]["status"]["conditions"][0]["status"] = "False"
        assert self.restarted(await world.plan(context(self.CHANGED))) == []

    async def test_not_while_one_is_ending(self) -> None:
        world = await self.outdated()
        world.objects[Ref("Pod", "demo-core-0")]["metadata"]["deletionTimestamp"] = "now"
        assert self.restarted(await world.plan(context(self.CHANGED))) == []

    async def test_a_broken_outdated_one_is_first_so_that_a_mended_spec_gets_through(self) -> None:
        world = await self.outdated()
        world.objects[Ref("Pod", "demo-core-0")]["status"]["conditions"][0]["status"] = "False"
        assert self.restarted(await world.plan(context(self.CHANGED))) == ["demo-core-0"]

    async def test_not_before_the_controller_has_seen_the_new_template(self) -> None:
        world = await self.outdated()
        world.objects[CORES]["metadata"]["generation"] += 1
        assert self.restarted(await world.plan(context(self.CHANGED))) == []

    async def test_pods_of_others_are_left_alone(self) -> None:
        world = await running()
        world.put(pod("stranger-0", {"app.kubernetes.io/component": "core"}, "old"))
        assert await world.plan(context()) == Plan()


class TestRedisOfABadTemplate:
    BAD: ClassVar[Manifest] = {"redis": {"image": "redis:typo"}}

    async def broken(self, spec: Manifest) -> World:
        """The pod of the bad template can't start, and the spec was mended."""
        world = await running(spec)
        await step(world, context({"redis": {**spec.get("redis", {}), **self.BAD["redis"]}}))
        await step(world, context(spec))
        world.settle()
        for redis in world.pods("redis"):
            redis["metadata"]["labels"]["controller-revision-hash"] = "bad"
            redis["status"]["conditions"][0]["status"] = "False"
        world.objects[REDIS]["status"]["readyReplicas"] = 0
        return world

    async def test_it_is_restarted_so_that_a_mended_spec_gets_through(self) -> None:
        world = await self.broken({})
        plan = await step(world, context())
        assert [str(ref(live)) for live in plan.delete] == ["Pod demo-redis-0"]
        assert reasons(plan) == ["RestartingRedis"]
        world.settle()
        assert await world.plan(context()) == Plan()

    async def test_it_is_left_alone_while_it_is_ready_or_of_the_newest_template(self) -> None:
        world = await self.broken({})
        (redis,) = world.pods("redis")
        redis["metadata"]["labels"]["controller-revision-hash"] = world.objects[REDIS]["status"]["updateRevision"]
        assert (await world.plan(context())).delete == ()
        redis["metadata"]["labels"]["controller-revision-hash"] = "bad"
        redis["status"]["conditions"][0]["status"] = "True"
        assert (await world.plan(context())).delete == ()

    REPLICATED: ClassVar[Manifest] = {"redis": {"replicas": 3}}

    async def stuck(self) -> World:
        """Three pods of a first template that couldn't start; Kubernetes has replaced the last one, and waits for it
        to become ready, as it waits for the other two."""
        world = await self.broken(self.REPLICATED)
        first, second, last = world.pods("redis")
        first["status"]["phase"] = "Pending"
        pulling = {"state": {"waiting": {"reason": "ImagePullBackOff"}}}
        second["status"] |= {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}, pulling]}
        last["status"]["phase"] = "Running"
        last["metadata"]["labels"]["controller-revision-hash"] = world.objects[REDIS]["status"]["updateRevision"]
        return world

    async def test_all_that_cannot_start_are_restarted_while_none_with_replicas_is_ready(self) -> None:
        world = await self.stuck()
        plan = await step(world, context(self.REPLICATED))
        assert [str(ref(live)) for live in plan.delete] == ["Pod demo-redis-0"]
        assert reasons(plan) == ["RestartingRedis"]
        plan = await step(world, context(self.REPLICATED))
        assert [str(ref(live)) for live in plan.delete] == ["Pod demo-redis-1"]
        world.settle()
        assert await world.plan(context(self.REPLICATED)) == Plan()

    async def test_one_that_is_being_deleted_holds_up_no_other(self) -> None:
        world = await self.stuck()
        next(world.pods("redis"))["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
        plan = await world.plan(context(self.REPLICATED))
        assert [str(ref(live)) for live in plan.delete] == ["Pod demo-redis-1"]

    async def test_one_that_loads_beside_a_ready_one_goes_when_it_takes_too_long(self) -> None:
        world = await self.stuck()
        loading, other, ready = world.pods("redis")
        since = (world.now - timedelta(minutes=9)).isoformat()
        for redis in (loading, other):
            redis["status"] = {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": since}],
            }
        ready["status"]["conditions"][0]["status"] = "True"
        assert (await world.plan(context(self.REPLICATED))).delete == ()
        world.now += timedelta(minutes=2)
        assert [str(ref(live)) for live in (await world.plan(context(self.REPLICATED))).delete] == ["Pod demo-redis-0"]

    async def test_pods_with_replicas_that_are_loading_are_left_alone(self) -> None:
        world = await self.stuck()
        for redis in world.pods("redis"):
            redis["status"] |= {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}] * 2}
        assert (await world.plan(context(self.REPLICATED))).delete == ()


async def test_a_redis_that_kubernetes_rolled_out_is_taken_over_without_a_restart() -> None:
    world = await running({"redis": {"replicas": 3}})
    redis = world.objects[REDIS]
    redis["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    plan = await step(world, context({"redis": {"replicas": 3}}))
    assert plan.delete == ()
    assert world.objects[REDIS]["spec"]["updateStrategy"] == {"type": "OnDelete"}
    world.settle()
    assert await world.plan(context({"redis": {"replicas": 3}})) == Plan()
