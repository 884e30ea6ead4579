"""What kopf is given to do: watch, and nothing for which it would write to an object."""

import copy
from typing import Any

import kopf

from flockmq_operator.handlers import (
    WATCHED,
    autoscaler_changed,
    cluster_changed,
    configure,
    part_changed,
    pod_changed,
    rebalance_changed,
    registry,
    user_changed,
)
from flockmq_operator.kube import RESOURCES
from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.labels import COMPONENT, INSTANCE


def test_no_handler_makes_kopf_add_a_finalizer_or_an_annotation() -> None:
    assert registry._changing.get_all_handlers() == []
    assert registry._spawning.get_all_handlers() == []
    assert len(registry._watching.get_all_handlers()) == len(WATCHED) + 3


def test_secrets_are_not_watched() -> None:
    assert "Secret" not in WATCHED


def test_everything_but_our_own_kinds_is_watched_by_label() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    selectors = settings.watching.label_selectors
    for kind in WATCHED:
        resource = RESOURCES[kind]
        key = (resource.group, resource.version, resource.plural)
        assert selectors[key].startswith("app.kubernetes.io/managed-by=flockmq-operator")
    assert len(selectors) == len(WATCHED)


class Woken:
    def __init__(self) -> None:
        self.keys: list[tuple[str, str]] = []
        self.all_of: list[str | None] = []

    def wake(self, namespace: str, name: str) -> None:
        self.keys.append((namespace, name))

    def wake_all(self, namespace: str | None) -> None:
        self.all_of.append(namespace)

    cluster_changed = wake


def spec(**fields: object) -> kopf.Spec:
    body: Any = {"spec": fields}
    return kopf.Body(body).spec


def meta(**metadata: object) -> kopf.Meta:
    body: Any = {"metadata": metadata}
    return kopf.Body(body).metadata


OWNED: Manifest = {"labels": {INSTANCE: "demo"}, "ownerReferences": [{"kind": "MqttCluster", "name": "demo"}]}


async def test_a_change_of_a_part_wakes_its_mqtt_cluster() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    await part_changed(namespace="ns", meta=meta(**OWNED), type="ADDED", memo=memo)
    await cluster_changed(namespace="ns", name="other", type="ADDED", memo=memo)
    await part_changed(namespace="ns", meta=meta(labels={}), type="ADDED", memo=memo)
    assert memo.reconciler.keys == [("ns", "demo"), ("ns", "other")]


async def test_a_part_whose_label_was_changed_still_wakes_its_owner() -> None:
    memo = kopf.Memo(reconciler=Woken())
    await part_changed(namespace="ns", meta=meta(**OWNED | {"labels": {INSTANCE: "x"}}), type="MODIFIED", memo=memo)
    assert sorted(memo.reconciler.keys) == [("ns", "demo"), ("ns", "x")]


async def test_what_is_listed_anew_has_all_that_are_kept_looked_at_for_deletions_were_not_told() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    part, cluster, user = (copy.copy(memo) for _ in range(3))  # kopf has one for each object
    none: list[str] = []
    for all_of in (none, ["ns"]):  # when the operator starts, and later
        await part_changed(namespace="ns", meta=meta(**OWNED), type=None, memo=part)
        await cluster_changed(namespace="ns", name="demo", type=None, memo=cluster)
        await user_changed(namespace="ns", spec=spec(cluster="demo"), type=None, memo=user)
        assert (memo.reconciler.all_of, memo.users.all_of) == (all_of * 2, all_of)


async def test_a_core_that_changes_wakes_those_who_ask_it() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    for component in ("core", "redis"):
        labels = {INSTANCE: component, COMPONENT: component}
        await pod_changed(namespace="ns", meta=meta(labels=labels), type="MODIFIED", memo=memo)
    assert memo.reconciler.keys == [("ns", "core"), ("ns", "redis")]
    assert memo.users.keys == [("ns", "core")]


async def test_of_an_autoscaler_a_status_that_kubernetes_writes_all_the_time_wakes_nobody() -> None:
    memo = kopf.Memo(reconciler=Woken())

    async def told(type: str | None, replicas: int, version: str, time: str) -> int:
        """How many times its MqttCluster was woken so far."""
        of_status = {"manager": "controller", "subresource": "status", "time": time}
        fields = [{"manager": "us", "fieldsV1": {}, "time": "1"}, of_status]
        metadata = meta(**OWNED, resourceVersion=version, managedFields=fields)
        await autoscaler_changed(namespace="ns", meta=metadata, spec=spec(minReplicas=replicas), type=type, memo=memo)
        return len(memo.reconciler.keys)

    assert await told("ADDED", 2, "1", "1") == 1
    assert await told("MODIFIED", 2, "2", "2") == 1
    assert await told("MODIFIED", 3, "3", "2") == 2
    assert await told("DELETED", 3, "4", "2") == 3
    assert await told(None, 3, "5", "3") == 4


async def test_a_change_of_a_mqtt_user_and_of_its_cluster_wakes_the_users_of_that_cluster() -> None:
    memo = kopf.Memo(reconciler=Woken(), users=Woken())
    await user_changed(namespace="ns", spec=spec(cluster="demo"), type="ADDED", memo=memo)
    await user_changed(namespace="ns", spec=spec(), type="ADDED", memo=memo)
    assert memo.users.keys == [("ns", "demo")]
    await cluster_changed(namespace="ns", name="demo", type="MODIFIED", memo=memo)
    assert memo.users.keys == [("ns", "demo")] * 2


async def test_a_change_of_a_mqtt_rebalance_wakes_those_of_its_cluster() -> None:
    memo = kopf.Memo(rebalances=Woken())
    await rebalance_changed(namespace="ns", spec=spec(cluster="demo"), memo=memo)
    await rebalance_changed(namespace="ns", spec=spec(), memo=memo)
    assert memo.rebalances.keys == [("ns", "demo")]
