"""The story that the tests tell, chapter by chapter, on one Kubernetes: install, use, break, scale, report, remove.

The operator is installed once, by Helm, as a user does it; `demo` is the MqttCluster that most chapters share, and is
made by the first that asks for it. When a test fails, what the cluster holds and what its pods logged is shown.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from harness import ROOT, KubectlError, MqttCluster, Namespace, helm, kubectl

CHAPTERS = ["install", "admission", "samples", "cluster", "failures", "autoscaling", "report", "uninstall"]
SYSTEM = "flockmq-system"
DEMO = "flockmq-demo"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: CHAPTERS.index(item.path.stem.removeprefix("test_")))


@pytest.fixture(scope="session")
def operator() -> None:
    """The operator, installed from the chart with this checkout's images; nothing of an earlier run is left."""
    for name in kubectl("get", "namespaces", "--selector=flockmq.io/e2e", "--output=name").split():
        kubectl("delete", name, "--timeout=180s", timeout_s=200)
    if "flockmq" in helm("list", "--namespace", SYSTEM, "--short").split():
        helm("uninstall", "flockmq", "--namespace", SYSTEM, "--wait")
    kubectl("delete", "crd", "--ignore-not-found", "mqttclusters.flockmq.io")
    images = {name: os.environ.get(f"E2E_{name.upper()}_IMAGE", "") for name in ("operator", "broker", "analytics", "redis")}
    Namespace(SYSTEM).create()
    settings = [f"--set-string=images.{name}={image}" for name, image in images.items() if image]
    helm("install", "flockmq", str(ROOT / "charts/flockmq"), f"--namespace={SYSTEM}", "--wait", "--timeout=3m", *settings)


@pytest.fixture(scope="session")
def demo(operator: None) -> MqttCluster:
    """A MqttCluster that is Ready, whose Service is reached at a NodePort."""
    namespace = Namespace(DEMO)
    namespace.create()
    namespace.apply((pathlib.Path(__file__).parent / "demo.yaml").read_text())
    cluster = MqttCluster(namespace, "demo")
    cluster.wait_ready()
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        for namespace in (SYSTEM, DEMO, *getattr(item, "callspec", None) and item.callspec.params.values() or ()):
            report.sections.append((f"namespace {namespace}", state_of(str(namespace))))
    return report


def state_of(namespace: str) -> str:
    """What a namespace holds, what happened in it lately, and the last lines of its pods."""
    parts = []
    for command in (
        ["get", "mqc,pods,jobs,pvc,hpa", "--output=wide"],
        ["get", "events", "--sort-by=.lastTimestamp", "--output=custom-columns=:.lastTimestamp,:.involvedObject.name,:.reason,:.message"],
        ["logs", "--selector=app.kubernetes.io/name", "--tail=25", "--prefix", "--all-containers", "--max-log-requests=30"],
    ):  # fmt: skip
        with contextlib.suppress(KubectlError):
            parts.append("\n".join(kubectl("--namespace", namespace, *command).splitlines()[-60:]))
    return "\n\n".join(parts)
