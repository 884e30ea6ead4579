"""The chart installs an operator that runs, and the plain manifest is one that Kubernetes takes."""

from conftest import SYSTEM
from harness import ROOT, Namespace, kubectl


def test_the_operator_is_available_and_has_not_restarted(operator: None) -> None:
    pods = Namespace(SYSTEM).list("pods", "app.kubernetes.io/name=flockmq-operator")
    assert pods
    for pod in pods:
        assert [status["restartCount"] for status in pod["status"]["containerStatuses"]] == [0]


def test_the_object_has_its_short_name_and_its_documentation(operator: None) -> None:
    assert "mqttclusters" in kubectl("api-resources", "--api-group=flockmq.io", "--output=name")
    assert "replicants" in kubectl("explain", "mqc.spec")


def test_the_plain_manifest_is_accepted(operator: None) -> None:
    manifest = str(ROOT / "manifests/install.yaml")
    kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", manifest)
