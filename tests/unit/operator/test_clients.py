"""By what the clients' Service selects: whatever is upgraded, rolled back or rolled out, it leads to all pods that
take clients. (Cores or replicants: test_custom_pods.py.)"""

from collections.abc import Awaitable, Callable

import pytest

from flockmq_operator import plan as planning
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.resources.labels import SELECTS, TAKES_CLIENTS
from flockmq_operator.workloads import WORKLOADS
from unit.operator.test_plan import reasons, running, step
from unit.operator.world import World, context, pod

SERVICE = Ref("Service", "demo")
REPLICANTS = Ref("Deployment", "demo-replicant")
CORES_ALONE: Manifest = {"replicants": {"replicas": 0}}


def selects(world: World) -> bool:
    """Whether the Service selects by the label."""
    return TAKES_CLIENTS in world.objects[SERVICE]["spec"]["selector"]


def leads_to_all(world: World) -> bool:
    """Of those that it led to without the label."""
    selector = world.objects[SERVICE]["spec"]["selector"]
    bare = {key: value for key, value in selector.items() if key != TAKES_CLIENTS}
    sets = [item for item in world.objects.values() if item["kind"] == "ReplicaSet" and item["status"]["replicas"]]
    pods = [item for item in world.objects.values() if item["kind"] == "Pod"]
    labels = [item["metadata"]["labels"].items() for item in (*sets, *pods)]
    return all(selector.items() <= found for found in labels if bare.items() <= found)


Steps = Callable[[Manifest], Awaitable[int]]


def steps_of(world: World) -> Steps:
    """A function that has the operator do all that a spec asks for, step by step. It returns how many steps."""

    async def steps(spec: Manifest) -> int:
        for number in range(20):
            changed = (await step(world, context(spec))).changes
            assert leads_to_all(world)
            if not changed:
                return number
            world.settle()
            assert leads_to_all(world)
        raise AssertionError("it doesn't settle")

    return steps


def unlabelled(at: Context) -> list[Manifest]:
    """What an operator that doesn't know the label makes."""
    found = build(at)
    for manifest in found:
        if manifest["kind"] in WORKLOADS:
            manifest["spec"]["template"]["metadata"]["labels"].pop(TAKES_CLIENTS, None)
    return found


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Callable[[World], Steps]:
    """`steps_of` an operator that doesn't know the label."""

    def steps_of_earlier(world: World) -> Steps:
        async def steps(spec: Manifest) -> int:
            with monkeypatch.context() as patch:
                patch.setattr(planning, "build", unlabelled)
                patch.setattr(planning, "select_by_label", lambda *_: None)
                return await steps_of(world)(spec)

        return steps

    return steps_of_earlier


@pytest.mark.parametrize("spec", [{}, CORES_ALONE])
async def test_the_service_of_a_new_cluster_selects_by_the_label_and_nothing_else_does(spec: Manifest) -> None:
    world = World()
    await step(world, context(spec))
    assert selects(world)
    world = await running(spec)
    assert selects(world)
    assert world.objects[SERVICE]["metadata"]["annotations"] == {SELECTS: TAKES_CLIENTS}
    others = [item["spec"] for name, item in world.objects.items() if name != SERVICE and "spec" in item]
    selectors = [spec[key] for spec in others for key in ("selector", "podSelector") if key in spec]
    assert selectors
    assert TAKES_CLIENTS not in str(selectors)


async def test_annotations_of_the_spec_stay_beside_the_operators() -> None:
    world = await running({"service": {"annotations": {"cloud.example/id": "7"}}})
    assert world.objects[SERVICE]["metadata"]["annotations"] == {SELECTS: TAKES_CLIENTS, "cloud.example/id": "7"}


