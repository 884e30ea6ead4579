"""What is watched, and what a change wakes: decorators only.

`on.event` handlers are the kind for which kopf adds no finalizer, no annotation and no status to any object.
Objects are watched by label on the server's side. Secrets aren't among them, so that their values never come here: see
`users.secret_watch`.
"""

from typing import Any

import kopf

from flockmq_operator.kube import RESOURCES
from flockmq_operator.observe import OWNED_KINDS
from flockmq_operator.rebalances.reconcile import RebalanceReconciler
from flockmq_operator.rebalances.spec import REBALANCE_KIND
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.resources.labels import COMPONENT, INSTANCE, MANAGED_BY, MANAGER
from flockmq_operator.spec import KIND
from flockmq_operator.users.reconcile import UserReconciler
from flockmq_operator.users.spec import USER_KIND

registry = kopf.OperatorRegistry()

WATCHED = (*OWNED_KINDS, "Pod")


@kopf.on.startup(registry=registry)
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # events are told by the reconciler
    settings.scanning.disabled = True  # kinds and namespaces are known: no right to list them is needed
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
async def cluster_changed(namespace: str | None, name: str, memo: Any, **_: Any) -> None:
    wake(memo.reconciler, namespace, name)
    if namespace:
        memo.users.cluster_changed(namespace, name)


@kopf.on.event(*RESOURCES[USER_KIND], registry=registry)
async def user_changed(namespace: str | None, spec: kopf.Spec, memo: Any, **_: Any) -> None:
    wake(memo.users, namespace, spec.get("cluster"))


@kopf.on.event(*RESOURCES[REBALANCE_KIND], registry=registry)
async def rebalance_changed(namespace: str | None, spec: kopf.Spec, memo: Any, **_: Any) -> None:
    wake(memo.rebalances, namespace, spec.get("cluster"))


async def part_changed(namespace: str | None, labels: kopf.Labels, memo: Any, **_: Any) -> None:
    wake(memo.reconciler, namespace, labels.get(INSTANCE))


def wake(
    reconciler: Reconciler | UserReconciler | RebalanceReconciler, namespace: str | None, name: str | None
) -> None:
    if namespace and name:
        reconciler.wake(namespace, name)


for watched in WATCHED:
    kopf.on.event(*RESOURCES[watched], registry=registry, id=watched)(part_changed)
