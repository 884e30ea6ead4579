"""A Kubernetes of one namespace in memory, as far as the operator can tell: server-side apply with managedFields, lists
by label, and controllers that make whatever is asked for ready when a test says so.

`recorded.json` holds what a real API server (1.34.4) made of applied manifests; test_drift.py reads that. Here the trie
of owned fields is made by the same rules, from the lists below.
"""

import copy
import json
import pickle
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from flockmq_operator.drift import FIELD_MANAGER
from flockmq_operator.kube import Kube, Refused
from flockmq_operator.manifest import Manifest, Ref, ref
from flockmq_operator.observe import Observed, observe
from flockmq_operator.plan import Plan, make_plan
from flockmq_operator.problems import Problem
from flockmq_operator.resources import build
from flockmq_operator.resources.context import Context
from flockmq_operator.settings import Settings
from flockmq_operator.spec import decode

SETTINGS = Settings("operator-0", "flockmq", "broker:1", "redis:1", "analytics:1")
NAMESPACE = "fleet"
UID = "6b0f2f0e"

KEYED_LISTS = {
    "containers": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}


T = TypeVar("T")


def copied(found: T) -> T:
    """As copy.deepcopy of plain JSON, in a fifth of its time."""
    same: T = pickle.loads(pickle.dumps(found))
    return same


def owned(value: object, name: str = "") -> Manifest:
    """The FieldsV1 trie of an applied value."""
    if isinstance(value, dict) and name not in ("selector", "labelSelector", "podSelector"):
        return {f"f:{key}": owned(below, key) for key, below in value.items()}
    if isinstance(value, list) and name in KEYED_LISTS:
        keys = KEYED_LISTS[name]
        return {f"k:{json.dumps({key: item[key] for key in keys})}": owned(item) for item in value}
    return {}


def applied(manifest: Manifest) -> Manifest:
    """`manifest` as the API server would keep it."""
    live = copy.deepcopy(manifest)
    fields = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    trie = owned(fields)
    for key in ("f:name", "f:namespace"):
        trie["f:metadata"].pop(key, None)
    live["metadata"]["managedFields"] = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": trie}]
    return live


def merge(live: Manifest, patch: Manifest) -> None:
    """JSON merge patch."""
    for key, value in patch.items():
        if value is None:
            live.pop(key, None)
        elif isinstance(value, dict) and isinstance(live.get(key), dict):
            merge(live[key], value)
        else:
            live[key] = copy.deepcopy(value)


def mqtt_cluster(spec: Manifest | None = None, generation: int = 1, status: Manifest | None = None) -> Manifest:
    return {
        "apiVersion": "flockmq.io/v1alpha1",
        "kind": "MqttCluster",
        "metadata": {"name": "demo", "namespace": NAMESPACE, "uid": UID, "generation": generation},
        "spec": spec or {},
        **({"status": status} if status else {}),
    }


def context(spec: Manifest | None = None, settings: Settings = SETTINGS, floor: int | None = None) -> Context:
    return Context(decode(mqtt_cluster(spec)), settings, floor)


