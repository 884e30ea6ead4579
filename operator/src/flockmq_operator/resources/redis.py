"""Redis (Valkey by default): a StatefulSet with an append-only file on each volume, and its Services.

`appendfsync always`, because *acknowledged is kept* rests on it; `noeviction` and 60 % of the memory limit, so that a
rewrite of the file, which copies pages on write, can't get the process killed.

With `redis.replicas` 3 or 5 one of the pods is the primary, and a Sentinel stands beside each: in the same pod, so that
whoever reaches a majority of the Sentinels reaches a majority of the data. Each pod has a Service of its own, whose
name and address outlive the pod: nobody has to notice that a pod's IP changed. `valkey.sh` says how a pod learns its
role, and how it takes up renewed certificates.
"""

from collections.abc import Iterator

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources import config
from flockmq_operator.resources.accounts import node_account
from flockmq_operator.resources.context import (
    CONFIG_DIR,
    REDIS_DATA_DIR,
    REDIS_PORT,
    SECRETS_DIR,
    SENTINEL_PORT,
    TLS_DIR,
    Context,
)
from flockmq_operator.resources.core import claim_template
from flockmq_operator.resources.custom_pod import customised
from flockmq_operator.resources.labels import metadata, selector
from flockmq_operator.resources.pod import (
    CONTAINER_SECURITY,
    SECRET_MODE,
    TMP,
    TMP_MOUNT,
    pod_template,
    topology_spread,
)

LOAD_MAX_S = 3600
"""The longest that loading the append-only file may take."""
GRACE_S = 90
"""The longest that a primary's handing over and writing the file out at the end may take."""
SETTLE_S = 10
"""How long a restarted pod must have been ready before the next one is restarted: Sentinels ask every ten seconds."""
SENTINEL_RESOURCES: Manifest = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
SCRIPT = ("sh", f"{CONFIG_DIR}/valkey.sh")


def redis(context: Context) -> Iterator[Manifest]:
    if context.spec.redis.external:
        return
    yield from _services(context)
    spec = context.spec.redis
    storage = spec.storage
    replicated: Manifest = {"podManagementPolicy": "Parallel", "minReadySeconds": SETTLE_S}
    yield {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(context, context.redis, "redis"),
        "spec": {
            "serviceName": context.redis,
            "replicas": spec.replicas,
            "updateStrategy": {"type": "OnDelete"},  # the operator restarts one at a time, and no core meanwhile
            "selector": {"matchLabels": selector(context, "redis")},
            "template": customised(_template(context), spec.pod_template, "spec.redis.podTemplate"),
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": storage.when_deleted, "whenScaled": "Retain"},
            "volumeClaimTemplates": [claim_template(context, "redis", storage)],
            **(replicated if context.redis_hosts else {}),
        },
    }


def _services(context: Context) -> Iterator[Manifest]:
    """One for all that are ready, by which a Redis without replicas is reached; with replicas one for each pod, too."""
    ports = [{"name": "redis", "port": REDIS_PORT, "targetPort": "redis"}]
    yield {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(context, context.redis, "redis"),
        "spec": {"selector": selector(context, "redis"), "ports": ports},
    }
    ports = [*ports, {"name": "sentinel", "port": SENTINEL_PORT, "targetPort": "sentinel"}]
    for host in context.redis_hosts:
        pod = {**selector(context, "redis"), "statefulset.kubernetes.io/pod-name": host}
        yield {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(context, host, "redis"),
            "spec": {"publishNotReadyAddresses": True, "selector": pod, "ports": ports},
        }


def _template(context: Context) -> Manifest:
    files = config.files_of("redis", config.files(context))
    items = [{"key": file, "path": file} for file in files]
    pod: Manifest = {
        "serviceAccountName": node_account(context),
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_redis(context), *([_sentinel(context)] if context.redis_hosts else [])],
        "topologySpreadConstraints": topology_spread(context, "redis"),
        "volumes": [
            {"name": "config", "configMap": {"name": config.config_name(context, "redis", files), "items": items}},
            {"name": "secrets", "secret": _secret(context)},
            *([{"name": "tls", "secret": _certificates(context)}] if context.redis_tls else []),
            TMP,
        ],
    }
    return pod_template(context, "redis", pod, config.digest("redis", files))


