"""Plans: empty for what is as it should be, one step at a time for what isn't, and none where a person has to act."""

import json
from datetime import timedelta
from typing import ClassVar

import pytest

from flockmq_operator.apply import carry_out, refusal_problems
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.plan import Plan
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from unit.operator.world import NAMESPACE, SETTINGS, World, context, pod

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


class TestRedisTls:
    PASSWORDS, CERTIFICATES = Ref("Secret", "demo-redis"), Ref("Secret", "demo-redis-tls")

    @pytest.mark.parametrize("replicas", [1, 3])
    async def test_what_was_made_in_the_clear_stays_so_and_nothing_rolls(self, replicas: int) -> None:
        world = await running({"redis": {"replicas": replicas, "tls": False}})
        assert self.CERTIFICATES not in world.objects
        assert await world.plan(context({"redis": {"replicas": replicas}})) == Plan()
        plan = await world.plan(context({"redis": {"replicas": replicas}, "update": "Automatic"}))
        assert not plan.changes

    async def test_what_is_new_speaks_it_and_goes_on(self) -> None:
        world = await running()
        assert world.objects[self.CERTIFICATES]["data"].keys() == {"ca.crt", "ca.key", "redis.crt", "redis.key"}
        assert await world.plan(context({"redis": {"tls": True}})) == Plan()

    @pytest.mark.parametrize(("made", "said"), [(None, False), (True, False), (False, True)])
    async def test_it_cannot_change(self, made: bool | None, said: bool) -> None:
        world = await running({"redis": {} if made is None else {"tls": made}})
        plan = await world.plan(context({"redis": {"tls": said}}))
        assert not plan.changes
        assert plan.problems
        assert plan.problems[0].reason == "RedisTlsFixed"
        assert f"spec.redis.tls: {str(said).lower()}" in plan.problems[0].message

    async def test_certificates_that_were_deleted_are_made_anew(self) -> None:
        world = await running()
        before = world.objects.pop(self.CERTIFICATES)["data"]
        await converge(world, context())
        assert world.objects[self.CERTIFICATES]["data"]["ca.crt"] != before["ca.crt"]

    async def test_what_cannot_be_read_is_a_problem(self) -> None:
        world = await running()
        world.objects[self.CERTIFICATES]["data"]["redis.crt"] = ""
        plan = await world.plan(context())
        assert plan.problems
        assert plan.problems[0].message.startswith("Secret demo-redis-tls in namespace fleet: redis.crt isn't PEM")


class TestLinkCertificates:
    LINKS = Ref("Secret", "demo-links")

    async def test_they_are_renewed_before_they_expire_and_nothing_rolls(self) -> None:
        world = await running()
        before = world.objects[self.LINKS]["data"]
        world.now += timedelta(days=59)
        assert await world.plan(context()) == Plan()
        world.now += timedelta(days=1)
        world.writes.clear()
        plan = await step(world, context())
        assert reasons(plan) == ["CertificatesRenewed", "CertificatesRenewed"]
        assert world.writes == ["apply Secret demo-links", "apply Secret demo-redis-tls"]
        after = world.objects[self.LINKS]["data"]
        assert after["core.crt"] != before["core.crt"]
        assert after["ca.crt"] == before["ca.crt"]
        assert await world.plan(context()) == Plan()

    async def test_what_was_deleted_is_made_anew(self) -> None:
        world = await running()
        before = world.objects.pop(self.LINKS)["data"]
        await converge(world, context())
        assert world.objects[self.LINKS]["data"]["ca.crt"] != before["ca.crt"]

    async def test_what_cannot_be_read_is_a_problem(self) -> None:
        world = await running()
        world.objects[self.LINKS]["data"]["core.crt"] = ""
        plan = await world.plan(context())
        assert not plan.changes
        assert plan.problems
        assert plan.problems[0].message.startswith("Secret demo-links in namespace fleet: core.crt isn't PEM")

    async def test_what_says_no_role_stays_as_long_as_nodes_show_it(self) -> None:
        world = await running()
        links = world.objects[self.LINKS]
        made = {name: content for name, content in links["data"].items() if name.startswith("ca.")}
        links["data"] = made | {f"tls.{kind}": links["data"][f"core.{kind}"] for kind in ("crt", "key")}
        earlier = json.dumps(world.objects[CORES]).replace("core.crt", "tls.crt").replace("core.key", "tls.key")
        live = world.objects.pop(CORES)
        world.put(json.loads(earlier))
        await converge(world, context())
        assert {"tls.crt", "core.crt", "replicant.crt"} <= world.objects[self.LINKS]["data"].keys()
        world.put(live)
        await converge(world, context())
        assert world.objects[self.LINKS]["data"]["tls.crt"] == ""
        world.now += timedelta(days=1)
        await converge(world, context())
        assert "tls.crt" not in world.objects[self.LINKS]["data"]

    async def test_the_authoritys_key_is_mounted_nowhere(self) -> None:
        world = await running()
        assert "ca.key" in world.objects[self.LINKS]["data"]
        assert "ca.key" not in json.dumps([item for name, item in world.objects.items() if name.kind != "Secret"])


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

    async def test_a_class_that_cannot_grow_is_told_and_the_size_can_be_taken_back(self) -> None:
        world = await running()
        claim = Ref("PersistentVolumeClaim", "data-demo-redis-0")
        world.refuses[claim] = "only dynamically provisioned pvc can be resized"
        spec: Manifest = {"redis": {"storage": {"size": "4Gi"}}, "replicants": {"replicas": 4}}
        refusals = await carry_out(world, await world.plan(context(spec)))
        (problem,) = refusal_problems(refusals, NAMESPACE)
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

    async def test_they_go_when_those_that_stay_are_ready(self) -> None:
        """At once, where one of those that go is broken: no core is restarted then."""
        world = await running()
        world.objects[Ref("Pod", "demo-core-2")]["status"]["conditions"][0]["status"] = "False"
        plan = await step(world, context(self.FEWER))
        assert plan.waiting_for == ""
        assert world.objects[CORES]["spec"]["replicas"] == 1


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
