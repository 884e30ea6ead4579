"""Plans: empty for what is as it should be, one step at a time for what isn't, and none where a person has to act."""

import pytest

from flockmq_operator.apply import carry_out
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from unit.operator.world import NAMESPACE, SETTINGS, World, context

CORES = Ref("StatefulSet", "demo-core")
REPLICANTS = Ref("Deployment", "demo-replicant")
REDIS = Ref("StatefulSet", "demo-redis")
NEWER = Settings(
    **{name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__} | {"flockmq_broker_image": "broker:2"}
)


async def step(world: World, at: Context) -> Plan:
    plan = await world.plan(at)
    assert await carry_out(world, plan) == []
    return plan


async def converge(world: World, at: Context) -> None:
    for _ in range(20):
        if not (await step(world, at)).changes:
            return
        world.settle()
    raise AssertionError("it doesn't settle")


async def running(spec: Manifest | None = None) -> World:
    world = World()
    await converge(world, context(spec))
    return world


def settings_of(template: Manifest) -> Ref:
    (name,) = [volume["configMap"]["name"] for volume in template["spec"]["volumes"] if volume["name"] == "config"]
    return Ref("ConfigMap", name)


def settings(world: World, name: Ref) -> dict[str, str]:
    """The files of a workload's newest template."""
    found = world.objects[settings_of(world.objects[name]["spec"]["template"])]
    files: dict[str, str] = found["data"]
    assert found["immutable"] is True
    return files


def reasons(plan: Plan) -> list[str]:
    return [event.reason for event in plan.events]


async def test_the_plan_of_an_unchanged_cluster_is_empty() -> None:
    for spec in (
        {},
        {"autoscaling": {"maxReplicas": 4}},
        {"redis": {"external": {"url": "redis://r:6379/0"}}},
        {"redis": {"replicas": 3}},
    ):
        world = await running(spec)
        assert await world.plan(context(spec)) == Plan()


async def test_nodes_are_made_when_redis_answers() -> None:
    world = World()
    first = await step(world, context())
    assert first.waiting_for == "Redis (demo-redis) to be ready"
    assert REDIS in world.objects
    assert CORES not in world.objects
    world.settle()
    second = await step(world, context())
    assert {CORES, REPLICANTS} <= world.objects.keys()
    assert second.waiting_for == ""


async def test_running_nodes_stay_while_redis_is_away() -> None:
    world = await running()
    world.objects[REDIS]["status"]["readyReplicas"] = 0
    plan = await world.plan(context())
    assert not plan.changes
    assert plan.waiting_for


async def test_secrets_are_created_once_and_never_touched() -> None:
    world = await running()
    secrets = {name: item["data"] for name, item in world.objects.items() if name.kind == "Secret"}
    await converge(world, context({"image": "broker:9", "update": "Automatic"}))
    assert {name: item["data"] for name, item in world.objects.items() if name.kind == "Secret"} == secrets
    assert sorted(write for write in world.writes if "Secret" in write) == [
        "create Secret demo-api-key",
        "create Secret demo-cluster-key",
        "create Secret demo-links",
        "create Secret demo-mqtt-user",
        "create Secret demo-redis",
        "create Secret demo-redis-tls",
    ]


@pytest.mark.parametrize("name", ["demo-cluster-key", "demo-redis", "demo-api-key"])
async def test_a_secret_that_pods_use_is_not_made_anew(name: str) -> None:
    world = await running()
    del world.objects[Ref("Secret", name)]
    plan = await world.plan(context())
    assert not plan.changes
    assert plan.problems
    assert plan.problems[0].reason == "SecretMissing"
    assert name in plan.problems[0].message
    assert NAMESPACE in plan.problems[0].message
    assert "StatefulSet" not in plan.problems[0].message, "volumes may go with it"
    redis_may_stay = plan.problems[0].message.endswith(",app.kubernetes.io/component!=redis")
    assert redis_may_stay == (name != "demo-redis")


