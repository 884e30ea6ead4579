"""The loop: from one object to a running cluster, and what it tells on the way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from flockmq_operator import passes, reconcile
from flockmq_operator.donors import reconcile as donors
from flockmq_operator.kube import Refused, Unreachable
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import AskNodes, Node
from flockmq_operator.passes import RESYNC_S, SETTLED_RESYNC_S
from flockmq_operator.plan import Plan
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import TAKES_CLIENTS
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster, pod

DEMO = Ref("MqttCluster", "demo")
KEY = (NAMESPACE, "demo")


def connections(count: int | None) -> AskNodes:
    async def answer(_: Context) -> list[Node] | None:
        return None if count is None else [Node("a", "replicant", count - 1), Node("b", "replicant", 1)]

    return answer


@asynccontextmanager
async def reconciling(
    world: World, count: int | None = None, metrics: Metrics | None = None
) -> AsyncIterator[Reconciler]:
    reconciler = Reconciler(world, SETTINGS, connections(count), metrics or Metrics())
    reconciler.wake(*KEY)
    try:
        yield reconciler
    finally:
        await reconciler.stop()


async def until(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not probe():  # noqa: ASYNC110 (the world has no events of its own)
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATHER_MIN_S", "RETRY_MIN_S"):
        monkeypatch.setattr(passes, name, 0.001)
    monkeypatch.setattr(reconcile, "GATHER_MAX_S", 0.001)


def condition(world: World, kind: str) -> Manifest:
    conditions = world.objects[DEMO].get("status", {}).get("conditions", ())
    return next((item for item in conditions if item["type"] == kind), {"status": "Unknown"})


def told(world: World) -> list[tuple[str, str]]:
    return [(event["type"], event["reason"]) for event in world.told]


async def test_one_object_becomes_a_cluster_that_is_ready() -> None:
    world = World(mqtt_cluster())
    async with reconciling(world) as reconciler:
        for _ in range(4):
            await until(lambda: DEMO in world.objects and "status" in world.objects[DEMO])
            world.settle()
            reconciler.wake(*KEY)
            await asyncio.sleep(0.02)
        await until(lambda: condition(world, "Ready")["status"] == "True")
    assert told(world)[0] == ("Normal", "Created")
    assert told(world)[-1] == ("Normal", "Ready")


async def test_a_spec_that_cannot_be_decoded_is_stalled_and_warned_of_once() -> None:
    world = World(mqtt_cluster({"cores": {"replicas": "many"}}))
    async with reconciling(world) as reconciler:
        await until(lambda: condition(world, "Stalled")["status"] == "True")
        for _ in range(5):
            reconciler.wake(*KEY)
            await asyncio.sleep(0.01)
    assert told(world) == [("Warning", "InvalidSpec")]
    assert "spec.cores.replicas" in world.told[0]["note"]
    assert world.writes == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"config": "x ="}, "spec.config: not valid TOML"),
        ({"authorization": {"sources": [{"type": None}]}}, "spec.authorization.sources[0].type: null is no value"),
    ],
)
async def test_a_bad_field_is_warned_of_once_and_only_who_reads_it_is_not_made(spec: Manifest, field: str) -> None:
    world = World(mqtt_cluster(spec))
    async with reconciling(world) as reconciler:
        await until(lambda: condition(world, "Stalled")["status"] == "True")
        for _ in range(5):
            world.settle()
            reconciler.wake(*KEY)
            await asyncio.sleep(0.01)
    (warning,) = [event for event in world.told if event["type"] == "Warning"]
    assert warning["reason"] == "InvalidSpec"
    assert field in warning["note"]
    assert Ref("StatefulSet", "demo-redis") in world.objects
    assert not {Ref("StatefulSet", "demo-core"), Ref("Deployment", "demo-replicant")} & world.objects.keys()


async def test_a_spec_of_which_nothing_can_be_made_is_told_with_the_errors_type_and_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Context) -> list[Manifest]:
        raise KeyError("unforeseen")

    monkeypatch.setattr(reconcile, "build", fail)
    world = World(mqtt_cluster())
    async with reconciling(world):
        await until(lambda: condition(world, "Stalled")["status"] == "True")
    assert told(world) == [("Warning", "InvalidSpec")]
    assert condition(world, "Stalled")["message"].endswith("KeyError: 'unforeseen'")


@pytest.mark.parametrize(
    ("error", "said"),
    [(KeyError("unforeseen"), "KeyError: 'unforeseen'"), (Refused(403, "jobs is forbidden"), "jobs is forbidden")],
)
async def test_a_pass_that_fails_is_told_and_what_was_said_before_still_stands(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object) -> Plan:
        raise error

    world = World(mqtt_cluster())
    async with reconciling(world) as reconciler:
        await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
        with monkeypatch.context() as broken:
            broken.setattr(reconcile, "make_plan", fail)
            world.told.clear()
            reconciler.wake(*KEY)
            await until(lambda: condition(world, "Stalled")["status"] == "True")
            for _ in range(5):
                reconciler.wake(*KEY)
                await asyncio.sleep(0.01)
        assert told(world) == [("Warning", "PassFailed")]
        assert said in condition(world, "Stalled")["message"]
        assert condition(world, "Ready")["status"] == "True"
        await until(lambda: condition(world, "Stalled")["status"] == "False")


async def test_the_first_pass_that_fails_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Plan:
        raise KeyError("unforeseen")

    monkeypatch.setattr(reconcile, "make_plan", fail)
    world = World(mqtt_cluster())
    async with reconciling(world):
        await until(lambda: condition(world, "Stalled")["status"] == "True")
    assert condition(world, "Stalled")["message"].endswith("KeyError: 'unforeseen'")


async def test_what_kubernetes_refuses_is_stalled_with_its_sentence_and_the_rest_is_applied() -> None:
    world = World(mqtt_cluster())
    world.refuses[Ref("Service", "demo")] = "provided port\n is already allocated"
    async with reconciling(world) as reconciler:
        await until(lambda: condition(world, "Stalled")["status"] == "True")
        assert condition(world, "Stalled")["message"].startswith(
            "Kubernetes refused, in namespace fleet: Service demo: provided port is already allocated."
        )
        assert Ref("Service", "demo-core") in world.objects
        (created,) = [event for event in world.told if event["reason"] == "Created"]
        assert "Secret demo-redis," in created["note"]
        assert "Service demo," not in created["note"]
        world.refuses.clear()
        reconciler.wake(*KEY)
        await until(lambda: condition(world, "Stalled")["status"] == "False")
    assert ("Normal", "Resumed") in told(world)


async def test_a_refused_template_holds_up_no_other_part() -> None:
    spec = {"imagePullSecrets": [{"name": "registry"}]}
    world = World(mqtt_cluster())
    async with reconciling(world) as reconciler:
        await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
        world.refuses[Ref("StatefulSet", "demo-core")] = "spec.template: no"
        world.put(mqtt_cluster(spec, generation=2, status=world.objects[DEMO]["status"]))
        replicants = Ref("Deployment", "demo-replicant")
        await until(
            lambda: (
                settled(world, reconciler)
                and "imagePullSecrets" in world.objects[replicants]["spec"]["template"]["spec"]
            )
        )
    assert condition(world, "CoresReady")["reason"] == "Blocked"
    assert len([event for event in world.told if event["reason"] == "ApplyRefused"]) == 1


def settled(world: World, reconciler: Reconciler) -> bool:
    world.settle()
    reconciler.wake(*KEY)
    return True


async def test_an_api_server_that_cannot_be_reached_is_asked_again() -> None:
    class Flaky(World):
        failures = 3

        async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
            if self.failures:
                self.failures -= 1
                raise Unreachable("HTTP 503")
            return await super().get(kind, namespace, name)

    world, metrics = Flaky(mqtt_cluster()), Metrics()
    async with reconciling(world, metrics=metrics):
        await until(lambda: "status" in world.objects[DEMO])
        await until(lambda: 'passes_total{result="changed"} 1\n' in metrics.text())
    assert 'passes_total{result="failed"} 3\n' in metrics.text()
    assert "passes_waiting 0\n" in metrics.text()


async def test_one_that_waits_for_its_pass_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "PASSES_MAX", 0)
    metrics = Metrics()
    async with reconciling(World(mqtt_cluster()), metrics=metrics):
        await until(lambda: "passes_waiting 1\n" in metrics.text())
    assert "passes_waiting 0\n" in metrics.text()


async def test_an_object_that_is_gone_is_forgotten_and_one_that_is_going_is_left_alone() -> None:
    going = mqtt_cluster()
    going["metadata"]["deletionTimestamp"] = "now"
    world, metrics = World(going), Metrics()
    async with reconciling(world, metrics=metrics) as reconciler:
        await asyncio.sleep(0.02)
        assert world.writes == []
        del world.objects[DEMO]
        reconciler.wake(*KEY)
        await until(lambda: not reconciler.busy_with())
        world.put(mqtt_cluster())
        reconciler.wake(*KEY)
        await until(lambda: metrics.conditions)
        del world.objects[DEMO]
        reconciler.wake(*KEY)
        await until(lambda: not metrics.conditions)


async def test_one_that_is_made_anew_while_the_last_look_found_it_gone_is_kept() -> None:
    class Late(World):
        """What it read is told a while later."""

        async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
            found = await super().get(kind, namespace, name)
            await asyncio.sleep(0.02)
            return found

    world = Late()
    async with reconciling(world) as reconciler:
        await asyncio.sleep(0.01)
        world.put(mqtt_cluster())
        reconciler.wake(*KEY)
        await until(lambda: world.writes)


async def test_the_floor_follows_the_connections_and_stays_where_nobody_answers() -> None:
    spec = {"autoscaling": {"minReplicas": 2, "maxReplicas": 9, "connectionsPerReplicant": 100}}
    autoscaler = Ref("HorizontalPodAutoscaler", "demo")
    world = World(mqtt_cluster(spec))
    async with reconciling(world, count=450):
        await until(lambda: autoscaler in world.objects and world.objects[autoscaler]["spec"]["minReplicas"] == 5)
        await until(lambda: world.objects[DEMO].get("status", {}).get("autoscalingFloor") == 5)
    async with reconciling(world, count=None):  # another operator has taken over, and no core answers it
        world.objects[DEMO].pop("status")
        await until(lambda: "status" in world.objects[DEMO])
        assert world.objects[DEMO]["status"]["autoscalingFloor"] == 5


async def test_the_floor_rises_with_connections_while_nothing_else_wakes_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(donors, "AUTOSCALING_LOOK_S", 0.001)
    count = 150

    async def answer(_: Context) -> list[Node]:
        return [Node("a", "replicant", count)]

    spec = {"autoscaling": {"minReplicas": 2, "maxReplicas": 9, "connectionsPerReplicant": 100}}
    world = World(mqtt_cluster(spec))
    reconciler = Reconciler(world, SETTINGS, answer, Metrics())
    try:
        reconciler.wake(*KEY)
        await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
        assert world.objects[DEMO]["status"]["autoscalingFloor"] == 2
        count = 450
        await until(lambda: world.objects[DEMO]["status"]["autoscalingFloor"] == 5)
    finally:
        await reconciler.stop()


async def test_one_that_is_as_it_should_be_is_left_alone_and_any_other_is_looked_at_soon() -> None:
    claim: Manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": "backups", "namespace": NAMESPACE}}
    world = World(mqtt_cluster({"backup": {"schedule": "0 3 * * *", "claimName": "backups"}}), claim)
    async with reconciling(world) as reconciler:
        assert (await reconciler._pass(KEY)).look_again_s == RESYNC_S, "it has just been begun"
        await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
        assert RESYNC_S < (await reconciler._pass(KEY)).look_again_s <= SETTLED_RESYNC_S
        del world.objects[ref(claim)]
        assert (await reconciler._pass(KEY)).look_again_s == RESYNC_S, "somebody has to make the claim"


@pytest.mark.parametrize(
    "what", [Ref("Secret", "certificates"), Ref("Secret", "demo-links"), Ref("PersistentVolumeClaim", "backups")]
)
async def test_one_is_looked_at_when_a_secret_or_a_claim_changes_that_matters_to_it(what: Ref) -> None:
    tls = {"name": "mqtts", "port": 8883, "tls": {"secretName": "certificates"}}
    backup = {"schedule": "0 3 * * *", "claimName": "backups"}
    world, metrics = World(mqtt_cluster({"listeners": [tls], "backup": backup})), Metrics()
    async with reconciling(world, metrics=metrics) as reconciler:
        assert reconciler.named_changed(NAMESPACE, what) == [], "it wasn't looked at yet"
        await until(lambda: condition(world, "Stalled")["status"] == "True")
        assert reconciler.named_changed("elsewhere", what) == []
        assert reconciler.named_changed(NAMESPACE, Ref("Secret", "backups")) == []
        world.objects[DEMO].pop("status")
        assert reconciler.named_changed(NAMESPACE, what) == ["demo"]
        await until(lambda: "status" in world.objects[DEMO])


async def test_all_of_a_namespace_are_looked_at_when_changes_may_have_been_missed() -> None:
    world = World(mqtt_cluster())
    async with reconciling(world) as reconciler:
        await until(lambda: "status" in world.objects[DEMO])
        for namespace in (NAMESPACE, None):
            world.objects[DEMO].pop("status")
            reconciler.wake_all(namespace)
            await until(lambda: "status" in world.objects[DEMO])


async def test_an_operator_that_is_told_to_stop_has_donors_come_back() -> None:
    async def answer(_: Context) -> list[Node]:
        return [Node("a", "replicant", 9, heard=True, rebalancing=Ref("Pod", "a") in world.objects)]

    world = World(mqtt_cluster())
    reconciler = Reconciler(world, SETTINGS, answer, Metrics())
    reconciler.wake(*KEY)
    await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
    labels = world.objects[Ref("Deployment", "demo-replicant")]["spec"]["template"]["metadata"]["labels"]
    for name in ("a", "b"):
        world.put(pod(name, labels, "1"))
    donor = world.objects[Ref("Pod", "a")]["metadata"]["labels"]
    await until(lambda: settled(world, reconciler) and donor[TAKES_CLIENTS] == "false")
    await reconciler.stop()
    await reconciler.donors.bring_back()
    assert donor[TAKES_CLIENTS] == "true"


async def test_a_donor_is_out_of_the_service_until_the_cluster_is_paused() -> None:
    async def answer(_: Context) -> list[Node]:
        return [Node("a", "replicant", 9, heard=True, rebalancing=Ref("Pod", "a") in world.objects)]

    def label() -> str:
        found: str = world.objects[Ref("Pod", "a")]["metadata"]["labels"][TAKES_CLIENTS]
        return found

    world = World(mqtt_cluster())
    reconciler = Reconciler(world, SETTINGS, answer, Metrics())
    try:
        reconciler.wake(*KEY)
        await until(lambda: settled(world, reconciler) and condition(world, "Ready")["status"] == "True")
        labels = world.objects[Ref("Deployment", "demo-replicant")]["spec"]["template"]["metadata"]["labels"]
        for name in ("a", "b"):
            world.put(pod(name, labels, "1"))
        await until(lambda: settled(world, reconciler) and label() == "false")
        assert condition(world, "Ready")["status"] == "True"
        world.put(mqtt_cluster({"pause": True}, 2, world.objects[DEMO]["status"]))
        await until(lambda: settled(world, reconciler) and label() == "true")
    finally:
        await reconciler.stop()
