"""How little is asked of the API server while 50 MqttClusters are as they should be. On simulated time."""

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Iterator

from flockmq_operator import leader
from flockmq_operator.kube import Kube
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.nodes import Node
from flockmq_operator.passes import PASSES_MAX, SETTLED_RESYNC_S
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.context import Context
from flockmq_operator.spec import KIND
from simulation.loop import Process, SimulatedLoop
from unit.operator.world import SETTINGS, World, mqtt_cluster

CLUSTERS = 50
REQUESTS_MAX = 10.0 - 2 / leader.RETRY_S
"""Requests a second in any minute: 10, of which the Lease takes two each time that it is renewed."""
REQUEST_S = 0.01
DEMO = Ref(KIND, "demo")
SPECS: tuple[Manifest, ...] = (
    {},
    {"rebalance": {}, "replicants": {"replicas": 4}},
    {"autoscaling": {"minReplicas": 2, "maxReplicas": 9, "connectionsPerReplicant": 100}},
    {"backup": {"schedule": "0 3 * * *", "claimName": "backups"}, "replicants": {"replicas": 0}},
)


class Fleet(Kube):
    """An API server: `worlds` are its namespaces, each with one MqttCluster. An answer takes REQUEST_S."""

    def __init__(self) -> None:
        self.worlds = {f"ns-{number}": world(f"ns-{number}", spec) for number, spec in enumerate(SPECS)}
        self.minutes: Counter[int] = Counter()
        self.looked_at: dict[str, float] = {}
        """When each MqttCluster was read last."""
        self.longest_s = 0.0
        """How long one wasn't read."""

    def unready(self) -> Iterator[str]:
        for namespace, each in self.worlds.items():
            conditions = each.objects[DEMO].get("status", {}).get("conditions", ())
            if not any(item["type"] == "Reconciling" and item["reason"] == "UpToDate" for item in conditions):
                yield namespace

    def grow(self) -> None:
        """The others are like the first ones."""
        for number in range(len(SPECS), CLUSTERS):
            found = copy.deepcopy(self.worlds[f"ns-{number % len(SPECS)}"])
            found.objects[DEMO]["metadata"]["namespace"] = f"ns-{number}"
            self.worlds[f"ns-{number}"] = found

    async def asked(self, namespace: str | None) -> World:
        assert namespace
        self.minutes[int(now_s() // 60)] += 1
        await asyncio.sleep(REQUEST_S)
        return self.worlds[namespace]

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        if kind == KIND:
            self.longest_s = max(self.longest_s, now_s() - self.looked_at.get(namespace, now_s()))
            self.looked_at[namespace] = now_s()
        return await (await self.asked(namespace)).get(kind, namespace, name)

    async def list(
        self, kind: str, namespace: str | None, labels: dict[str, str], *, metadata_only: bool = False, limit: int = 0
    ) -> list[Manifest]:
        return await (await self.asked(namespace)).list(kind, namespace, labels, metadata_only=metadata_only)

    async def apply(self, manifest: Manifest, subresource: str = "") -> Manifest:
        return await (await self.asked(manifest["metadata"]["namespace"])).apply(manifest, subresource)

    async def patch(self, manifest: Manifest) -> Manifest:
        return await (await self.asked(manifest["metadata"]["namespace"])).patch(manifest)

    async def create(self, manifest: Manifest) -> Manifest:
        return await (await self.asked(manifest["metadata"]["namespace"])).create(manifest)

    async def delete(self, live: Manifest) -> None:
        await (await self.asked(live["metadata"]["namespace"])).delete(live)


def world(namespace: str, spec: Manifest) -> World:
    body = mqtt_cluster(spec)
    body["metadata"]["namespace"] = namespace
    claim: Manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": "backups", "namespace": namespace}}
    return World(body, claim)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def ask_nodes(_: Context) -> list[Node]:
    return [Node(f"node-{number}", "replicant", 100, heard=True) for number in range(4)]


async def made(fleet: Fleet, reconciler: Reconciler) -> None:
    """All are made, and are as they should be."""
    async with asyncio.timeout(600):
        while unready := list(fleet.unready()):
            for namespace in unready:
                reconciler.wake(namespace, "demo")
            await asyncio.sleep(10)
            for each in fleet.worlds.values():
                each.settle()


async def idle(fleet: Fleet) -> None:
    first = Reconciler(fleet, SETTINGS, ask_nodes, Metrics())
    await made(fleet, first)
    await first.stop()
    fleet.grow()
    reconciler = Reconciler(fleet, SETTINGS, ask_nodes, metrics := Metrics())
    fleet.looked_at.clear()
    fleet.longest_s = 0.0
    for namespace in fleet.worlds:  # an operator has started, and is told of each
        reconciler.wake(namespace, "demo")
    await asyncio.sleep(0)
    assert metrics.waiting == CLUSTERS - PASSES_MAX, "no more are looked at at a time"
    await asyncio.sleep(30)
    assert metrics.waiting == 0
    fleet.minutes.clear()
    await asyncio.sleep(2 * SETTLED_RESYNC_S)
    assert not list(fleet.unready())
    await reconciler.stop()


def test_50_that_are_settled_cost_less_than_10_requests_a_second_and_each_is_looked_at_in_time() -> None:
    random.seed(7)
    loop, fleet = SimulatedLoop(), Fleet()
    loop.run(idle(fleet), Process("operator"))
    busiest = max(fleet.minutes.values()) / 60
    assert busiest <= REQUESTS_MAX, f"{busiest:.1f} requests in a second of the busiest minute"
    assert len(fleet.minutes) > 2 * SETTLED_RESYNC_S / 60 - 2, "they part: there is no minute without any"
    assert fleet.longest_s < SETTLED_RESYNC_S + 5
