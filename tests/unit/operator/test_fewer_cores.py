"""Cores are removed while those that stay are ready and know the new number."""

from typing import ClassVar

from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from unit.operator.test_plan import CORES, running, settings, step
from unit.operator.world import context


class TestFewerCores:
    FEWER: ClassVar[Manifest] = {"cores": {"replicas": 1}}

    async def test_cores_stay_while_one_that_is_to_stay_is_not_ready(self) -> None:
        world = await running()
        world.objects[Ref("Pod", "demo-core-0")]["status"]["conditions"][0]["status"] = "False"
        plan = await step(world, context(self.FEWER))
        assert plan.waiting_for == "core demo-core-0 to be ready before cores are removed"
        assert not plan.changes
        del world.objects[Ref("Pod", "demo-core-0")]
        assert (await world.plan(context(self.FEWER))).waiting_for == plan.waiting_for

    async def test_a_mended_spec_gets_through_with_the_number_of_cores_that_there_are(self) -> None:
        world = await running()
        world.objects[Ref("Pod", "demo-core-0")]["status"]["conditions"][0]["status"] = "False"
        await step(world, context({**self.FEWER, "mqtt": {"maxInflight": 7}}))
        assert world.objects[CORES]["spec"]["replicas"] == 3
        config = settings(world, CORES)["core.toml"]
        assert "max_inflight = 7" in config
        assert "cores = 3" in config

    async def test_those_that_stay_are_restarted_first_with_the_new_number(self) -> None:
        """While one restarts the others are a majority of the former number, and of the new one."""
        world = await running()
        fewer = {"cores": {"replicas": 2}}
        plan = await step(world, context(fewer))
        assert plan.waiting_for == "core demo-core-1 to know the new number of cores before others are removed"
        assert "cores = 2" in settings(world, CORES)["core.toml"]
        world.settle()
        for name in ("demo-core-1", "demo-core-0"):
            plan = await step(world, context(fewer))
            assert [str(ref(live)) for live in plan.delete] == [f"Pod {name}"]
            assert not (await world.plan(context(fewer))).changes, "it has not come back yet"
            assert world.objects[CORES]["spec"]["replicas"] == 3
            world.settle()
        plan = await step(world, context(fewer))
        assert (plan.delete, plan.waiting_for) == ((), "")
        assert world.objects[CORES]["spec"]["replicas"] == 2

    async def test_none_goes_while_one_that_was_restarted_is_not_ready(self) -> None:
        world = await running()
        fewer = {"cores": {"replicas": 2}}
        await step(world, context(fewer))
        world.settle()
        await step(world, context(fewer))
        world.settle()
        for name in ("demo-core-1", "demo-core-2"):
            world.objects[Ref("Pod", name)]["status"]["conditions"][0]["status"] = "False"
        plan = await world.plan(context(fewer))
        assert not plan.changes
        assert plan.waiting_for == "core demo-core-1 to know the new number of cores before others are removed"

    async def test_a_broken_one_goes_before_those_that_stay_are_restarted(self) -> None:
        """No core is restarted while one isn't ready."""
        world = await running()
        world.objects[Ref("Pod", "demo-core-2")]["status"]["conditions"][0]["status"] = "False"
        plan = await step(world, context(self.FEWER))
        assert plan.waiting_for == "core demo-core-2 to be gone before the next one goes"
        assert world.objects[CORES]["spec"]["replicas"] == 2
        world.settle()
        assert not (await step(world, context(self.FEWER))).changes, "it ends"
        del world.objects[Ref("Pod", "demo-core-2")]
        plan = await step(world, context(self.FEWER))
        assert [str(ref(live)) for live in plan.delete] == ["Pod demo-core-0"]

    async def test_they_go_one_at_a_time(self) -> None:
        world = await running({"cores": {"replicas": 5}})
        at = context({"cores": {"replicas": 3}})
        for _ in range(4):
            await step(world, at)
            world.settle()
        assert world.objects[CORES]["spec"]["replicas"] == 5
        for last in (4, 3):
            await step(world, at)
            assert world.objects[CORES]["spec"]["replicas"] == last
            world.settle()
            assert not (await world.plan(at)).changes, "it sends its clients away"
            del world.objects[Ref("Pod", f"demo-core-{last}")]
        await step(world, at)  # the former settings go
        assert await world.plan(at) == Plan()