@pytest.mark.parametrize("part", [{}, CORES_ALONE])
async def test_no_pod_is_left_out_by_an_upgrade_or_a_rollback_of_the_operator(
    part: Manifest, earlier: Callable[[World], Steps]
) -> None:
    world = World()
    before, now = earlier(world), steps_of(world)
    await before(part)
    assert await now(part) == 0, "the upgrade changes nothing"
    assert not selects(world)
    edited = {**part, "mqtt": {"maxInflight": 7}}
    await now(edited)
    assert selects(world), "all pods are new"
    await before(edited)
    assert not selects(world), "the former selector is put back"
    await now(edited)
    assert selects(world)
    again = {**part, "mqtt": {"maxInflight": 8}}
    await before(again)
    assert not selects(world)
    await now(again)
    assert not selects(world), "pods of the earlier operator have no label"


async def test_while_pods_of_before_are_replaced_the_service_leads_to_them_too(
    earlier: Callable[[World], Steps],
) -> None:
    world = World()
    await earlier(world)({})
    edited = context({"replicants": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}})
    await step(world, edited)
    assert TAKES_CLIENTS in world.objects[REPLICANTS]["spec"]["template"]["metadata"]["labels"]
    assert not (await step(world, edited)).changes
    assert not selects(world)
    world.settle()
    world.put({"kind": "MqttCluster", "metadata": {"name": "demo"}, "status": {"observedGeneration": 1}})
    plan = await step(world, edited)
    assert selects(world)
    assert reasons(plan) == ["Updated"], "nobody has meddled"


async def test_a_pod_that_was_left_out_keeps_the_service_from_selecting_by_the_label(
    earlier: Callable[[World], Steps],
) -> None:
    world = World()
    await steps_of(world)({})
    labels = world.objects[REPLICANTS]["spec"]["template"]["metadata"]["labels"]
    donor = pod("demo-replicant-a", {**labels, TAKES_CLIENTS: "false"}, "1")
    world.put(donor)
    assert not (await world.plan(context())).changes
    await earlier(world)({})
    await steps_of(world)({})
    assert not selects(world)
    donor["metadata"]["labels"][TAKES_CLIENTS] = "true"
    await steps_of(world)({})
    assert selects(world)


async def test_a_template_without_the_label_that_has_pods_again_is_seen() -> None:
    world = await running()
    (replica_set,) = [item for item in world.objects.values() if item["kind"] == "ReplicaSet"]
    del replica_set["spec"]["template"]["metadata"]["labels"][TAKES_CLIENTS]
    await step(world, context())
    assert not selects(world)
    assert SELECTS not in world.objects[SERVICE]["metadata"].get("annotations", {})


# Where pods listen


def open_ports(world: World, policy: str) -> set[int]:
    """At which clients may connect to its pods."""
    rules = world.objects[Ref("NetworkPolicy", policy)]["spec"]["ingress"]
    return {entry["port"] for rule in rules if "from" not in rule for entry in rule["ports"]}


def clients_ports(manifest: Manifest) -> set[int]:
    """At which pods of a template, or a pod, listen to clients."""
    found = manifest["spec"].get("template", manifest)["spec"].get("containers", ())
    return {port["containerPort"] for each in found for port in each["ports"]} & {1883, 1884}


def listening(world: World, component: str) -> set[int]:
    pods = [
        item
        for item in world.objects.values()
        if item["kind"] in (*WORKLOADS, "ReplicaSet", "Pod")
        and item["metadata"]["labels"]["app.kubernetes.io/component"] == component
        and (item["kind"] != "ReplicaSet" or item["status"]["replicas"])
    ]
    return {port for item in pods for port in clients_ports(item)}


OTHER_PORT: Manifest = {"listeners": [{"name": "mqtt", "port": 1884}], "mqtt": {"maxInflight": 7}}
"""Cores are rolled out first; replicants of before go on meanwhile."""


@pytest.mark.parametrize(
    ("before", "after", "component"),
    [
        ({}, OTHER_PORT, "replicant"),
        (CORES_ALONE, CORES_ALONE | OTHER_PORT, "core"),
        (CORES_ALONE, {}, "core"),
    ],
)
async def test_a_port_is_open_for_as_long_as_pods_listen_there(
    before: Manifest, after: Manifest, component: str
) -> None:
    world = await running(before)
    policy = f"demo-{component}"
    for _ in range(40):
        plan = await step(world, context(after))
        assert listening(world, component) <= open_ports(world, policy)
        if not plan.changes:
            break
        world.settle()
    assert open_ports(world, policy) == listening(world, component)


