"""What is watched, and what a change wakes: decorators only.

`on.event` handlers are the kind for which kopf adds no finalizer, no annotation and no status to any object.
Objects are watched by label on the server's side. Secrets, and claims that somebody else made, aren't among them: of
these only names are watched (`name_watch`), so that the values of Secrets never come here.

A watch that was interrupted goes on where it was, within 70 s even if its connection died in silence (kopf's
inactivity_timeout). If it can't, kopf lists what is there (events of no type), and what was deleted meanwhile is never
told: so whatever is kept in that namespace is looked at.
"""

from collections.abc import Mapping
from typing import Any

import kopf

from flockmq_operator.kube import RESOURCES
from flockmq_operator.manifest import Manifest
from flockmq_operator.observe import OWNED_KINDS
from flockmq_operator.rebalances.reconcile import RebalanceReconciler
from flockmq_operator.rebalances.spec import REBALANCE_KIND
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.labels import COMPONENT, INSTANCE, MANAGED_BY, MANAGER
from flockmq_operator.spec import KIND
from flockmq_operator.users.reconcile import UserReconciler
from flockmq_operator.users.spec import USER_KIND

registry = kopf.OperatorRegistry()

WATCHED = (*OWNED_KINDS, "ReplicaSet", "Pod")
LISTED_MAX = 50
"""Objects in one answer, when a watch begins: those of many MqttClusters take much memory at once."""


@kopf.on.startup(registry=registry)
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # events are told by the reconciler
    settings.scanning.disabled = True  # kinds and namespaces are known: no right to list them is needed
    settings.watching.chunk_size = LISTED_MAX
    for kind in WATCHED:
        resource = RESOURCES[kind]
        selector = f"{MANAGED_BY}={MANAGER}"
        if kind == "Pod":
            selector += f",{COMPONENT} in (core,redis)"  # of replicants the Deployment tells
        settings.watching.label_selectors[resource.group, resource.version, resource.plural] = selector


@kopf.on.login(registry=registry)
def log_in(**arguments: Any) -> kopf.ConnectionInfo | None:
    return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)


@kopf.on.event(*RESOURCES[KIND], registry=registry)
async def cluster_changed(namespace: str | None, name: str, type: str | None, memo: Any, **_: Any) -> None:
    wake(memo.reconciler, namespace, name)
    if namespace:
        memo.users.cluster_changed(namespace, name)
    if is_listed_again(type, memo):
        memo.reconciler.wake_all(namespace)


@kopf.on.event(*RESOURCES[USER_KIND], registry=registry)
async def user_changed(namespace: str | None, spec: kopf.Spec, type: str | None, memo: Any, **_: Any) -> None:
    wake(memo.users, namespace, spec.get("cluster"))
    if is_listed_again(type, memo):
        memo.users.wake_all(namespace)


@kopf.on.event(*RESOURCES[REBALANCE_KIND], registry=registry)
async def rebalance_changed(namespace: str | None, spec: kopf.Spec, memo: Any, **_: Any) -> None:
    wake(memo.rebalances, namespace, spec.get("cluster"))


async def part_changed(namespace: str | None, meta: kopf.Meta, type: str | None, memo: Any, **_: Any) -> None:
    for name in {meta.labels.get(INSTANCE), *owners(meta)}:
        wake(memo.reconciler, namespace, name)
    if is_listed_again(type, memo):
        memo.reconciler.wake_all(namespace)


async def pod_changed(namespace: str | None, meta: kopf.Meta, type: str | None, memo: Any, **_: Any) -> None:
    await part_changed(namespace=namespace, meta=meta, type=type, memo=memo)
    name = meta.labels.get(INSTANCE)
    if namespace and name and meta.labels.get(COMPONENT) == "core":  # users' passes ask one of these
        memo.users.cluster_changed(namespace, name)


async def autoscaler_changed(
    namespace: str | None, meta: kopf.Meta, spec: kopf.Spec, type: str | None, memo: Any, **_: Any
) -> None:
    """Kubernetes writes its status every 15 s, and no pass looks at that."""
    seen = without_status(meta, spec)
    if type in ("ADDED", "MODIFIED") and memo.get("seen") == seen:
        return
    memo.seen = seen
    await part_changed(namespace=namespace, meta=meta, type=type, memo=memo)


def is_listed_again(type: str | None, memo: Any) -> bool:
    """Whether its watch began anew. (kopf keeps a `memo` of each object.)"""
    is_known = memo.get("is_known", False)
    memo.is_known = True
    return type is None and is_known


def owners(meta: Mapping[str, Any]) -> list[str]:
    """The MqttCluster that owns it: an object whose label was changed is still its own."""
    return [owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == KIND]


def without_status(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> Manifest:
    fields = [entry.get("fieldsV1") for entry in meta.get("managedFields") or () if not entry.get("subresource")]
    rest = {key: value for key, value in meta.items() if key not in ("managedFields", "resourceVersion", "generation")}
    return {"metadata": rest, "managedFields": fields, "spec": dict(spec)}


def wake(
    reconciler: Reconciler | UserReconciler | RebalanceReconciler, namespace: str | None, name: str | None
) -> None:
    if namespace and name:
        reconciler.wake(namespace, name)


for watched in WATCHED:
    own = {"Pod": pod_changed, "HorizontalPodAutoscaler": autoscaler_changed}
    kopf.on.event(*RESOURCES[watched], registry=registry, id=watched)(own.get(watched, part_changed))
