"""A Kubernetes in memory with a MqttCluster whose one ready core is the broker's own management server, over HTTP. What
its nodes do is what a test says."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from flockmq.management.rebalance_rows import (
    AskedProgress,
    AskedRebalance,
    AskedState,
    RebalanceRow,
    RebalanceShown,
    RebalanceView,
)
from flockmq_operator import management_access
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.passes import Done
from flockmq_operator.rebalances.reconcile import RebalanceReconciler
from flockmq_operator.rebalances.spec import FINALIZER
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode
from unit.operator.users.harness import core, secret
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster

MOVE = Ref("MqttRebalance", "move")
UID = "6b0f2f0e-b8f1-4c55-9d3c-3f0a4e1c2d5b"
NAME = "MqttRebalance/move/6b0f2f0e"
"""By which nodes know it."""


def mqtt_rebalance(
    name: str = "move", created: str = "2026-11-26T12:00:00Z", uid: str = UID, **spec: object
) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "generation": 1, "creationTimestamp": created}
    said = {"cluster": "demo", **spec}
    return {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttRebalance", "metadata": metadata, "spec": said}


class Nodes(ToldNode, RebalanceView):
    """Two replicants, of which the first has too many clients."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = {
            name: RebalanceRow(node=name, role="replicant", state="idle", clients=clients, planned=planned)
            for name, clients, planned in (("r-1", 300, 150), ("r-2", 0, 0))
        }
        self.thresholds = AskedRebalance()
        self.started: list[AskedRebalance] = []
        self.stopped: list[str | None] = []
        self.missing: tuple[str, ...] = ()
        self.failure: Exception | None = None

    async def shown(self, thresholds: AskedRebalance) -> RebalanceShown:
        self._fail()
        self.thresholds = thresholds
        return RebalanceShown(told_by="core-0", nodes=list(self.rows.values()))

    async def start(self, asked: AskedRebalance, node: str | None) -> RebalanceShown:
        self._fail()
        self.started.append(asked)
        for name in self.rows:
            self.tell(name, "running", asked.name)
        return RebalanceShown(told_by="core-0", nodes=list(self.rows.values()), missing=self.missing)

    async def stop(self, name: str | None, node: str | None) -> None:
        self._fail()
        self.stopped.append(name)

    def _fail(self) -> None:
        if self.failure:
            raise self.failure

    def tell(self, node: str, state: AskedState, name: str = NAME, *, moved: int = 0, left: int = 0) -> None:
        asked = AskedProgress(name=name, state=state, moved=moved)
        self.rows[node] = msgspec.structs.replace(self.rows[node], asked=asked, left=left)

    def restart(self, *names: str) -> None:
        for name in names:
            self.rows[name] = msgspec.structs.replace(self.rows[name], asked=None, left=0)


class Town:
    """`world` is Kubernetes; each pass is made when a test says so."""

    def __init__(self, key: str = KEY) -> None:
        self.world = World(mqtt_cluster(), core(), secret("demo-api-key", {"key": key.encode()}))
        self.nodes = Nodes()
        self.running: list[tuple[str, str]] = []
        """The MqttClusters that were told to have one that runs."""
        self.reconciler = self.another_operator()

    def another_operator(self) -> RebalanceReconciler:
        return RebalanceReconciler(self.world, SETTINGS, Metrics(), lambda *key: self.running.append(key))

    async def look(self) -> Done:
        return await self.reconciler._pass((NAMESPACE, "demo"))

    def delete(self, rebalance: Ref = MOVE, seconds_ago: float = 0.0) -> None:
        """As the API server does: one with finalizers is only marked."""
        body = self.world.objects[rebalance]
        if body["metadata"].get("finalizers"):
            at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
            body["metadata"]["deletionTimestamp"] = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        else:
            del self.world.objects[rebalance]

    def is_held(self, rebalance: Ref = MOVE) -> bool:
        return FINALIZER in self.world.objects[rebalance]["metadata"].get("finalizers", ())

    def status(self, rebalance: Ref = MOVE) -> Manifest:
        status: Manifest = self.world.objects[rebalance]["status"]
        return status

    def how(self, rebalance: Ref = MOVE) -> tuple[str, str]:
        """Phase and reason."""
        return self.status(rebalance)["phase"], self.condition(rebalance)["reason"]

    def condition(self, rebalance: Ref = MOVE) -> Manifest:
        (condition,) = self.status(rebalance)["conditions"]
        found: Manifest = condition
        return found

    def told(self) -> list[str]:
        """The reasons of events since it was asked last."""
        told, self.world.told = self.world.told, []
        return [event["reason"] for event in told]


@asynccontextmanager
async def living(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    town = Town()
    async with managed(town.nodes, FakeLog()) as port:
        monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{port}")
        yield town
        await town.reconciler.stop()
