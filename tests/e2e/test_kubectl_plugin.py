"""`kubectl flockmq`, as somebody on call uses it: a look, a restart, a node that is emptied, and the way back."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
from harness import KubectlError, MqttCluster, Namespace, until

PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
"""kubectl finds its plugins there: what `pip install` of the operator brings is beside this Python."""
WRONG = "[mqtt]\nmax_qos_allowed = 7\n"
"""Settings that the operator can't judge, and a node refuses."""


def flockmq(namespace: Namespace, *arguments: str, timeout_s: float = 120) -> str:
    """What the command prints."""
    done = subprocess.run(
        ["kubectl", "flockmq", *arguments, "--namespace", namespace.name],
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode:
        raise KubectlError(done.stderr.strip())
    return done.stdout


def line_of(text: str, begins: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(begins)), "")


def test_a_cluster_is_on_one_screen_with_its_connections(demo: MqttCluster) -> None:
    (here, _) = demo.ready_pods("replicant")
    with demo.namespace.forward(here, 1883) as port, demo.client(port):

        def screen() -> str:
            return flockmq(demo.namespace, "status", "demo")

        def connections() -> str:
            return line_of(screen(), here).split()[6]

        until(lambda: connections() == "1", f"{here} has a connection", 30, screen)
        text = screen()
    assert text.startswith(
        f"MqttCluster demo in namespace {demo.namespace.name}: clients are served; all is as the spec asks\n"
    )
    assert "NO NODE ANSWERS" not in text
    for component in ("core", "replicant", "redis"):
        for pod in demo.ready_pods(component):
            assert line_of(text, pod).split()[1] == component
            assert "Running" in line_of(text, pod)
    assert sum("leads" in line for line in text.splitlines()) == 1
    assert line_of(text, "cores").split()[1] == "3/3"


def test_all_clusters_are_a_line_each(demo: MqttCluster) -> None:
    assert line_of(flockmq(demo.namespace, "status"), "demo").split()[:6] == [
        "demo",
        "True",
        "True",
        "3/3",
        "2/2",
        "True",
    ]
    everywhere = flockmq(demo.namespace, "status", "--all-namespaces")
    assert line_of(everywhere, demo.namespace.name).split()[1] == "demo"


def test_what_is_not_there_is_a_sentence(demo: MqttCluster) -> None:
    with pytest.raises(KubectlError, match=r"^kubectl flockmq: there is no MqttCluster prod in namespace"):
        flockmq(demo.namespace, "status", "prod")
    with pytest.raises(KubectlError, match="is no node of a MqttCluster: name a core or a replicant"):
        flockmq(demo.namespace, "drain", "demo-redis-0")


def test_a_node_is_emptied_while_its_pod_runs_on_and_takes_clients_again(demo: MqttCluster) -> None:
    (here, _) = demo.ready_pods("replicant")
    with demo.namespace.forward(here, 1883) as port:
        with demo.client(port) as client:
            said = flockmq(demo.namespace, "drain", here, "--wait", "--timeout=60s")
            assert client.ended() == "Use another server"
        assert said.splitlines()[-1] == f"{here}: empty"
        assert "draining" in line_of(flockmq(demo.namespace, "status", "demo"), here)
        with pytest.raises(ConnectionError, match="refused"):
            demo.client(port)
        flockmq(demo.namespace, "drain", here, "--undo")

        def is_let_in() -> bool:
            try:
                demo.client(port).close()
            except ConnectionError:
                return False
            return True

        until(is_let_in, f"{here} takes clients again", 30)
    assert here in demo.ready_pods("replicant")


def test_a_restart_replaces_the_pods_of_a_part_and_no_others(demo: MqttCluster) -> None:
    before = {component: uids(demo, component) for component in ("core", "replicant", "redis")}
    flockmq(demo.namespace, "restart", "demo", "replicants")
    demo.wait_ready()
    demo.wait_ready_pods("replicant", 2)
    assert not uids(demo, "replicant") & before["replicant"]
    assert uids(demo, "core") == before["core"]
    assert uids(demo, "redis") == before["redis"]


def uids(cluster: MqttCluster, component: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.pods(component)}


def test_the_last_spec_under_which_all_was_well_comes_back(demo: MqttCluster) -> None:
    demo.wait_ready()
    config = demo.object()["spec"].get("config", "")
    demo.patch({"config": WRONG})
    try:

        def screen() -> str:
            return flockmq(demo.namespace, "status", "demo")

        until(lambda: "max_qos_allowed" in screen(), "a node refuses the settings, and the screen says so", 180, screen)
        with pytest.raises(KubectlError, match="say --yes"):  # nobody can be asked here
            flockmq(demo.namespace, "rollback", "demo")
        assert demo.object()["spec"]["config"] == WRONG
        said = flockmq(demo.namespace, "rollback", "demo", "--yes")
        assert "    - max_qos_allowed = 7" in said.splitlines()
        assert demo.object()["spec"].get("config", "") == config
        demo.wait_ready(360)
    except BaseException:
        demo.patch({"config": config})
        raise


@pytest.fixture
def dark(demo: MqttCluster) -> Iterator[MqttCluster]:
    """One whose nodes can't start: there is no such release."""
    namespace = Namespace("flockmq-dark")
    namespace.create()
    image = demo.pods("core")[0]["spec"]["containers"][0]["image"].rpartition(":")[0] + ":no-such-release"
    little = {"resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}}
    parts = {"cores": {"replicas": 1, **little}, "replicants": {"replicas": 1, **little}, "redis": little}
    spec = {"image": image, **parts, "report": {"enabled": False}}
    manifest = {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttCluster", "metadata": {"name": "dark"}, "spec": spec}
    namespace.apply(manifest)
    yield MqttCluster(namespace, "dark")
    namespace.delete()


def test_where_no_node_answers_it_shows_what_kubernetes_knows(dark: MqttCluster) -> None:
    def screen() -> str:
        return flockmq(dark.namespace, "status", "dark")

    until(lambda: "ImagePull" in line_of(screen(), "dark-core-0"), "the screen says why no core runs", 120, screen)
    text = screen()
    assert "NO NODE ANSWERS" in text
    assert "CLIENTS ARE NOT SERVED" in text
    assert line_of(text, "cores").split()[1] == "0/1"
    with pytest.raises(KubectlError, match="has kept no other spec under which it was Ready and Available"):
        flockmq(dark.namespace, "rollback", "dark", "--yes")