@pytest.mark.parametrize(
    "lost", [("demo-cluster-key",), ("demo-redis",), ("demo-api-key",), ("demo-api-key", "demo-redis")]
)
async def test_a_secret_is_made_anew_when_all_pods_wait_for_it(lost: tuple[str, ...]) -> None:
    world = await running()
    for name in lost:
        del world.objects[Ref("Secret", name)]
    for core in world.pods("core"):
        core["status"] = {"phase": "Pending"}
    (redis,) = world.pods("redis")
    redis["status"]["phase"] = "Running"  # it mounts its own Secret alone
    assert (await world.plan(context())).problems, "replicants run still"
    world.objects[REPLICANTS]["status"] |= {"readyReplicas": 0, "unavailableReplicas": 2}
    last = redis if "demo-redis" in lost else next(world.pods("core"))
    last["status"] = {"phase": "Running"}
    assert (await world.plan(context())).problems, "one of the old pods runs still"
    last["status"] = {"phase": "Pending"}
    plan = await world.plan(context())
    assert not plan.problems
    assert [ref(secret) for secret in plan.create] == [Ref("Secret", name) for name in lost]


async def test_scaling_changes_the_deployment_alone() -> None:
    world = await running()
    plan = await step(world, context({"replicants": {"replicas": 5}}))
    assert reasons(plan) == ["Scaled"]
    assert plan.events[0].message == "Scaled Deployment demo-replicant from 2 to 5"
    assert world.writes[-1] == f"apply {REPLICANTS}"


async def test_a_deleted_object_is_made_again() -> None:
    world = await running()
    del world.objects[Ref("Service", "demo")]
    plan = await step(world, context())
    assert plan.events[0].message == "Created Service demo"
    assert Ref("Service", "demo") in world.objects


async def test_drift_is_mended_and_told_apart_from_a_change_of_the_spec() -> None:
    world = await running()
    world.put({"kind": "MqttCluster", "metadata": {"name": "demo"}, "status": {"observedGeneration": 1}})
    world.objects[Ref("Service", "demo")]["spec"]["type"] = "NodePort"
    plan = await world.plan(context())
    assert reasons(plan) == ["Mended"]
    assert plan.events[0].message == "Service demo wasn't as the MqttCluster says; mended spec.type"
    world.objects[Ref("MqttCluster", "demo")]["status"]["observedGeneration"] = 0
    assert reasons(await world.plan(context())) == ["Updated"]


async def test_what_the_spec_asks_for_no_longer_is_deleted() -> None:
    world = await running({"autoscaling": {"maxReplicas": 4}})
    plan = await step(world, context())
    assert reasons(plan) == ["Deleted"]
    assert Ref("HorizontalPodAutoscaler", "demo") not in world.objects


async def test_the_reports_volume_stays_when_the_report_is_turned_off() -> None:
    world = await running()
    await converge(world, context({"report": {"enabled": False}}))
    assert Ref("CronJob", "demo-report") not in world.objects
    assert Ref("PersistentVolumeClaim", "demo-report") in world.objects


async def test_objects_of_others_are_neither_taken_nor_deleted() -> None:
    world = World(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "demo", "namespace": NAMESPACE}, "spec": {}}
    )
    plan = await world.plan(context())
    assert plan.problems
    assert plan.problems[0].reason == "NameTaken"
    assert "Service demo in namespace fleet" in plan.problems[0].message
    assert Ref("Service", "demo") not in [ref(manifest) for manifest in (*plan.apply, *plan.delete)]


async def test_what_is_left_of_an_earlier_cluster_of_the_name_is_waited_for() -> None:
    world = await running()
    world.objects[CORES]["metadata"]["ownerReferences"][0]["uid"] = "of an earlier one"
    plan = await world.plan(context())
    assert not plan.problems
    assert not plan.changes
    assert "earlier MqttCluster" in plan.waiting_for


@pytest.mark.parametrize("keys", [None, frozenset({"other"})])
async def test_a_missing_password_of_an_external_redis_is_a_problem(keys: frozenset[str] | None) -> None:
    external = {"url": "redis://r:6379/0", "passwordSecretRef": {"name": "shared", "key": "pw"}}
    world = World()
    if keys is not None:
        metadata = {"name": "shared", "namespace": NAMESPACE}
        world.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": dict.fromkeys(keys, "")})
    at = context({"redis": {"external": external}})
    plan = await world.plan(at)
    assert plan.problems
    assert plan.problems[0].reason == "SecretMissing"
    assert "Secret shared in namespace fleet" in plan.problems[0].message
    world.objects.clear()
    world.put({"kind": "Secret", "metadata": {"name": "shared"}, "data": {"pw": ""}})
    assert not (await world.plan(at)).problems


async def test_a_first_user_that_was_deleted_gets_a_new_password() -> None:
    world = await running()
    user = Ref("Secret", "demo-mqtt-user")
    password = world.objects.pop(user)["data"]["password"]
    await converge(world, context())
    assert world.objects[user]["data"]["password"] != password


