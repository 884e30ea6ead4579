"""The restore: a job that fills the volumes of a new cluster's first core and first Redis, before there is either.

The other cores bootstrap from the first, the other pods of Redis copy theirs. A job, and no container of those pods: a
volume with backups mostly can't be mounted on two machines, and these pods would need it for as long as they run.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources.backup import SCRIPT, SCRIPT_MOUNT, job_spec, script_pod
from flockmq_operator.resources.context import BACKUPS_DIR, Context
from flockmq_operator.resources.core import claim_template
from flockmq_operator.resources.labels import RESTORED_FOR, RESTORES, metadata
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP_MOUNT
from flockmq_operator.spec import BACKUP_RESOURCES, Restore

CORE_DIR, REDIS_DIR = "/core", "/redis"


def restore(context: Context) -> Iterator[Manifest]:
    spec = context.spec.restore
    if spec is None:
        return
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(context, context.restore, "restore") | {"annotations": {RESTORES: restores(spec)}},
        "spec": job_spec(_template(context, spec)),
    }


def restores(spec: Restore) -> str:
    return f"{spec.backup} of {spec.claim_name}"


def claims(context: Context) -> list[Manifest]:
    """The claims that are filled: those that the StatefulSets' first pods will have. Nobody owns them, as nobody owns
    the others: they outlive the MqttCluster, unless the StatefulSets say otherwise."""
    parts = (("redis", context.redis, context.spec.redis.storage), ("core", context.core, context.spec.cores.storage))
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": claim_of(workload),
                "namespace": context.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": {RESTORED_FOR: context.cluster.uid},
            },
            "spec": template["spec"],
        }
        for component, workload, storage in parts
        for template in [claim_template(context, component, storage)]
    ]


def claim_of(workload: str) -> str:
    return f"data-{workload}-0"


def _template(context: Context, spec: Restore) -> Manifest:
    env = {
        "BACKUPS": BACKUPS_DIR,
        "BACKUP": spec.backup,
        "CORE": CORE_DIR,
        "REDIS": REDIS_DIR,
        "TMP": TMP_MOUNT["mountPath"],
    }
    container: Manifest = {
        "name": "restore",
        "image": context.redis_image,
        "imagePullPolicy": context.image_pull_policy,
        "command": [*SCRIPT, "restore"],
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": BACKUP_RESOURCES.manifest(),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            SCRIPT_MOUNT,
            {"name": "backups", "mountPath": BACKUPS_DIR, "readOnly": True},
            {"name": "core", "mountPath": CORE_DIR},
            {"name": "redis", "mountPath": REDIS_DIR},
            TMP_MOUNT,
        ],
    }
    mounted = (
        ("backups", spec.claim_name),
        ("core", claim_of(context.core)),
        ("redis", claim_of(context.redis)),
    )
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": claim}} for name, claim in mounted]
    return script_pod(context, "restore", volumes, containers=[container])
