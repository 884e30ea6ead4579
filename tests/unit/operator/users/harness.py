"""A Kubernetes in memory with a MqttCluster whose one ready core is the broker's own management server, over HTTP."""

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from flockmq.auth.hashing import is_right
from flockmq.rlog.entry import Op
from flockmq_operator import management_access
from flockmq_operator.manifest import Manifest, Ref
from flockmq_operator.metrics import Metrics
from flockmq_operator.passes import Done
from flockmq_operator.users.reconcile import UserReconciler
from flockmq_operator.users.spec import FINALIZER
from unit.broker.auth.harness import FakeLog
from unit.broker.management.harness import KEY, managed
from unit.broker.management.test_server import ToldNode
from unit.operator.world import NAMESPACE, SETTINGS, World, mqtt_cluster, pod

DEMO = Ref("MqttCluster", "demo")
CORE = Ref("Pod", "demo-core-0")
JO = Ref("MqttUser", "jo")
CORE_LABELS = {
    "app.kubernetes.io/name": "flockmq",
    "app.kubernetes.io/instance": "demo",
    "app.kubernetes.io/component": "core",
    "app.kubernetes.io/managed-by": "flockmq-operator",
}


def secret(name: str, values: dict[str, bytes], version: int = 1) -> Manifest:
    data = {key: b64encode(value).decode() for key, value in values.items()}
    metadata = {"name": name, "namespace": NAMESPACE, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


def mqtt_user(name: str = "jo", created: str = "2026-11-26T12:00:00Z", **spec: object) -> Manifest:
    metadata = {"name": name, "namespace": NAMESPACE, "generation": 1, "creationTimestamp": created}
    said = {"cluster": "demo", "passwordSecretRef": {"name": "jo-password"}, **spec}
    return {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttUser", "metadata": metadata, "spec": said}


def core(number: int = 0) -> Manifest:
    made = pod(f"demo-core-{number}", CORE_LABELS, "1")
    made["status"]["podIP"] = "10.0.0.7"
    return made


class Town:
    """`world` is Kubernetes; `log` the cluster's tables; each pass is made when a test says so."""

    def __init__(self, key: str = KEY) -> None:
        self.world = World(mqtt_cluster(), core(), secret("demo-api-key", {"key": key.encode()}))
        self.log = FakeLog()
        self.metrics = Metrics()
        self.reconciler = UserReconciler(self.world, SETTINGS, self.metrics)

    async def look(self) -> Done:
        return await self.reconciler._pass((NAMESPACE, "demo"))

    def put_password(self, text: str, version: int = 1, name: str = "jo-password") -> None:
        self.world.put(secret(name, {"password": text.encode()}, version))

    def edit(self, user: Ref = JO, **spec: object) -> None:
        body = self.world.objects[user]
        body["spec"] |= spec
        body["metadata"]["generation"] += 1

    def delete(self, user: Ref = JO) -> None:
        """As the API server does: one with finalizers is only marked."""
        body = self.world.objects[user]
        if body["metadata"].get("finalizers"):
            body["metadata"]["deletionTimestamp"] = "now"
        else:
            del self.world.objects[user]

    def owns(self, user: Ref = JO) -> bool:
        return FINALIZER in self.world.objects[user]["metadata"].get("finalizers", ())

    def ready(self, user: Ref = JO) -> Manifest:
        (condition,) = self.world.objects[user]["status"]["conditions"]
        found: Manifest = condition
        return found

    def reason(self, user: Ref = JO) -> str:
        reason: str = self.ready(user)["reason"]
        return reason

    def lets_in(self, name: str, password: str) -> bool:
        user = self.log.tables.users.get(name)
        return user is not None and is_right(password.encode(), user.password_hash)

    def written(self) -> list[Op]:
        """Since it was asked last."""
        written, self.log.written = self.log.written, []
        return written

    def told(self) -> list[str]:
        """The reasons of events since it was asked last."""
        told, self.world.told = self.world.told, []
        return [event["reason"] for event in told]


@asynccontextmanager
async def living(monkeypatch: pytest.MonkeyPatch, *, users_matter: bool = True) -> AsyncIterator[Town]:
    town = Town()
    async with managed(ToldNode(), town.log, users_matter=users_matter) as port:
        monkeypatch.setattr(management_access, "url_of", lambda *_, **__: f"http://127.0.0.1:{port}")
        yield town
        await town.reconciler.stop()
