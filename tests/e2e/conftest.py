"""The story that the tests tell, chapter by chapter, on one Kubernetes: install, use, break, scale, report, remove.

The operator is installed once, by Helm, as a user does it; `demo` is the MqttCluster that most chapters share, and is
made by the first that asks for it. When a test fails, what the cluster holds and what its pods logged is shown.
"""

import os
import pathlib
import sys
from collections.abc import Generator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from certificates import certificate_secret
from harness import ROOT, KubectlError, MqttCluster, Namespace, helm, kubectl

CHAPTERS = [
    *(
        "install",
        "admission",
        "samples",
        "cluster",
        "access",
        "users",
        "failures",
        "redis",
        "backup",
        "autoscaling",
        "rebalance",
        "kubectl_plugin",
        "hibernation",
        "report",
    ),
    "uninstall",
]
SYSTEM = "flockmq"
DEMO = "flockmq-demo"
DEFINITIONS = ("mqttclusters.flockmq.io", "mqttrebalances.flockmq.io", "mqttusers.flockmq.io")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: CHAPTERS.index(item.path.stem.removeprefix("test_")))


@pytest.fixture(scope="session")
def operator() -> None:
    """The operator of all namespaces, installed from the chart with this checkout's images."""
    remove_all()
    install("--set=clusterWide=true")


def remove_all() -> None:
    """Nothing of an earlier run is left."""
    for namespace in namespaces():
        release(namespace)
    if "flockmq" in helm("list", "--namespace", SYSTEM, "--short").split():
        helm("uninstall", "flockmq", "--namespace", SYSTEM, "--wait")
    for namespace in namespaces():
        namespace.delete()
    kubectl("delete", "crd", "--ignore-not-found", *DEFINITIONS)


def release(namespace: Namespace) -> None:
    """Without an operator its MqttUsers and MqttRebalances can be deleted."""
    for kind in ("mqttusers", "mqttrebalances"):
        try:
            held = namespace.kubectl("get", kind, "--output=name").split()
        except KubectlError:  # there is no such kind
            continue
        for name in held:
            namespace.kubectl("patch", name, "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')


def install(*settings: str) -> None:
    Namespace(SYSTEM).create()
    chart = str(ROOT / "charts/flockmq")
    helm("install", "flockmq", chart, f"--namespace={SYSTEM}", "--wait", "--timeout=3m", *settings, *image_settings())


def namespaces() -> list[Namespace]:
    """All that tests made."""
    found = kubectl("get", "namespaces", "--selector=flockmq.io/e2e", "--output=jsonpath={.items[*].metadata.name}")
    return [Namespace(name) for name in found.split()]


def image_settings() -> list[str]:
    """Arguments of Helm that name the images which `images/build.py` made."""
    names = {name: os.environ.get(f"E2E_{name.upper()}_IMAGE") for name in ("operator", "broker", "analytics")}
    return [f"--set-string=images.{name}={image}" for name, image in names.items() if image]


@pytest.fixture(scope="session")
def demo(operator: None) -> MqttCluster:
    """A MqttCluster that is Ready, whose Service is reached at a NodePort."""
    namespace = Namespace(DEMO)
    namespace.create()
    namespace.apply(certificate_secret("demo-tls"))
    namespace.apply((pathlib.Path(__file__).parent / "demo.yaml").read_text())
    cluster = MqttCluster(namespace, "demo")
    cluster.wait_ready()
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"namespace {namespace.name}", state_of(namespace)) for namespace in namespaces()]
    return report


STATE = (
    "get mqc,mqu,mqr,pods,jobs,pvc,hpa --output=wide",
    "get mqc --output=jsonpath={.items[*].status}",
    "get events --sort-by=.lastTimestamp",
    "logs --selector=app.kubernetes.io/name --tail=25 --prefix --max-log-requests=30",
)
LINES_MAX = 60


def state_of(namespace: Namespace) -> str:
    """What a namespace holds, what happened in it lately, and the last lines of its pods."""
    parts = []
    for command in STATE:
        try:
            parts.append("\n".join(namespace.kubectl(*command.split()).splitlines()[-LINES_MAX:]))
        except KubectlError as error:
            parts.append(str(error))
    return "\n\n".join(parts)
