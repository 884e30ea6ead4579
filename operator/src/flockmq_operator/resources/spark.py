"""Spark on Kubernetes, for a report with executors: the CronJob's pod is the driver, and Spark makes the pods of the
executors, from a template that a ConfigMap brings.

The driver's own address is its pod's: so no Service is needed, and the driver's pod owns the executors', which end with
it. Its ServiceAccount needs the right to make pods, which the operator doesn't have, and so can't give: somebody binds
it to the chart's ClusterRole (docs/kubernetes.md). Executors have no rights and no token. Driver and executors
authenticate and encrypt what they say to one another with a secret that Spark draws for each run.
"""

import hashlib
import json
from math import ceil

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity
from flockmq_operator.resources.context import CONFIG_DIR, SECRETS_DIR, Context
from flockmq_operator.resources.labels import metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, pod_template, secrets_volume
from flockmq_operator.resources.secret_files import s3_files
from flockmq_operator.spec import Resources

DRIVER_PORT = 7078
BLOCKS_PORT = 7079
"""Of the block managers of the driver and of each executor."""
EXECUTOR = "executor"
"""The container of an executor."""
TEMPLATE = "executor.json"
SUBMIT = "/opt/flockmq/submit.py"
"""In the image: the program that spark-submit runs."""
API_SERVER = "k8s://https://kubernetes.default.svc"
MIB = 1024 * 1024


def heap_mib(resources: Resources) -> int | None:
    """Half of the memory limit; the rest is for Python. None: there is no limit."""
    limit = resources.limits.get("memory")
    return None if limit is None else max(1, int(quantity(limit)) // 2 // MIB)


def s3_env(context: Context) -> list[Manifest]:
    """By the names that Amazon's own tools have."""
    s3 = context.spec.report.storage.s3
    if s3 is None:
        return []
    files = s3_files(context)
    said = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_REGION": s3.region,
        "AWS_SHARED_CREDENTIALS_FILE": str(files[0]) if files else None,
    }
    return [{"name": name, "value": value} for name, value in said.items() if value]


def submit(context: Context) -> list[str]:
    """The arguments before those of the report itself."""
    said = [part for name, value in settings(context).items() for part in ("--conf", f"{name}={value}")]
    return ["driver", "--master", API_SERVER, "--name", context.report, *said, SUBMIT]


def driver_env() -> list[Manifest]:
    return [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "SPARK_DRIVER_BIND_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]


def settings(context: Context) -> dict[str, str]:
    """Spark's; `$(NAME)` is the environment's."""
    report = context.spec.report
    executors = report.executors
    cpu = executors.resources.requests.get("cpu", 1)
    said = {
        "spark.driver.host": "$(SPARK_DRIVER_BIND_ADDRESS)",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.blockManager.port": str(BLOCKS_PORT),
        "spark.driver.memory": f"{heap_mib(report.resources) or 1024}m",
        "spark.executor.instances": str(executors.replicas),
        "spark.executor.cores": str(max(1, ceil(quantity(cpu)))),
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.kubernetes.namespace": context.namespace,
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
        "spark.kubernetes.container.image": report.image or context.settings.flockmq_analytics_image,
        "spark.kubernetes.container.image.pullPolicy": context.image_pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{CONFIG_DIR}/{TEMPLATE}",
        "spark.kubernetes.executor.podTemplateContainerName": EXECUTOR,
        "spark.kubernetes.executor.request.cores": str(cpu),
        # It may make pods, and nothing else.
        "spark.kubernetes.executor.disableConfigMap": "true",
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    }
    if limit := executors.resources.limits.get("cpu"):
        said["spark.kubernetes.executor.limit.cores"] = str(limit)
    if heap := heap_mib(executors.resources):
        said |= {"spark.executor.memory": f"{heap}m", "spark.executor.memoryOverhead": f"{heap}m"}
    return said


def executor_template(context: Context) -> str:
    """A Pod; Spark adds image, arguments, resources and a directory for its scratch."""
    container: Manifest = {
        "name": EXECUTOR,
        "env": s3_env(context),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [{"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True}, TMP_MOUNT],
    }
    pod: Manifest = {
        "serviceAccountName": context.report,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [secrets_volume(s3_files(context)), TMP],
    }
    made = {"apiVersion": "v1", "kind": "Pod", **pod_template(context, "executor", pod)}
    return json.dumps(made, sort_keys=True, indent=1)


def config_map(context: Context) -> Manifest:
    """With the template; it never changes, as those of nodes."""
    text = executor_template(context)
    name = f"{context.report}-executor-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(context, name, "executor"),
        "immutable": True,
        "data": {TEMPLATE: text},
    }


def config_volume(context: Context) -> Manifest:
    return {"name": "config", "configMap": {"name": config_map(context)["metadata"]["name"]}}
