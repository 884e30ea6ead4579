"""The report: a CronJob that runs the analytics, and the volume on which Parquet files and reports stay."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import DATA_DIR, SECRETS_DIR, Context
from flockmq_operator.resources.core import claim_spec
from flockmq_operator.resources.labels import metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, pod_template, secrets_volume
from flockmq_operator.resources.secret_files import redis_password

DEADLINE_S = 4 * 3600
"""A run that takes longer is stopped."""


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
    yield {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(context, context.report, "report"),
        "spec": {
            "schedule": spec.schedule,
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "spec": {"backoffLimit": 2, "activeDeadlineSeconds": DEADLINE_S, "template": _template(context)}
            },
        },
    }


def _template(context: Context) -> Manifest:
    args = ["run", "--redis-url", context.redis_url, "--output", DATA_DIR]
    for password in redis_password(context):
        args += ["--password-file", str(password)]
    container: Manifest = {
        "name": "report",
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
        "volumes": [secrets_volume(redis_password(context)), TMP, claim],
    }
    return pod_template(context, "report", pod)
