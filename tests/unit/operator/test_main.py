"""What the program says, and with which exit code, when something it needs isn't there."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import kopf
import pytest

from flockmq_operator import main, passes
from flockmq_operator.donors.choice import Kept
from flockmq_operator.kube import Kube
from flockmq_operator.main import Unusable, check_cluster
from flockmq_operator.manifest import Manifest
from flockmq_operator.metrics import Metrics
from flockmq_operator.rebalances.reconcile import RebalanceReconciler
from flockmq_operator.reconcile import Reconciler
from flockmq_operator.settings import SettingsError, read_settings
from flockmq_operator.users.reconcile import UserReconciler
from ports import free_port
from unit.operator.donors.test_choice import replicant
from unit.operator.world import NAMESPACE, SETTINGS, World, context, mqtt_cluster

ENVIRONMENT = {
    "POD_NAME": "operator-0",
    "POD_NAMESPACE": "flockmq",
    "FLOCKMQ_BROKER_IMAGE": "b",
    "FLOCKMQ_REDIS_IMAGE": "r",
    "FLOCKMQ_ANALYTICS_IMAGE": "a",
}


def run(**environment: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FLOCKMQ_", "KUBE", "POD_"))}
    command = [sys.executable, "-c", "from flockmq_operator.main import main; main()"]
    settings = {**ENVIRONMENT, "FLOCKMQ_HEALTH_PORT": str(free_port()), **environment}
    done = subprocess.run(command, env={**clean, **settings}, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nusers: [{name: u, user: {token: t}}]\n"
        f"clusters: [{{name: k, cluster: {{server: 'http://127.0.0.1:{free_port()}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return str(file)


def test_a_missing_setting_is_one_line_and_exit_code_2() -> None:
    code, said = run(FLOCKMQ_BROKER_IMAGE="")
    assert (code, said) == (
        2,
        "flockmq-operator: environment: FLOCKMQ_BROKER_IMAGE is not set; the Helm chart sets it\n",
    )


def test_no_kubernetes_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    code, said = run(KUBECONFIG=str(tmp_path / "none"))
    assert code == 2
    assert said.startswith("flockmq-operator: neither a ServiceAccount nor a kubeconfig is usable (KUBECONFIG): ")
    assert said.count("\n") == 1


def test_an_api_server_that_is_down_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    code, said = run(KUBECONFIG=kubeconfig(tmp_path))
    assert code == 3
    assert said.startswith("flockmq-operator: the API server can't be reached: GET /apis/flockmq.io/v1alpha1: ")
    assert said.count("\n") == 1


def test_a_taken_health_port_is_one_line_and_exit_code_4(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = run(KUBECONFIG=kubeconfig(tmp_path), FLOCKMQ_HEALTH_PORT=str(port))
    assert code == 4
    assert said.startswith(f"flockmq-operator: FLOCKMQ_HEALTH_PORT={port}: ")


class Discovery(Kube):
    def __init__(self, *plurals: str) -> None:
        self.plurals = plurals

    async def request(self, method: str, path: str, **_: object) -> Manifest:
        return {"resources": [{"name": plural} for plural in self.plurals]}


async def test_a_definition_that_is_missing_is_named() -> None:
    await check_cluster(Discovery("mqttclusters", "mqttclusters/status", "mqttusers", "mqttrebalances"))
    with pytest.raises(Unusable, match=r"mqttusers\.flockmq\.io isn't installed: apply crds/mqttusers\.yaml") as error:
        await check_cluster(Discovery("mqttclusters"))
    assert error.value.code == 3


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"FLOCKMQ_LOG_LEVEL": "loud"}, "FLOCKMQ_LOG_LEVEL='loud' must be one of DEBUG, INFO, WARNING, ERROR"),
        ({"FLOCKMQ_HEALTH_PORT": "http"}, "FLOCKMQ_HEALTH_PORT"),
        ({"FLOCKMQ_BROKER_IMGE": "x"}, "FLOCKMQ_BROKER_IMGE: no such setting"),
        ({"POD_NAMESPACE": ""}, "POD_NAMESPACE is not set"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        read_settings({**ENVIRONMENT, **given})


def test_namespaces_are_split() -> None:
    assert read_settings({**ENVIRONMENT, "FLOCKMQ_WATCH_NAMESPACES": "a, b,"}).namespaces == ["a", "b"]


def test_the_operator_watches_its_own_namespace_unless_it_is_told_otherwise() -> None:
    assert read_settings(ENVIRONMENT).namespaces == ["flockmq"]
    assert read_settings({**ENVIRONMENT, "FLOCKMQ_WATCH_NAMESPACES": "*"}).namespaces == []


class Kopf:
    """In kopf's place: it ends when it is `told`; cancelled, it takes its time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.told, self.is_ending, self.may_end = (asyncio.Event() for _ in range(4))
        monkeypatch.setattr(kopf, "operator", self.operate)
        monkeypatch.setattr(main, "NAMED_KINDS", ())

    async def operate(self, **_: Any) -> None:
        self.began.set()
        try:
            await self.told.wait()
        except asyncio.CancelledError:
            self.is_ending.set()
            await self.may_end.wait()
            raise


class Acting:
    """An operator that leads: one MqttCluster, one pod that a donor's node has out of the Service."""

    def __init__(self, world: World) -> None:
        metrics = Metrics()

        async def nobody_answers(_: object) -> None:
            return None

        self.reconciler = Reconciler(world, SETTINGS, nobody_answers, metrics)
        self.users = UserReconciler(world, SETTINGS, metrics)
        rebalances = RebalanceReconciler(world, SETTINGS, metrics, self.reconciler.donors.wake)
        self.reconciler.donors._kept["fleet", "demo"] = Kept(context(), "replicant", 2)
        run = main.run_kopf(world, SETTINGS, self.reconciler, self.users, rebalances, metrics)
        self.task = asyncio.create_task(run)


@pytest.fixture
def world() -> World:
    pod = replicant("a", takes=False)
    pod["metadata"]["labels"]["app.kubernetes.io/name"] = "flockmq"
    return World(mqtt_cluster(), pod)


async def test_who_lost_the_lease_writes_nothing_while_kopf_ends(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    monkeypatch.setattr(passes, "GATHER_MIN_S", 0.001)
    slow = Kopf(monkeypatch)
    acting = Acting(world)
    async with asyncio.timeout(10):
        await slow.began.wait()
        acting.reconciler.wake(NAMESPACE, "demo")
        acting.task.cancel()
        await slow.is_ending.wait()
        written = list(world.writes)
        for _ in range(5):  # kopf's watches still tell of changes
            acting.reconciler.wake(NAMESPACE, "demo")
            acting.users.wake(NAMESPACE, "demo")
            await asyncio.sleep(0.02)
        assert world.writes == written
        slow.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await acting.task
    assert world.writes == written, "labels of pods are the next operator's"


async def test_who_is_told_to_stop_brings_pods_back(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    told = Kopf(monkeypatch)
    acting = Acting(world)
    async with asyncio.timeout(10):
        told.told.set()
        await acting.task
    assert world.writes == ["patch Pod a"]


async def test_what_ends_kopf_is_raised(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    async def fails(**_: Any) -> None:
        raise RuntimeError("watch failed")

    monkeypatch.setattr(main, "NAMED_KINDS", ())
    monkeypatch.setattr(kopf, "operator", fails)
    with pytest.raises(RuntimeError, match="watch failed"):
        await Acting(world).task
