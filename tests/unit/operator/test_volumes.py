"""Volumes grow by their claims; they never shrink."""

import pytest

from flockmq_operator.apply import carry_out, refusal_problems
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.plan import Plan
from unit.operator.test_plan import REPLICANTS, converge, reasons, running, step
from unit.operator.world import NAMESPACE, context


class TestVolumes:
    async def test_they_grow_by_their_claims(self) -> None:
        world = await running()
        at = context({"cores": {"storage": {"size": "4Gi"}}})
        plan = await step(world, at)
        assert reasons(plan) == ["VolumeResized"] * 3
        claim = world.objects[Ref("PersistentVolumeClaim", "data-demo-core-1")]
        assert claim["spec"]["resources"]["requests"]["storage"] == "4Gi"
        assert not (await world.plan(at)).changes

    async def test_they_never_shrink(self) -> None:
        world = await running({"redis": {"storage": {"size": "4Gi"}}})
        plan = await world.plan(context())
        assert plan.problems
        assert plan.problems[0].reason == "VolumeCannotShrink"
        assert "data-demo-redis-0" in plan.problems[0].message
        assert "4Gi" in plan.problems[0].message

    async def test_a_claim_that_the_operator_made_keeps_its_owner(self) -> None:
        world = await running()
        report = Ref("PersistentVolumeClaim", "demo-report")
        before = world.objects[report]["metadata"]
        await converge(world, context({"report": {"storage": {"size": "4Gi"}}}))
        after = world.objects[report]
        assert after["spec"]["resources"]["requests"]["storage"] == "4Gi"
        assert after["metadata"]["ownerReferences"] == before["ownerReferences"]
        assert after["metadata"]["labels"] == before["labels"]

    async def test_that_of_a_report_that_was_turned_off_is_left_alone(self) -> None:
        world = await running()
        await converge(world, context({"report": {"enabled": False}}))
        plan = await world.plan(context({"report": {"enabled": False, "storage": {"size": "4Gi"}}}))
        assert not plan.changes

    async def test_a_class_that_cannot_grow_is_told_and_the_size_can_be_taken_back(self) -> None:
        world = await running()
        claim = Ref("PersistentVolumeClaim", "data-demo-redis-0")
        world.refuses[claim] = "only dynamically provisioned pvc can be resized"
        spec: Manifest = {"redis": {"storage": {"size": "4Gi"}}, "replicants": {"replicas": 4}}
        refusals = await carry_out(world, await world.plan(context(spec)))
        (problem,) = refusal_problems(refusals, await world.observe(context()), NAMESPACE)
        assert (problem.reason, problem.blocks) == ("VolumeCannotGrow", frozenset())
        assert f"{claim} in namespace fleet can't grow: only dynamically" in problem.message
        assert world.objects[REPLICANTS]["spec"]["replicas"] == 4
        del spec["redis"]
        assert await world.plan(context(spec)) == Plan()

    @pytest.mark.parametrize(("size", "taken_back"), [("4Gi", True), ("8Gi", False), ("2Gi", False), ("1Gi", False)])
    async def test_growth_that_did_not_come_is_taken_back(self, size: str, taken_back: bool) -> None:
        world = await running({"redis": {"storage": {"size": "8Gi"}}})
        claim = world.objects[Ref("PersistentVolumeClaim", "data-demo-redis-0")]
        claim["status"] = {"capacity": {"storage": "2Gi"}}
        plan = await step(world, context({"redis": {"storage": {"size": size}}}))
        assert (claim["spec"]["resources"]["requests"]["storage"] == "4Gi") == taken_back
        assert [problem.reason for problem in plan.problems] == ["VolumeCannotShrink"] * (size in ("2Gi", "1Gi"))
        assert all("to more than 2Gi" in problem.message for problem in plan.problems)
