"""The report: a CronJob that drains the events from Redis every few minutes, one that reports on them at night, and the
volume on which Parquet files and reports stay. They share it, so a run waits for the other one.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.report_headline import CONTAINER, TERMINATION_LOG
from flockmq_operator.resources.context import DATA_DIR, SECRETS_DIR, Context
from flockmq_operator.resources.core import claim_spec
from flockmq_operator.resources.labels import metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, pod_template, secrets_volume
from flockmq_operator.resources.secret_files import redis_files, redis_username

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
    yield {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(context, context.report, "report"),
        "spec": claim_spec(spec.storage),
    }
    reporting = ["report", "--output", DATA_DIR, "--wait", str(INGEST_WAIT_S), "--keep-days", str(spec.keep_days)]
    reporting += ["--time-zone", spec.time_zone, "--lag-objective-ms", str(spec.lag_objective_ms)]
    reporting += ["--headline", TERMINATION_LOG]
    yield _cron_job(context, context.ingest, spec.ingest_schedule, _ingest_args(context), INGEST_DEADLINE_S, tries=1)
    yield _cron_job(context, context.report, spec.schedule, reporting, DEADLINE_S, tries=3)


def _cron_job(context: Context, name: str, schedule: str, args: list[str], deadline_s: int, tries: int) -> Manifest:
    """`tries` of one job, and as many jobs stay to be looked at."""
    job = {"backoffLimit": tries - 1, "activeDeadlineSeconds": deadline_s, "template": _template(context, args)}
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


def _ingest_args(context: Context) -> list[str]:
    """Redis as nodes are given it, by the same names."""
    args = ["ingest", "--redis-url", context.redis_url, "--output", DATA_DIR, "--wait", str(INGEST_WAIT_S), "--release"]
    if username := redis_username(context, "report"):
        args += ["--username", username]
    if context.redis_min_replicas:
        args += ["--min-replicas", str(context.redis_min_replicas)]
    for key, file in redis_files(context, "report").items():
        args += [f"--{key.replace('_', '-')}", str(file)]
    return args


def _template(context: Context, args: list[str]) -> Manifest:
    files = redis_files(context, "report")
    container: Manifest = {
        "name": CONTAINER,
        "image": context.spec.report.image or context.settings.flockmq_analytics_image,
        "imagePullPolicy": context.image_pull_policy,
        "args": args,
        "resources": context.spec.report.resources.manifest(),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            {"name": "data", "mountPath": DATA_DIR},
            TMP_MOUNT,
        ],
    }
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": context.report}}
    pod: Manifest = {
        "serviceAccountName": context.report,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [secrets_volume(files.values()), TMP, claim],
    }
    return pod_template(context, "report", pod)
