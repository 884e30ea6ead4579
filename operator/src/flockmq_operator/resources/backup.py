"""The backup: a CronJob that copies a core's tables, then Redis, into a volume of the user's own, which outlives the
cluster. `backup.sh` says what a backup is, and why in this order."""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.accounts import node_account
from flockmq_operator.resources.context import BACKUPS_DIR, CONFIG_DIR, MANAGEMENT_PORT, SECRETS_DIR, Context
from flockmq_operator.resources.custom_pod import customised
from flockmq_operator.resources.labels import Component, metadata
from flockmq_operator.resources.pod import (
    CONTAINER_SECURITY,
    TMP,
    TMP_MOUNT,
    config_volume,
    pod_template,
    secrets_volume,
)
from flockmq_operator.resources.secret_files import SecretFile, api_key, management_files
from flockmq_operator.spec import PodTemplate

DEADLINE_S = 4 * 3600
"""A run that takes longer is stopped."""
RETRIES = 2
SCRIPT = ("sh", f"{CONFIG_DIR}/backup.sh")
AS_REDIS = (
    *("imagePullSecrets", "nodeSelector", "priorityClassName", "runtimeClassName", "schedulerName"),
    *("securityContext", "tolerations"),
)
"""What of `spec.redis.podTemplate` holds for these pods too. Not its affinity: that keeps pods of Redis apart."""


def backup(context: Context) -> Iterator[Manifest]:
    spec = context.spec.backup
    if spec is None:
        return
    yield {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(context, context.backup, "backup"),
        "spec": {
            "schedule": spec.schedule,
            "timeZone": spec.time_zone,
            "suspend": spec.suspend,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"spec": job_spec(_template(context, spec.claim_name))},
        },
    }


def job_spec(template: Manifest) -> Manifest:
    return {"backoffLimit": RETRIES, "activeDeadlineSeconds": DEADLINE_S, "template": template}


def _template(context: Context, claim: str) -> Manifest:
    volumes = [
        {"name": "backups", "persistentVolumeClaim": {"claimName": claim}},
        secrets_volume(_files_of_tables(context)),
        secrets_volume(_files_of_redis(context), "redis-secrets"),
    ]
    return script_pod(context, "backup", volumes, containers=[_redis(context)], init_containers=[_tables(context)])


def script_pod(
    context: Context,
    component: Component,
    volumes: list[Manifest],
    *,
    containers: list[Manifest],
    init_containers: list[Manifest] | None = None,
) -> Manifest:
    """A pod that runs `backup.sh`, once."""
    pod: Manifest = {
        "serviceAccountName": node_account(context),
        "restartPolicy": "Never",
        **({"initContainers": init_containers} if init_containers else {}),
        "containers": containers,
        "volumes": [config_volume(context, component, "backup.sh"), TMP, *volumes],
    }
    said = context.spec.redis.pod_template
    like_redis = PodTemplate(spec={key: value for key, value in said.spec.items() if key in AS_REDIS})
    return customised(pod_template(context, component, pod), like_redis, "spec.redis.podTemplate")


def _tables(context: Context) -> Manifest:
    """The first container: the tables of whichever core answers."""
    scheme, pin = "http", []
    if context.spec.management.tls:
        scheme, pin = "https", ["--pin", str(management_files(context)["certfile"])]
    url = f"{scheme}://{context.core}:{MANAGEMENT_PORT}"
    folder = f"{BACKUPS_DIR}/{context.name}/.new"
    return _container(context, "tables") | {
        "image": context.spec.image or context.settings.flockmq_broker_image,
        "args": ["ctl", "--url", url, "--api-key-file", str(api_key(context)), *pin, "tables", "save", folder],
        "volumeMounts": [
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            {"name": "backups", "mountPath": BACKUPS_DIR},
            TMP_MOUNT,
        ],
    }


def _redis(context: Context) -> Manifest:
    """The second one: Redis, and all that makes a backup of it."""
    assert context.spec.backup
    env = {
        "BACKUPS": BACKUPS_DIR,
        "CLUSTER": context.name,
        "HOSTS": " ".join(context.redis_hosts or [context.redis]),
        "KEEP": str(context.spec.backup.keep),
        "SECRETS": SECRETS_DIR,
        **({"TLS": f"{SECRETS_DIR}/tls"} if context.redis_tls else {}),
        "TMP": TMP_MOUNT["mountPath"],
    }
    return _container(context, "redis") | {
        "image": context.redis_image,
        "command": [*SCRIPT, "take"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "volumeMounts": [
            SCRIPT_MOUNT,
            {"name": "redis-secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            {"name": "backups", "mountPath": BACKUPS_DIR},
            TMP_MOUNT,
        ],
    }


SCRIPT_MOUNT: Manifest = {
    "name": "config",
    "mountPath": f"{CONFIG_DIR}/backup.sh",
    "subPath": "backup.sh",
    "readOnly": True,
}


def _container(context: Context, name: str) -> Manifest:
    assert context.spec.backup
    return {
        "name": name,
        "imagePullPolicy": context.image_pull_policy,
        "resources": context.spec.backup.resources.manifest(),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words are why it failed
    }


def _files_of_tables(context: Context) -> list[SecretFile]:
    pinned = management_files(context).get("certfile")
    return [api_key(context), *([pinned] if pinned else [])]


def _files_of_redis(context: Context) -> list[SecretFile]:
    """The administrator's password: no other user may copy Redis."""
    files = [SecretFile("password", context.redis, "password")]
    return [*files, SecretFile("tls/ca.crt", context.redis_certificates, "ca.crt")] if context.redis_tls else files