class World(Kube):
    """The API server; `objects` are what it holds."""

    def __init__(self, *objects: Manifest) -> None:
        self.objects: dict[Ref, Manifest] = {}
        self.writes: list[str] = []
        self.told: list[Manifest] = []
        self.refuses: dict[Ref, str] = {}
        self.now = datetime(2026, 11, 21, tzinfo=UTC)
        for item in objects:
            self.put(item)

    def put(self, item: Manifest) -> None:
        item["metadata"].setdefault("uid", f"uid of {ref(item)}")
        self.objects[ref(item)] = item

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        return copied(self.objects.get(Ref(kind, name)))

    async def list(
        self, kind: str, namespace: str | None, labels: dict[str, str], *, metadata_only: bool = False, limit: int = 0
    ) -> list[Manifest]:
        found = [item for name, item in self.objects.items() if name.kind == kind]
        matching = [item for item in found if labels.items() <= item["metadata"].get("labels", {}).items()]
        keys = ("apiVersion", "kind", "metadata")
        return [{key: item[key] for key in keys} if metadata_only else copied(item) for item in matching]

    async def apply(self, manifest: Manifest, subresource: str = "") -> Manifest:
        name = ref(manifest)
        if subresource:
            self.objects[name]["status"] = copy.deepcopy(manifest["status"])
            return self.objects[name]
        if name in self.refuses:
            raise Refused(422, self.refuses[name])
        self.writes.append(f"apply {name}")
        before = self.objects.get(name, {})
        if name.kind == "PersistentVolumeClaim" and before:
            before["spec"]["resources"] = manifest["spec"]["resources"]
            if "managedFields" in before["metadata"]:  # applied before: what isn't applied any more is given up
                given = {"uid": before["metadata"]["uid"], "managedFields": before["metadata"]["managedFields"]}
                before["metadata"] = copy.deepcopy(manifest["metadata"]) | given
            return before
        strategy = before.get("spec", {}).get("updateStrategy", {})
        if manifest.get("spec", {}).get("updateStrategy") == {"type": "OnDelete"} and "rollingUpdate" in strategy:
            raise Refused(422, "spec.updateStrategy: only allowed for updateStrategy 'RollingUpdate'")
        live = applied(manifest)
        live["metadata"]["generation"] = before.get("metadata", {}).get("generation", 0) + 1
        live["metadata"]["uid"] = before.get("metadata", {}).get("uid", f"uid of {name}")
        if "status" in before:
            live["status"] = before["status"]
        self.objects[name] = live
        return live

    async def patch(self, manifest: Manifest) -> Manifest:
        self.writes.append(f"patch {ref(manifest)}")
        if ref(manifest) not in self.objects:
            raise Refused(404, "not found")
        live = self.objects[ref(manifest)]
        assert manifest["metadata"]["uid"] == live["metadata"]["uid"]
        merge(live, manifest)
        if "deletionTimestamp" in live["metadata"] and not live["metadata"].get("finalizers"):
            del self.objects[ref(manifest)]
        return copy.deepcopy(live)

    async def replace(self, manifest: Manifest) -> Manifest:
        self.writes.append(f"replace {ref(manifest)}")
        self.put(copy.deepcopy(manifest))
        return manifest

    async def create(self, manifest: Manifest) -> Manifest:
        if manifest["kind"] == "Event":
            self.told.append(manifest)
            return manifest
        self.writes.append(f"create {ref(manifest)}")
        if ref(manifest) in self.objects:
            raise Refused(409, "already exists")
        self.put(copy.deepcopy(manifest))
        return manifest

    async def delete(self, live: Manifest) -> None:
        self.writes.append(f"delete {ref(live)}")
        self.objects.pop(ref(live), None)

    def settle(self) -> None:
        """The controllers of Kubernetes do all that is asked of them; outdated cores stay, for they are OnDelete."""
        for item in [item for item in self.objects.values() if item["kind"] in ("StatefulSet", "Deployment")]:
            replicas = item["spec"]["replicas"]
            revision = str(hash(json.dumps(item["spec"]["template"], sort_keys=True)))
            item["status"] = {
                "observedGeneration": item["metadata"]["generation"],
                "replicas": replicas,
                "readyReplicas": replicas,
                "updatedReplicas": replicas,
                "currentRevision": revision,
                "updateRevision": revision,
            }
            if item["kind"] == "StatefulSet":
                self._settle_pods(item, revision)
            else:
                self._settle_replica_set(item, revision)

    def _settle_replica_set(self, owner: Manifest, revision: str) -> None:
        """Those of former templates stay, without pods."""
        for item in self.objects.values():
            if item["kind"] == "ReplicaSet":
                item["status"] = {"replicas": 0}
        template = copy.deepcopy(owner["spec"]["template"])
        labels = {**template["metadata"]["labels"], "pod-template-hash": revision}
        metadata = {"name": f"{owner['metadata']['name']}-{revision}", "namespace": NAMESPACE, "labels": labels}
        status = {"replicas": owner["spec"]["replicas"]}
        self.put({"kind": "ReplicaSet", "metadata": metadata, "spec": {"template": template}, "status": status})

    def _settle_pods(self, owner: Manifest, revision: str) -> None:
        for number in range(owner["spec"]["replicas"]):
            name = f"{owner['metadata']['name']}-{number}"
            if Ref("Pod", name) not in self.objects:
                made = pod(name, owner["spec"]["template"]["metadata"]["labels"], revision)
                self.put(made | {"spec": copy.deepcopy(owner["spec"]["template"]["spec"])})
            claim = copy.deepcopy(owner["spec"]["volumeClaimTemplates"][0])
            claim |= {"kind": "PersistentVolumeClaim"}
            claim["metadata"] |= {"name": f"data-{name}", "namespace": NAMESPACE}
            self.objects.setdefault(ref(claim), claim)

    def end(self, component: str) -> None:
        """Its pods, whose number has become 0."""
        for item in list(self.pods(component)):
            del self.objects[ref(item)]

    def pods(self, component: str) -> Iterator[Manifest]:
        for name, item in self.objects.items():
            if name.kind == "Pod" and item["metadata"]["labels"]["app.kubernetes.io/component"] == component:
                yield item

    async def observe(self, context: Context) -> Observed:
        body = self.objects.get(Ref("MqttCluster", context.name), {})
        return await observe(self, context, [ref(manifest) for manifest in build(context)], body.get("status", {}))

    async def plan(self, context: Context, known: Sequence[Problem] = ()) -> Plan:
        return make_plan(context, await self.observe(context), self.now, known)


def pod(name: str, labels: dict[str, str], revision: str) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {**labels, "controller-revision-hash": revision},
        },
        "spec": {"volumes": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