def _redis(context: Context) -> Manifest:
    # A reply, be it the error LOADING, is a sign of life; -e: ready and started is who answers PONG.
    alive, pong = _exec([*_cli(context), "ping"]), _exec(_as_administrator(context, "-e", "ping"))
    container = _container(context, "redis", REDIS_PORT) | {
        "command": [*SCRIPT, "alone"] if context.redis_tls else ["valkey-server", f"{CONFIG_DIR}/valkey.conf"],
        "resources": context.spec.redis.resources.manifest(),
        "startupProbe": {**pong, "periodSeconds": 3, "failureThreshold": LOAD_MAX_S // 3},
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**pong, "periodSeconds": 5, "failureThreshold": 3},
    }
    if context.redis_hosts:
        container["command"] = [*SCRIPT, "redis"]
        container["readinessProbe"] |= _exec([*SCRIPT, "ready", "redis"])
        container["lifecycle"] = {"preStop": {"exec": {"command": [*SCRIPT, "leave"]}}}
    return container


def _sentinel(context: Context) -> Manifest:
    alive = _exec([*_cli(context), "-p", str(SENTINEL_PORT), "ping"])
    return _container(context, "sentinel", SENTINEL_PORT) | {
        "command": [*SCRIPT, "sentinel"],
        "resources": SENTINEL_RESOURCES,
        "livenessProbe": {**alive, "periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": {**_exec([*SCRIPT, "ready", "sentinel"]), "periodSeconds": 5, "failureThreshold": 3},
    }


def _container(context: Context, name: str, port: int) -> Manifest:
    env: list[Manifest] = []
    if context.redis_hosts or context.redis_tls:
        env = [
            {"name": "SELF", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "HOSTS", "value": " ".join(context.redis_hosts)},
            {"name": "CLUSTER", "value": context.cluster.uid},
            {"name": "CONFIG", "value": CONFIG_DIR},
            {"name": "SECRETS", "value": SECRETS_DIR},
            {"name": "DATA", "value": REDIS_DATA_DIR},
            *([{"name": "TLS", "value": TLS_DIR}] if context.redis_tls else []),
        ]
    return {
        "name": name,
        "image": context.redis_image,
        "imagePullPolicy": context.image_pull_policy,
        "workingDir": REDIS_DATA_DIR,
        "env": env,
        "ports": [{"name": name, "containerPort": port}],
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            *(
                {"name": "config", "mountPath": f"{CONFIG_DIR}/{file}", "subPath": file, "readOnly": True}
                for file in config.files_of("redis", config.files(context))
            ),
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            *([{"name": "tls", "mountPath": TLS_DIR, "readOnly": True}] if context.redis_tls else []),
            {"name": "data", "mountPath": REDIS_DATA_DIR},
            TMP_MOUNT,
        ],
    }


def _exec(command: list[str]) -> Manifest:
    return {"exec": {"command": command}, "timeoutSeconds": 10}


def _cli(context: Context) -> list[str]:
    return ["valkey-cli", *(("--tls", "--cacert", f"{TLS_DIR}/ca.crt") if context.redis_tls else ())]


def _as_administrator(context: Context, *arguments: str) -> list[str]:
    """valkey-cli with the password from its file: it is in no container's environment and on no command line."""
    password = f"$(cat {SECRETS_DIR}/password)"
    script = f'REDISCLI_AUTH={password} VALKEYCLI_AUTH={password} exec {" ".join(_cli(context))} "$@"'
    return ["sh", "-c", script, "sh", *arguments]


def _secret(context: Context) -> Manifest:
    keys = ("password", "redis.conf", "users.acl", *(("sentinel.conf", "sentinel.acl") if context.redis_hosts else ()))
    return {"secretName": context.redis, "items": [{"key": key, "path": key} for key in keys]}


def _certificates(context: Context) -> Manifest:
    files = {"redis.crt": "tls.crt", "redis.key": "tls.key", "ca.crt": "ca.crt"}
    items = [{"key": key, "path": path} for key, path in files.items()]
    return {"secretName": context.redis_certificates, "items": items, "defaultMode": SECRET_MODE}
