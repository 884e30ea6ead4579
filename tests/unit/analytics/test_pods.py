"""What pods of Spark on Kubernetes start, as Spark's own image would."""

from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from flockmq_analytics import pods
from flockmq_analytics.cli import main, make_parser
from flockmq_analytics.java import SetupError, find_java

ENVIRON = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.2",
    "SPARK_EXECUTOR_POD_NAME": "report-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    **{f"SPARK_JAVA_OPT_{number}": f"-Doption={number}" for number in range(11)},
}


def test_an_executor_gets_what_the_driver_said_in_its_environment() -> None:
    command = pods.executor([], {**ENVIRON, "SPARK_DIST_CLASSPATH": "/more/*"})
    assert command[0] == str(find_java())
    assert command[1:12] == [f"-Doption={number}" for number in range(11)], "in the order of their numbers"
    assert command[12:15] == ["-Xms1024m", "-Xmx1024m", "-cp"]
    assert command[15] == f"{pods.SPARK_HOME}/jars/*:/more/*"
    assert dict(zip(command[17::2], command[18::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.1:7078",
        "--executor-id": "1",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.2",
        "--resourceProfileId": "0",
        "--podName": "report-exec-1",
    }


def test_an_executor_outside_a_pod_says_who_starts_it() -> None:
    with pytest.raises(SetupError, match=r"SPARK_DRIVER_URL, SPARK_EXECUTOR_ID, .* isn't set: .*by Spark's driver"):
        pods.executor([], {})


def test_a_driver_is_spark_submit_at_its_pods_address() -> None:
    given = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///opt/flockmq/submit.py", "report"]
    command = pods.driver(given, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.1"})
    assert command == [
        str(pods.SPARK_HOME / "bin/spark-submit"),
        "--deploy-mode",
        "client",
        "--conf",
        "spark.driver.bindAddress=10.0.0.1",
        "--conf",
        "spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.1",
        *given,
    ]
    assert pods.driver(given, {})[3:] == given


def test_the_command_becomes_the_process_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str]]] = []

    class Became(BaseException):
        pass

    def execv(path: str, command: list[str]) -> None:
        became.append((path, command))
        raise Became

    monkeypatch.setattr("os.execv", execv)
    with pytest.raises(Became):
        main(["driver", "--master", "k8s://a", "submit.py"])
    ((path, command),) = became
    assert path == command[0]
    assert command[-3:] == ["--master", "k8s://a", "submit.py"]


def test_the_sample_for_the_spark_operator_is_of_this_image() -> None:
    root = Path(__file__).parents[3]
    document: Any = yaml.safe_load((root / "manifests/spark/sparkapplication.yaml").read_text())
    said = document["spec"]["template"]
    assert make_parser().parse_args(said["arguments"]).output == "s3a://events/demo"
    assert said["sparkVersion"] == pyspark.__version__
    program = said["mainApplicationFile"].removeprefix("local://")
    assert f"analytics/submit.py {program}" in (root / "Dockerfile.analytics").read_text()
    assert said["image"] == f"flockmq-analytics:{_version(root)}"


def _version(root: Path) -> str:
    (line,) = [line for line in (root / "analytics/pyproject.toml").read_text().splitlines() if line[:9] == "version ="]
    return line.partition('"')[2].rstrip('"')
