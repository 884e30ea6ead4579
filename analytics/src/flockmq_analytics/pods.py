"""What pods of Spark on Kubernetes start: Spark says it to its own image's entry point, `driver` or `executor` and what
belongs to it in arguments and the environment; this image takes it likewise.

Each becomes the Java process, so Kubernetes' signals reach that.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import pyspark

from flockmq_analytics.java import SetupError, find_java

SPARK_HOME: Final = Path(pyspark.__file__).parent
EXECUTOR: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR_OPTIONS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
JAVA_OPTION: Final = "SPARK_JAVA_OPT_"


def driver(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """`spark-submit` with these arguments, whose driver is this pod."""
    address = environ.get("SPARK_DRIVER_BIND_ADDRESS")
    bound = (
        [f"spark.driver.bindAddress={address}", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"] if address else []
    )
    said = [part for setting in bound for part in ("--conf", setting)]
    return [str(SPARK_HOME / "bin" / "spark-submit"), "--deploy-mode", "client", *said, *arguments]


def executor(arguments: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Spark's executor; all that it needs to know is in the environment. Raises SetupError."""
    del arguments
    missing = [name for name in (*EXECUTOR_OPTIONS.values(), "SPARK_EXECUTOR_MEMORY") if name not in environ]
    if missing:
        raise SetupError(f"{', '.join(missing)} isn't set: `executor` is started by Spark's driver, in a pod")
    numbered = sorted((int(name.removeprefix(JAVA_OPTION)), name) for name in environ if name.startswith(JAVA_OPTION))
    jars = [environ.get("SPARK_CLASSPATH", ""), f"{SPARK_HOME}/jars/*", environ.get("SPARK_DIST_CLASSPATH", "")]
    memory = environ["SPARK_EXECUTOR_MEMORY"]
    return [
        str(find_java()),
        *(environ[name] for _, name in numbered),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(part for part in jars if part),
        EXECUTOR,
        *(part for option, name in EXECUTOR_OPTIONS.items() for part in (option, environ[name])),
    ]


COMMANDS: Final[dict[str, Callable[[Sequence[str], Mapping[str, str]], list[str]]]] = {
    "driver": driver,
    "executor": executor,
}


def become(name: str, arguments: Sequence[str]) -> NoReturn:
    try:
        command = COMMANDS[name](arguments, os.environ)
    except SetupError as error:
        sys.exit(f"flockmq-analytics: {error}")
    os.execv(command[0], command)  # noqa: S606 (no shell is meant)
