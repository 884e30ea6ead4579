"""One MqttCluster after the other takes what a newer operator makes."""

import asyncio
import copy

from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import Node
from flockmq_operator.passes import Key
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from flockmq_operator.updates import Updates
from unit.operator.test_plan import NEWER
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster

A, B, C = ("fleet", "a"), ("fleet", "b"), ("fleet", "c")
ALL = {A, B, C}


def all_seen() -> Updates:
    updates = Updates()
    for key in ALL:
        updates.looked_at(key, is_whole=True)
    return updates


def test_one_has_its_turn_until_it_is_whole_again() -> None:
    updates = all_seen()
    assert updates.may_begin(A, ALL)
    assert not updates.may_begin(B, ALL)
    assert updates.looked_at(A, is_replaced=True) == set()
    assert updates.looked_at(B, is_whole=True, waits=True) == set()
    assert updates.whose_turn(B) == "fleet/a"
    assert updates.looked_at(A) == set(), "its last pods aren't ready yet"
    assert updates.may_begin(A, ALL)
    assert updates.looked_at(A, is_whole=True) == {B}
    assert updates.may_begin(B, ALL)


def test_one_that_has_nothing_to_update_gives_its_turn_back() -> None:
    updates = all_seen()
    assert updates.may_begin(A, ALL)
    updates.looked_at(B, waits=True)
    assert updates.looked_at(A) == {B}, "it isn't whole for a reason of its own"
    assert updates.may_begin(B, ALL)


def test_an_operator_that_starts_looks_at_all_before_it_gives_a_turn() -> None:
    updates = Updates()
    assert not updates.may_begin(A, ALL)
    assert updates.looked_at(A, is_whole=True, waits=True) == set()
    assert updates.looked_at(B, is_replaced=True) == {A}, "half replaced by an earlier one"
    assert not updates.may_begin(A, ALL), "c wasn't looked at"
    updates.looked_at(C)
    assert not updates.may_begin(A, ALL)
    assert updates.may_begin(B, ALL)
    assert updates.forget(B) == {A}
    assert updates.may_begin(A, {A, C})


class Fleet:
    """Two MqttClusters that update by themselves, and a newer operator."""

    def __init__(self) -> None:
        self.world = World()
        for name in ("a", "b"):
            body = mqtt_cluster({"update": "Automatic"})
            body["metadata"] |= {"name": name, "uid": f"uid of {name}"}
            self.world.put(body)
        self.operator = self.started(SETTINGS)

    def started(self, settings: Settings) -> Reconciler:
        async def nobody(_: Context) -> list[Node] | None:
            return None

        return Reconciler(self.world, settings, nobody, Metrics())

    async def look(self, *names: str) -> None:
        await asyncio.gather(*(self.operator._pass((NAMESPACE, name)) for name in names))

    def image(self, name: str) -> str:
        cores: Manifest = self.world.objects[Ref("StatefulSet", f"{name}-core")]
        image: str = cores["spec"]["template"]["spec"]["containers"][0]["image"]
        return image

    def said(self, name: str) -> str:
        status = self.world.objects[Ref("MqttCluster", name)]["status"]
        return next(item["message"] for item in status["conditions"] if item["type"] == "Reconciling")


async def test_the_second_cluster_is_updated_when_the_first_one_is_whole_again() -> None:
    fleet = Fleet()
    for _ in range(5):
        await fleet.look("a", "b")
        fleet.world.settle()
    await fleet.operator.stop()
    fleet.operator = fleet.started(NEWER)
    woken: set[Key] = set()
    fleet.operator._passes.wake = woken.add  # type: ignore[method-assign]
    await fleet.look("a", "b")
    assert {fleet.image("a"), fleet.image("b")} == {"broker:1", "broker:2"}
    first, second = ("a", "b") if fleet.image("a") == "broker:2" else ("b", "a")
    assert fleet.said(second) == f"nothing is left to do; its pods are updated after those of fleet/{first}"
    before = copy.deepcopy(fleet.world.objects[Ref("StatefulSet", f"{second}-core")]["spec"])
    for _ in range(12):
        if (NAMESPACE, second) in woken:
            break
        fleet.world.settle()
        await fleet.look(second, first)
        assert fleet.world.objects[Ref("StatefulSet", f"{second}-core")]["spec"] == before
    assert (NAMESPACE, second) in woken
    await fleet.look(second)
    assert fleet.image(second) == "broker:2"
    await fleet.operator.stop()
