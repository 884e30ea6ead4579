"""Redis (Valkey by default): a StatefulSet of one with an append-only file on a volume, and its Service.

`appendfsync always`, because *acknowledged is kept* rests on it; `noeviction` and 60 % of the memory limit, so that a
rewrite of the file, which copies pages on write, can't get the process killed.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources import config
from flockmq_operator.resources.accounts import node_account
from flockmq_operator.resources.context import CONFIG_DIR, REDIS_DATA_DIR, REDIS_PORT, SECRETS_DIR, Context
from flockmq_operator.resources.core import claim_template
from flockmq_operator.resources.labels import metadata, selector
from flockmq_operator.resources.pod import CONTAINER_SECURITY, TMP, TMP_MOUNT, config_volume, pod_template

LOAD_MAX_S = 3600
"""The longest that loading the append-only file may take."""
GRACE_S = 60
"""The longest that writing the file out at the end may take."""


def redis(context: Context) -> Iterator[Manifest]:
    if context.spec.redis.external:
        return
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, context.redis, "redis"),
        "spec": {
            "selector": selector(context, "redis"),
            "ports": [{"name": "redis", "port": REDIS_PORT, "targetPort": "redis"}],
        },
    }
    storage = context.spec.redis.storage
    yield {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(context, context.redis, "redis"),
        "spec": {
            "serviceName": context.redis,
            "replicas": 1,
            "selector": {"matchLabels": selector(context, "redis")},
            "template": _template(context),
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": storage.when_deleted, "whenScaled": "Retain"},
            "volumeClaimTemplates": [claim_template(context, "redis", storage)],
        },
    }


def _template(context: Context) -> Manifest:
    spec = context.spec.redis
    # -e: an error reply such as LOADING is a failure. The password comes by the environment.
    ping = {"exec": {"command": ["valkey-cli", "-e", "ping"]}, "timeoutSeconds": 5}
    password = {"valueFrom": {"secretKeyRef": {"name": context.redis, "key": "password"}}}
    container: Manifest = {
        "name": "redis",
        "image": spec.image or context.settings.flockmq_redis_image,
        "imagePullPolicy": context.image_pull_policy,
        "command": ["valkey-server", f"{CONFIG_DIR}/valkey.conf"],
        "workingDir": REDIS_DATA_DIR,
        "env": [{"name": "REDISCLI_AUTH", **password}, {"name": "VALKEYCLI_AUTH", **password}],
        "ports": [{"name": "redis", "containerPort": REDIS_PORT}],
        "resources": spec.resources.manifest(),
        "securityContext": CONTAINER_SECURITY,
        "startupProbe": {**ping, "periodSeconds": 3, "failureThreshold": LOAD_MAX_S // 3},
        "livenessProbe": {**ping, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**ping, "periodSeconds": 5, "failureThreshold": 3},
        "volumeMounts": [
            {"name": "config", "mountPath": f"{CONFIG_DIR}/valkey.conf", "subPath": "valkey.conf", "readOnly": True},
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            {"name": "data", "mountPath": REDIS_DATA_DIR},
            TMP_MOUNT,
        ],
    }
    secret = {"secretName": context.redis, "items": [{"key": "auth.conf", "path": "auth.conf"}]}
    pod: Manifest = {
        "serviceAccountName": node_account(context),
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [container],
        "volumes": [config_volume(context, "redis", "valkey.conf"), {"name": "secrets", "secret": secret}, TMP],
    }
    return pod_template(context, "redis", pod, config.digest(config.valkey_conf(context)))
