"""What the operator keeps of specs under which a MqttCluster was whole."""

import copy

import pytest

from flockmq_operator import revisions
from flockmq_operator.kube import Refused
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.revisions import KIND, RESTARTED_AT, REVISIONS_MAX, digest_of, restored
from flockmq_operator.spec import decode
from unit.operator.world import NAMESPACE, SETTINGS, UID, World, mqtt_cluster

DEMO = Ref("MqttCluster", "demo")
RESTART = {"podTemplate": {"metadata": {"annotations": {RESTARTED_AT: "2026-11-26T03:00:00Z"}}}}


def digest(spec: Manifest) -> str:
    return digest_of(decode(mqtt_cluster(spec)).spec)


def kept(world: World) -> list[Manifest]:
    """The specs, the newest first."""
    found = [item for name, item in world.objects.items() if name.kind == KIND]
    return [item["data"]["spec"] for item in sorted(found, key=lambda item: -int(item["revision"]))]


async def keep(world: World, spec: Manifest, generation: int) -> None:
    body = mqtt_cluster(spec, generation)
    world.put(copy.deepcopy(body))
    await revisions.keep(world, body)


async def test_a_spec_is_kept_when_the_cluster_is_whole_and_not_before() -> None:
    async def none_answers(_: object) -> None:
        return None

    world = World(mqtt_cluster())
    reconciler = Reconciler(world, SETTINGS, none_answers, Metrics())
    await reconciler._pass((NAMESPACE, "demo"))
    assert kept(world) == []
    for _ in range(5):
        world.settle()
        await reconciler._pass((NAMESPACE, "demo"))
    assert kept(world) == [{}]
    (revision,) = [item for name, item in world.objects.items() if name.kind == KIND]
    assert revision["metadata"]["ownerReferences"][0] == {
        "apiVersion": "flockmq.io/v1alpha1",
        "kind": "MqttCluster",
        "name": "demo",
        "uid": UID,
        "controller": True,
    }
    world.objects[DEMO]["spec"] = {"image": "broker:broken"}
    world.objects[DEMO]["metadata"]["generation"] = 2
    await reconciler._pass((NAMESPACE, "demo"))
    assert kept(world) == [{}]


async def test_a_paused_cluster_is_not_what_somebody_goes_back_to() -> None:
    async def none_answers(_: object) -> None:
        return None

    world = World(mqtt_cluster())
    reconciler = Reconciler(world, SETTINGS, none_answers, Metrics())
    for _ in range(5):
        await reconciler._pass((NAMESPACE, "demo"))
        world.settle()
    before = kept(world)
    world.objects[DEMO]["spec"] = {"pause": True, "update": "Automatic"}
    await reconciler._pass((NAMESPACE, "demo"))
    assert kept(world) == before


async def test_a_spec_that_comes_again_is_the_newest() -> None:
    world = World()
    await keep(world, {"config": "a = 1"}, 1)
    await keep(world, {"config": "b = 1"}, 2)
    await keep(world, {"config": "b = 1"}, 2)
    assert kept(world) == [{"config": "b = 1"}, {"config": "a = 1"}]
    world.writes.clear()
    await keep(world, {"config": "a = 1", "replicants": {"replicas": 4}}, 3)
    assert kept(world) == [{"config": "a = 1", "replicants": {"replicas": 4}}, {"config": "b = 1"}]
    assert [write.split()[0] for write in world.writes] == ["delete", "create"], "a patch would be refused"


async def test_the_newest_are_kept() -> None:
    world = World()
    for number in range(REVISIONS_MAX + 3):
        await keep(world, {"config": f"n = {number}"}, number + 1)
    last = REVISIONS_MAX + 2
    assert kept(world) == [{"config": f"n = {number}"} for number in range(last, last - REVISIONS_MAX, -1)]


async def test_revisions_of_its_statefulsets_are_left_alone() -> None:
    world = World()
    for number in range(REVISIONS_MAX + 3):
        labels = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/managed-by": "flockmq-operator"}
        owner = {"kind": "StatefulSet", "name": "demo-core", "uid": "its own", "controller": True}
        metadata = {"name": f"demo-core-{number}", "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
        world.put({"kind": KIND, "metadata": metadata, "data": {"spec": "theirs"}, "revision": number})
    await keep(world, {}, 1)
    assert len(kept(world)) == REVISIONS_MAX + 4


@pytest.mark.parametrize(
    "other",
    [
        {"pause": True},
        {"clusterKeyRotation": "again"},
        {"restore": {"claimName": "backups", "backup": "demo"}},
        {"replicants": {"replicas": 9}},
        {"cores": RESTART, "replicants": RESTART, "redis": RESTART},
        {"cores": {"replicas": 3}},  # as a definition fills it in
    ],
)
def test_what_is_done_once_how_many_replicants_and_defaults_make_no_other_revision(other: Manifest) -> None:
    assert digest(other) == digest({})


@pytest.mark.parametrize("other", [{"replicants": {"replicas": 0}}, {"cores": {"replicas": 5}}, {"image": "b:2"}])
def test_all_else_does(other: Manifest) -> None:
    assert digest(other) != digest({})


def test_what_is_not_gone_back_from_stays_as_it_is() -> None:
    former: Manifest = {"image": "b:1", "replicants": {"replicas": 2}, "cores": RESTART, "clusterKeyRotation": "first"}
    former["restore"] = {"claimName": "backups", "backup": "demo"}  # the definition refuses to add it
    again = {"podTemplate": {"metadata": {"annotations": {RESTARTED_AT: "2026-11-27T00:00:00Z"}}}}
    current = {"image": "b:2", "replicants": {"replicas": 7}, "redis": again, "pause": True}
    back = restored(former, current)
    assert back == {
        "image": "b:1",
        "replicants": {"replicas": 7},
        "cores": {"podTemplate": {"metadata": {"annotations": {}}}},
        "redis": again,
        "pause": True,
    }
    assert former["clusterKeyRotation"] == "first", "it is left as it was"


@pytest.mark.parametrize(("former", "current"), [(0, 2), (2, 0)])
def test_whether_there_are_replicants_at_all_goes_back(former: int, current: int) -> None:
    specs = [{"replicants": {"replicas": number}} for number in (former, current)]
    assert restored(*specs) == specs[0]


async def test_an_operator_that_may_not_keep_it_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(*_: object) -> list[Manifest]:
        raise Refused(403, "controllerrevisions is forbidden")

    world = World()
    monkeypatch.setattr(world, "list", refuse)
    await keep(world, {}, 1)
    assert "fleet/demo: its spec isn't kept to go back to: controllerrevisions is forbidden" in caplog.text
