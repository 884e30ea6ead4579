"""The report: a CronJob that drains the events from Redis every few minutes, and one that reports on them at night.

Parquet files and reports stay on a volume, or in S3. The two jobs share it, so a run waits for the other one.
"""

from collections.abc import Iterator
from math import ceil

from flockmq_operator.manifest import Manifest
from flockmq_operator.quantity import quantity
from flockmq_operator.report_headline import CONTAINER, TERMINATION_LOG
from flockmq_operator.resources import spark
from flockmq_operator.resources.context import CONFIG_DIR, DATA_DIR, SECRETS_DIR, Context
from flockmq_operator.resources.core import claim_spec
from flockmq_operator.resources.labels import metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, pod_template, secrets_volume
from flockmq_operator.resources.secret_files import redis_files, redis_username, s3_files

DEADLINE_S = 4 * 3600
"""A report that takes longer is stopped."""
INGEST_DEADLINE_S = 3600
"""So is an ingest; what it hadn't committed is the next one's."""
INGEST_WAIT_S = 1800
"""How long a run waits for the other one."""


def report(context: Context) -> Iterator[Manifest]:
    spec = context.spec.report
    if not spec.enabled:
        return
    if spec.storage.s3 is None:
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata(context, context.report, "report"),
            "spec": claim_spec(spec.storage),
        }
    ingest = _template(context, [*_ingest_args(context), *_local(context)])
    reporting = _report_args(context)
    if context.executors:
        yield spark.config_map(context)
        template = _template(context, [*spark.submit(context), *reporting])
        _make_driver(context, template["spec"])
    else:
        template = _template(context, [*reporting, *_local(context)])
    yield _cron_job(context, context.ingest, spec.ingest_schedule, ingest, INGEST_DEADLINE_S, tries=1)
    yield _cron_job(context, context.report, spec.schedule, template, DEADLINE_S, tries=3)


def _cron_job(context: Context, name: str, schedule: str, template: Manifest, deadline_s: int, tries: int) -> Manifest:
    """`tries` of one job, and as many jobs stay to be looked at."""
    job = {"backoffLimit": tries - 1, "activeDeadlineSeconds": deadline_s, "template": template}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(context, name, "report"),
        "spec": {
            "schedule": schedule,
            "timeZone": context.spec.report.time_zone,
            "suspend": context.spec.report.suspend,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": tries,
            "failedJobsHistoryLimit": tries,
            "jobTemplate": {"spec": job},
        },
    }


def _output(context: Context) -> str:
    s3 = context.spec.report.storage.s3
    return f"s3a://{s3.bucket}/{s3.prefix or context.name}" if s3 else DATA_DIR


def _local(context: Context) -> list[str]:
    """What a Spark in this pod alone may use of it."""
    resources = context.spec.report.resources
    heap, cpu = spark.heap_mib(resources), resources.limits.get("cpu")
    cores = ["--cores", str(max(1, ceil(quantity(cpu))))] if cpu is not None else []
    return [*(["--memory", f"{heap}m"] if heap else []), *cores]


def _report_args(context: Context) -> list[str]:
    spec = context.spec.report
    said = {
        "--output": _output(context),
        "--wait": INGEST_WAIT_S,
        "--keep-days": spec.keep_days,
        "--time-zone": spec.time_zone,
        "--lag-objective-ms": spec.lag_objective_ms,
        "--headline": TERMINATION_LOG,
    }
    return ["report", *(part for option, value in said.items() for part in (option, str(value)))]


def _ingest_args(context: Context) -> list[str]:
    """Redis as nodes are given it, by the same names."""
    args = ["ingest", "--redis-url", context.redis_url, "--output", _output(context), "--wait", str(INGEST_WAIT_S)]
    args.append("--release")
    if username := redis_username(context, "report"):
        args += ["--username", username]
    if context.redis_min_replicas:
        args += ["--min-replicas", str(context.redis_min_replicas)]
    for key, file in redis_files(context, "report").items():
        args += [f"--{key.replace('_', '-')}", str(file)]
    return args


def _template(context: Context, args: list[str]) -> Manifest:
    files = [*redis_files(context, "report").values(), *s3_files(context)]
    on_volume = context.spec.report.storage.s3 is None
    container: Manifest = {
        "name": CONTAINER,
        "image": context.spec.report.image or context.settings.flockmq_analytics_image,
        "imagePullPolicy": context.image_pull_policy,
        "args": args,
        "resources": context.spec.report.resources.manifest(),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            *([{"name": "data", "mountPath": DATA_DIR}] if on_volume else []),
            TMP_MOUNT,
        ],
    }
    if env := spark.s3_env(context):
        container["env"] = env
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": context.report}}
    pod: Manifest = {
        "serviceAccountName": context.report,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [secrets_volume(files), TMP, *([claim] if on_volume else [])],
    }
    return pod_template(context, "report", pod)


def _make_driver(context: Context, pod: Manifest) -> None:
    """A pod that makes those of executors: the only one that has a token."""
    pod |= {"serviceAccountName": context.report_driver, "automountServiceAccountToken": True}
    pod["volumes"].append(spark.config_volume(context))
    (container,) = pod["containers"]
    container["env"] = [*container.get("env", ()), *spark.driver_env()]
    file = f"{CONFIG_DIR}/{spark.TEMPLATE}"
    container["volumeMounts"].append({"name": "config", "mountPath": file, "subPath": spark.TEMPLATE, "readOnly": True})
