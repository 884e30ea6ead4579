"""The chart installs an operator that runs, and the plain manifest is one that Kubernetes takes."""

from conftest import DEFINITIONS, SYSTEM, install, remove_all
from harness import ROOT, KubectlError, MqttCluster, Namespace, kubectl

SMALL = {
    "cores": {"replicas": 1, "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}}},
    "replicants": {"replicas": 1, "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}}},
    "redis": {"resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}}},
    "report": {"enabled": False},
    "terminationGracePeriodSeconds": 10,
}


def test_by_default_the_operator_runs_clusters_of_its_own_namespace_and_may_do_nothing_elsewhere() -> None:
    """The first of all tests: the operator of the others is another one."""
    remove_all()
    install()
    namespace = Namespace(SYSTEM)
    cluster = {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttCluster", "metadata": {"name": "own"}, "spec": SMALL}
    namespace.apply(cluster)
    MqttCluster(namespace, "own").wait_ready()
    assert may(SYSTEM, "get", "secrets")
    assert not may("default", "get", "secrets")
    assert not may("default", "list", "mqttclusters.flockmq.io")


def may(namespace: str, verb: str, resource: str) -> bool:
    """Whether the operator may do that there."""
    account = f"--as=system:serviceaccount:{SYSTEM}:flockmq-operator"
    try:
        return kubectl("auth", "can-i", verb, resource, account, f"--namespace={namespace}").strip() == "yes"
    except KubectlError:  # with "no" it ends with 1
        return False


def test_the_operator_is_available_and_has_not_restarted(operator: None) -> None:
    pods = Namespace(SYSTEM).list("pods", "app.kubernetes.io/name=flockmq-operator")
    assert pods
    for pod in pods:
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]


def test_the_objects_have_short_names_and_documentation(operator: None) -> None:
    kinds = kubectl("api-resources", "--api-group=flockmq.io", "--output=name").split()
    assert kinds == [*DEFINITIONS]
    assert "replicants" in kubectl("explain", "mqc.spec")
    assert "passwordSecretRef" in kubectl("explain", "mqu.spec")
    assert "dryRun" in kubectl("explain", "mqr.spec")


def test_the_plain_manifest_is_accepted(operator: None) -> None:
    manifest = str(ROOT / "manifests/install.yaml")
    kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", manifest)
