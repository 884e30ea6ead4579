"""The report: a CronJob that runs the analytics, and the volume on which Parquet files and reports stay."""

from collections.abc import Iterator
from urllib.parse import urlencode

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.context import DATA_DIR, REDIS_PORT, SECRETS_DIR, Context
from flockmq_operator.resources.core import claim_spec
from flockmq_operator.resources.labels import metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, pod_template, secrets_volume
from flockmq_operator.resources.secret_files import redis_files, redis_username

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
    files = redis_files(context, "report")
    args = ["run", "--redis-url", _redis_url(context), "--output", DATA_DIR]
    if password := files.get("password_file"):
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
        "volumes": [secrets_volume(files.values()), TMP, claim],
    }
    return pod_template(context, "report", pod)


def _redis_url(context: Context) -> str:
    """One server as one user: with replicas any of them, for the report only reads. TLS' files go as redis-py takes
    them in a URL."""
    external = context.spec.redis.external
    ours = f"{'rediss' if context.redis_tls else 'redis'}://{context.redis}:{REDIS_PORT}/0"
    scheme, _, server = (external.url if external else ours).partition("://")
    user = redis_username(context, "report")
    names = {"cacertfile": "ssl_ca_certs", "certfile": "ssl_certfile", "keyfile": "ssl_keyfile"}
    files = redis_files(context, "report").items()
    query = urlencode({names[key]: str(file) for key, file in files if key in names}, safe="/")
    return f"{scheme}://{f'{user}@' if user else ''}{server}{f'?{query}' if query else ''}"
