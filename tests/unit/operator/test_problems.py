"""What somebody has to mend keeps back the part that it concerns, and nothing else."""

from datetime import timedelta
from typing import ClassVar

import pytest

from flockmq_operator.apply import carry_out, refusal_problems
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.plan import Plan
from flockmq_operator.wrong_spec import without_what_is_wrong
from unit.operator.test_plan import CORES, REDIS, REPLICANTS, converge, reasons, running, step
from unit.operator.world import NAMESPACE, World, context

LISTENER: Manifest = {"name": "mqtts", "type": "ssl", "port": 8883, "tls": {"secretName": "gone"}}
MISSING: Manifest = {"listeners": [LISTENER]}


def template(world: World, name: Ref) -> Manifest:
    found: Manifest = world.objects[name]["spec"]["template"]
    return found


class TestASecretOfTheReplicantsIsMissing:
    async def test_their_pods_stay_and_the_cores_are_changed(self) -> None:
        world = await running()
        before = {name: template(world, name) for name in (CORES, REPLICANTS)}
        plan = await step(world, context({**MISSING, "cores": {"resources": {"limits": {"memory": "2Gi"}}}}))
        assert [problem.blocks for problem in plan.problems] == [{"replicant"}]
        assert template(world, REPLICANTS) == before[REPLICANTS]
        assert template(world, CORES) != before[CORES]

    async def test_pods_whose_template_is_not_known_any_more_are_left_alone(self) -> None:
        world = await running()
        before = template(world, REPLICANTS)
        world.objects[REPLICANTS]["metadata"]["annotations"] = {}
        await step(world, context(MISSING))
        assert template(world, REPLICANTS) == before

    async def test_their_number_follows(self) -> None:
        world = await running()
        await step(world, context({**MISSING, "replicants": {"replicas": 7}}))
        assert world.objects[REPLICANTS]["spec"]["replicas"] == 7

    async def test_certificates_are_renewed_and_the_key_is_rotated(self) -> None:
        world = await running()
        world.now += timedelta(days=60)
        plan = await step(world, context({**MISSING, "clusterKeyRotation": "now"}))
        assert {"CertificatesRenewed", "ClusterKeyRotated"} <= set(reasons(plan))

    async def test_they_are_rolled_out_when_it_is_there(self) -> None:
        world = await running()
        await converge(world, context(MISSING))
        before = template(world, REPLICANTS)
        world.put({"kind": "Secret", "metadata": {"name": "gone"}, "data": {"tls.crt": "", "tls.key": ""}})
        await converge(world, context(MISSING))
        assert template(world, REPLICANTS) != before
        assert await world.plan(context(MISSING)) == Plan()

    async def test_a_new_cluster_has_all_but_them(self) -> None:
        world = World()
        await converge(world, context(MISSING))
        assert {CORES, REDIS} <= world.objects.keys()
        assert REPLICANTS not in world.objects


async def test_what_cannot_be_read_keeps_nothing_else_from_being_renewed() -> None:
    world = await running()
    world.objects[Ref("Secret", "demo-links")]["data"]["core.crt"] = ""
    world.now += timedelta(days=60)
    plan = await step(world, context({"clusterKeyRotation": "now"}))
    assert sorted(reasons(plan)) == ["CertificatesRenewed", "ClusterKeyRotated"]
    assert [problem.blocks for problem in plan.problems] == [{"core", "replicant"}]


class TestABadField:
    BAD: ClassVar[Manifest] = {"config": "x =", "replicants": {"replicas": 4}, "service": {"type": "NodePort"}}

    async def test_nodes_stay_as_they_are_and_the_rest_is_as_the_spec_says(self) -> None:
        world = await running()
        before = {name: template(world, name) for name in (CORES, REPLICANTS)}
        at, wrong = without_what_is_wrong(context(self.BAD))
        for _ in range(3):
            plan = await world.plan(at, wrong)
            await carry_out(world, plan)
            world.settle()
        assert plan.problems[0].reason == "InvalidSpec"
        assert {name: template(world, name) for name in (CORES, REPLICANTS)} == before
        assert world.objects[REPLICANTS]["spec"]["replicas"] == 4
        assert world.objects[Ref("Service", "demo")]["spec"]["type"] == "NodePort"

    async def test_each_is_told(self) -> None:
        spec: Manifest = {"config": "x =", "authorization": {"sources": [{"type": None}]}}
        _, wrong = without_what_is_wrong(context(spec))
        assert sorted(problem.message.split(":")[0] for problem in wrong) == [
            "spec.authorization.sources[0].type",
            "spec.config",
        ]


@pytest.mark.parametrize(
    ("taken", "blocked"),
    [
        (Ref("Service", "demo"), set()),
        (Ref("Service", "demo-core"), {"core"}),
        (Ref("Secret", "demo-links"), {"core", "replicant"}),
        (Ref("ServiceAccount", "demo-report"), {"report"}),
    ],
)
async def test_a_name_that_is_taken_blocks_who_needs_it(taken: Ref, blocked: set[str]) -> None:
    stranger = {"kind": taken.kind, "metadata": {"name": taken.name, "namespace": NAMESPACE}}
    plan = await World(stranger).plan(context())
    assert [(problem.reason, problem.blocks) for problem in plan.problems] == [("NameTaken", blocked)]
    assert plan.changes
    assert taken not in [name for event in plan.events for name in event.about]


async def test_the_volume_that_cannot_shrink_stays_and_the_others_grow() -> None:
    world = await running({"redis": {"storage": {"size": "4Gi"}}})
    plan = await step(world, context({"cores": {"storage": {"size": "2Gi"}}}))
    assert [problem.reason for problem in plan.problems] == ["VolumeCannotShrink"]
    assert reasons(plan) == ["VolumeResized"] * 3


async def test_a_refused_object_is_a_problem_of_its_part() -> None:
    world = World()
    world.refuses[REDIS] = "spec.template: no"
    refusals = await carry_out(world, await world.plan(context()))
    (problem,) = refusal_problems(refusals, await world.observe(context()), NAMESPACE)
    assert problem.blocks == {"redis"}


async def test_a_refused_object_that_no_pod_needs_blocks_nobody() -> None:
    world = World()
    world.refuses[Ref("Service", "demo")] = world.refuses[Ref("NetworkPolicy", "demo-core")] = "no"
    refusals = await carry_out(world, await world.plan(context()))
    (problem,) = refusal_problems(refusals, await world.observe(context()), NAMESPACE)
    assert problem.blocks == set()


async def test_a_volume_that_cannot_be_made_is_none_that_cannot_grow() -> None:
    world = await running()
    for name in (Ref("PersistentVolumeClaim", "demo-report"), Ref("CronJob", "demo-report")):
        del world.objects[name]
    world.refuses[Ref("PersistentVolumeClaim", "demo-report")] = "exceeded quota"
    refusals = await carry_out(world, await world.plan(context()))
    (problem,) = refusal_problems(refusals, await world.observe(context()), NAMESPACE)
    assert (problem.reason, problem.blocks) == ("ApplyRefused", {"report"})


@pytest.mark.parametrize("floor", [None, 5])
async def test_replicas_are_never_below_the_floor(floor: int | None) -> None:
    spec: Manifest = {"autoscaling": {"minReplicas": 3, "maxReplicas": 9}, "replicants": {"replicas": 1}}
    world = World()
    await converge(world, context(spec, floor=floor))
    assert world.objects[REPLICANTS]["spec"]["replicas"] == (floor or 3)
