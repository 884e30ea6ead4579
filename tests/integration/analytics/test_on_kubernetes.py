"""A report with executors, on a real API server: it admits what the operator makes, in a namespace that enforces the
restricted standard, and the driver's one right is enough for Spark to make its executors. This test stands in for the
kubelet: it starts each executor as its pod says."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml
from pyspark.sql import SparkSession

from flockmq_analytics import job
from flockmq_analytics.java import java_home
from flockmq_operator.manifest import Ref
from flockmq_operator.resources.spark import API_SERVER, SUBMIT, TEMPLATE
from unit.operator.built import built
from unit.operator.world import NAMESPACE

from .api_server import ApiServer, api_server, programs
from .runner import Runner
from .writing import add_an_hour

ROOT = Path(__file__).parents[3]
DAY = date(2026, 11, 20)
COMMAND = Path(sys.executable).with_name("flockmq-analytics")
EXECUTORS = 2
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[ApiServer]:
    folder = programs()
    assert folder is not None, "no kube-apiserver: tests/e2e/kind/tools.sh node builds one"
    scratch = tmp_path / "kubernetes"
    scratch.mkdir()
    with api_server(folder, scratch) as made:
        yield made


def install(server: ApiServer, spec: dict[str, Any]) -> str:
    """What a namespace has where the report has executors; returns a token of the driver's account."""
    installed = list(yaml.safe_load_all((ROOT / "manifests/install.yaml").read_text()))
    server.apply(next(item for item in installed if item and item["metadata"]["name"] == "flockmq-report-driver"))
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": ENFORCED}})
    for name, item in built(spec).items():
        if name.kind in ("ServiceAccount", "CronJob", "NetworkPolicy") or "executor" in name.name:
            item["metadata"].pop("ownerReferences")
            server.apply(item)
    account = "demo-report-driver"
    role = ("--clusterrole=flockmq-report-driver", f"--serviceaccount={NAMESPACE}:{account}")
    server.kubectl("create", "rolebinding", account, *role, "--namespace", NAMESPACE)
    return server.kubectl("create", "token", account, "--namespace", NAMESPACE).strip()


class Kubelet:
    """Starts what the pods of executors say, on this machine."""

    def __init__(self, server: ApiServer, environ: dict[str, str], scratch: Path) -> None:
        self._server, self._environ, self._scratch = server, environ, scratch
        self._ended = threading.Event()
        self.started: dict[str, dict[str, Any]] = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Kubelet":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        running: list[subprocess.Popen[bytes]] = []
        while not self._ended.wait(0.5):
            for pod in self._server.items("pods", NAMESPACE, "spark-role=executor"):
                if pod["metadata"]["name"] not in self.started:
                    self.started[pod["metadata"]["name"]] = pod
                    running.append(self._start(pod))
        for process in running:
            process.terminate()
            process.wait()

    def _start(self, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        said = {
            entry["name"]: entry["value"] if "value" in entry else fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            for entry in container["env"]
            if entry.get("valueFrom") is None or "fieldRef" in entry["valueFrom"]
        }
        said["SPARK_LOCAL_DIRS"] = str(self._scratch)
        program = [COMMAND, *container["args"]]
        with (self._scratch / f"{name}.log").open("wb") as log:
            return subprocess.Popen(program, env={**self._environ, **said}, stdout=log, stderr=log)


@pytest.mark.kubernetes
def test_spark_makes_its_executors_and_they_make_the_report(
    kubernetes: ApiServer,
    spark: SparkSession,
    client: redis.Redis,
    url: str,
    password_file: str,
    bucket: str,
    s3_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    add_an_hour(client)
    runner = Runner(spark, url, password_file, f"{bucket}/demo")
    runner.ingest()
    storage = {"s3": {"bucket": bucket.removeprefix("s3a://"), "endpoint": s3_environment["AWS_ENDPOINT_URL"]}}
    limits = {"limits": {"memory": "1Gi"}}
    spec: dict[str, Any] = {
        "report": {"storage": storage, "resources": limits, "executors": {"replicas": EXECUTORS, "resources": limits}}
    }
    token = install(kubernetes, spec)
    template = built(spec)[Ref("CronJob", "demo-report")]["spec"]["jobTemplate"]["spec"]["template"]
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": NAMESPACE}} | {
        "spec": template["spec"]
    }
    kubernetes.apply(driver)
    (config,) = [item for name, item in built(spec).items() if name.kind == "ConfigMap" and "executor" in name.name]
    (tmp_path / TEMPLATE).write_text(config["data"][TEMPLATE])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))},
        **s3_environment,
        "JAVA_HOME": str(java_home(scratch)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(job.__file__).parents[1]),  # of this tree, wherever the command was installed from
        "TMPDIR": str(scratch),
    }
    replaced = {
        API_SERVER: f"k8s://{kubernetes.url}",
        SUBMIT: str(ROOT / "analytics/submit.py"),
        "$(SPARK_DRIVER_BIND_ADDRESS)": "127.0.0.1",
        "$(POD_NAME)": "driver",
        f"/etc/flockmq/{TEMPLATE}": str(tmp_path / TEMPLATE),
        "/dev/termination-log": str(tmp_path / "headline"),
    }
    (container,) = template["spec"]["containers"]
    arguments = [_replaced(argument, replaced) for argument in container["args"]]
    there = {"oauthToken": token, "caCertFile": str(kubernetes.authority)}
    of_this_machine = [f"spark.kubernetes.authenticate.{name}={value}" for name, value in there.items()]
    # Ports of many pods are of one machine here.
    of_this_machine += ["spark.blockManager.port=0", "spark.driver.port=0"]
    said = [part for setting in of_this_machine for part in ("--conf", setting)]
    at = arguments.index(replaced[SUBMIT])
    program = [
        str(COMMAND),
        *arguments[:at],
        *said,
        *arguments[at:],
        "--day",
        str(DAY),
    ]
    with Kubelet(kubernetes, environ, scratch) as kubelet:
        done = subprocess.run(program, env=environ, check=False, capture_output=True, text=True)
    logs = "".join(log.read_text()[-2000:] for log in scratch.glob("*.log"))
    assert done.returncode == 0, done.stderr[-4000:] + logs
    assert f"# FlockMQ report, {DAY}" in done.stdout
    assert (tmp_path / "headline").exists()
    assert len(kubelet.started) == EXECUTORS
    assert all(name.startswith("demo-report-") for name in kubelet.started)
    (owner,) = {pod["metadata"]["ownerReferences"][0]["name"] for pod in kubelet.started.values()}
    assert owner == "driver"
    assert kubernetes.items("pods", NAMESPACE, "spark-role=executor") == [], "they end with it"
    assert len(runner.table(DAY, "clients")) == 12


def _replaced(argument: str, replaced: dict[str, str]) -> str:
    for old, new in replaced.items():
        argument = argument.replace(old, new)
    return argument