async def test_a_first_user_is_made_where_a_change_of_the_spec_asks_for_one() -> None:
    world = await running({"authentication": {"chain": []}})
    user = Ref("Secret", "demo-mqtt-user")
    assert user not in world.objects
    assert user in [ref(manifest) for manifest in (await world.plan(context())).create]


@pytest.mark.parametrize(
    ("keys", "mend"), [(None, "create it, with the key tls.crt"), ({"tls.crt"}, "has no key tls.key: add it")]
)
async def test_a_missing_certificate_is_a_problem_that_names_the_field(keys: set[str] | None, mend: str) -> None:
    world = await running()
    if keys:
        world.put({"kind": "Secret", "metadata": {"name": "tls"}, "data": dict.fromkeys(keys, "")})
    listener = {"name": "mqtts", "type": "ssl", "port": 8883, "tls": {"secretName": "tls"}}
    plan = await world.plan(context({"listeners": [listener]}))
    assert plan.rolls == set()
    assert plan.problems
    assert plan.problems[0].message.startswith("spec.listeners[mqtts].tls.secretName: Secret tls in namespace fleet ")
    assert plan.problems[0].message.endswith(mend)


async def test_a_renewed_secret_changes_nothing() -> None:
    spec = {"listeners": [{"name": "mqtts", "type": "ssl", "port": 8883, "tls": {"secretName": "tls"}}]}
    secret: Manifest = {"kind": "Secret", "metadata": {"name": "tls"}, "data": {"tls.crt": "old", "tls.key": "old"}}
    world = World(secret)
    await converge(world, context(spec))
    world.objects[Ref("Secret", "tls")]["data"] = {"tls.crt": "new", "tls.key": "new"}
    assert await world.plan(context(spec)) == Plan()


class TestUpgradeOfTheOperator:
    def image(self, world: World, name: Ref) -> str:
        image: str = world.objects[name]["spec"]["template"]["spec"]["containers"][0]["image"]
        return image

    async def test_it_rolls_nothing_by_itself(self) -> None:
        world = await running()
        plan = await world.plan(context(settings=NEWER))
        assert plan == Plan(update_pending=True)

    async def test_scaling_is_no_reason_to_roll(self) -> None:
        world = await running()
        await converge(world, context({"replicants": {"replicas": 5}}, NEWER))
        assert self.image(world, REPLICANTS) == "broker:1"
        assert world.objects[REPLICANTS]["spec"]["replicas"] == 5

    async def test_the_held_template_is_what_drift_is_mended_to(self) -> None:
        world = await running()
        world.objects[REPLICANTS]["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"
        await converge(world, context(settings=NEWER))
        assert self.image(world, REPLICANTS) == "broker:1"

    async def test_a_change_of_the_spec_lets_it_through(self) -> None:
        world = await running()
        await converge(world, context({"mqtt": {"maxInflight": 7}}, NEWER))
        assert {self.image(world, name) for name in (CORES, REPLICANTS)} == {"broker:2"}

    async def test_automatic_lets_it_through(self) -> None:
        world = await running()
        await converge(world, context({"update": "Automatic"}, NEWER))
        assert {self.image(world, name) for name in (CORES, REPLICANTS)} == {"broker:2"}


class TestASecretThatWasRestored:
    KEY = Ref("Secret", "demo-cluster-key")

    @pytest.mark.parametrize("name", ["demo-cluster-key", "demo-redis", "demo-links", "demo-mqtt-user"])
    async def test_it_is_adopted_as_it_is(self, name: str) -> None:
        world = await running()
        secret = world.objects[Ref("Secret", name)]
        data, owners = secret["data"], secret["metadata"].pop("ownerReferences")
        secret["metadata"]["uid"] = "new"
        world.writes.clear()
        plan = await step(world, context())
        assert reasons(plan) == ["Adopted"]
        assert world.writes == [f"patch Secret {name}"]
        assert world.objects[Ref("Secret", name)]["metadata"]["ownerReferences"] == owners
        assert world.objects[Ref("Secret", name)]["data"] == data
        assert await world.plan(context()) == Plan()

    async def test_one_of_somebody_else_is_not(self) -> None:
        world = await running()
        metadata = world.objects[self.KEY]["metadata"]
        del metadata["ownerReferences"], metadata["labels"]
        plan = await world.plan(context())
        assert plan.problems[0].reason == "NameTaken"
        assert not plan.changes
