"""Removal needs no operator and leaves nothing: objects go by their owner references, and no finalizer holds them. (One
holds a MqttUser, whose user has to be removed first, and one a MqttRebalance that runs.)"""

import time

import pytest
from conftest import DEFINITIONS, SYSTEM
from harness import KubectlError, MqttCluster, helm, kubectl, until

OWNED = "all,configmaps,secrets,serviceaccounts,pdb,hpa,networkpolicies,cronjobs,pvc,roles,rolebindings"


def test_without_its_operator_the_object_is_still_deleted_within_a_minute(demo: MqttCluster) -> None:
    claims = {claim["metadata"]["name"] for claim in demo.namespace.list("pvc", demo.selector)}
    helm("uninstall", "flockmq", "--namespace", SYSTEM, "--wait")
    started = time.monotonic()
    demo.namespace.kubectl("delete", "mqc", "demo", "--timeout=60s")

    def left() -> set[str]:
        return {f"{item['kind']}/{item['metadata']['name']}" for item in demo.namespace.list(OWNED, demo.selector)}

    # Redis' volume and the cores' hold acknowledged messages and stay, as redis.storage.whenDeleted: Retain says.
    kept = {f"PersistentVolumeClaim/{name}" for name in claims if "redis" in name or "core" in name}
    assert kept
    until(lambda: left() == kept, f"only {kept} is left", 60 - (time.monotonic() - started), left)


def test_nothing_is_left_of_the_operator(demo: MqttCluster) -> None:
    kinds = f"{OWNED},clusterroles,clusterrolebindings"

    def left() -> str:
        return kubectl(
            "get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/name=flockmq-operator", "--output=name"
        )

    until(lambda: not left(), "nothing of the operator is left", 60, left)


def test_the_definitions_go_when_they_are_deleted(demo: MqttCluster) -> None:
    kubectl("delete", "crd", *DEFINITIONS, "--timeout=60s")
    demo.namespace.delete()
    with pytest.raises(KubectlError, match=r"doesn't have a resource type|could not find the requested resource"):
        kubectl("get", "mqc", "--all-namespaces")
    until(lambda: not kubectl("get", "pv", "--output=name"), "every volume is gone", 60, lambda: kubectl("get", "pv"))