def leads_to(world: World) -> dict[str, int]:
    """Name and number of the Service's ports."""
    return {port["name"]: port["port"] for port in world.objects[SERVICE]["spec"]["ports"]}


def listeners(manifest: Manifest) -> dict[str, int]:
    """The like of a workload's template."""
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    return {name: port for name, port in ports.items() if name not in ("link", "management")}


@pytest.mark.parametrize("spec", [OTHER_PORT, {**OTHER_PORT, "listeners": [{"name": "other", "port": 1883}]}])
async def test_the_service_leads_to_listeners_that_there_are_until_others_take_their_turn(spec: Manifest) -> None:
    world = await running()
    for _ in range(40):
        plan = await step(world, context(spec))
        assert leads_to(world) == listeners(world.objects[REPLICANTS])
        if not plan.changes:
            break
        world.settle()
    assert leads_to(world) == {each["name"]: each["port"] for each in spec["listeners"]}


@pytest.mark.parametrize("is_known", [True, False])
async def test_the_service_leads_to_pods_that_stay_because_a_secret_of_others_is_missing(is_known: bool) -> None:
    world = await running()
    listener = {"name": "mqtts", "type": "ssl", "port": 8883, "nodePort": 30883, "tls": {"secretName": "gone"}}
    spec = {"listeners": [listener], "service": {"type": "NodePort"}}
    if not is_known:
        world.objects[REPLICANTS]["metadata"]["annotations"] = {}
    await step(world, context(spec))
    assert leads_to(world) == {"mqtt": 1883}
    world.put({"kind": "Secret", "metadata": {"name": "gone"}, "data": {"tls.crt": "", "tls.key": ""}})
    await step(world, context(spec))
    (port,) = world.objects[SERVICE]["spec"]["ports"]
    assert port == {"name": "mqtts", "port": 8883, "targetPort": "mqtts", "nodePort": 30883}


async def test_the_service_leads_to_a_renamed_listener_in_pods_of_before_too() -> None:
    world = await running()
    (before,) = [item for item in world.objects.values() if item["kind"] == "ReplicaSet"]
    renamed = context({"listeners": [{"name": "other", "port": 1883}]})
    for _ in range(40):
        await step(world, renamed)
        if listeners(world.objects[REPLICANTS]) == {"other": 1883}:
            break
        world.settle()
    assert world.objects[SERVICE]["spec"]["ports"] == [{"name": "other", "port": 1883, "targetPort": 1883}]
    world.settle()
    before["status"]["replicas"] = 1
    await step(world, renamed)
    assert world.objects[SERVICE]["spec"]["ports"] == [{"name": "other", "port": 1883, "targetPort": 1883}]
    before["status"]["replicas"] = 0
    await step(world, renamed)
    assert world.objects[SERVICE]["spec"]["ports"] == [{"name": "other", "port": 1883, "targetPort": "other"}]


async def test_a_port_is_open_while_a_replica_set_of_before_has_pods() -> None:
    world = await running()
    (before,) = [item for item in world.objects.values() if item["kind"] == "ReplicaSet"]
    world.put({"kind": "MqttCluster", "metadata": {"name": "demo"}, "status": {"observedGeneration": 1}})
    edited = context({"listeners": OTHER_PORT["listeners"]})
    await step(world, edited)
    world.settle()
    before["status"]["replicas"] = 1
    assert not (await step(world, edited)).changes
    assert open_ports(world, "demo-replicant") == {1883, 1884}
    before["status"]["replicas"] = 0
    assert reasons(await step(world, edited)) == ["Updated"], "nobody has meddled"
    assert open_ports(world, "demo-replicant") == {1884}
