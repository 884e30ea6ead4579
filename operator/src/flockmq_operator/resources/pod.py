"""What all pods of a MqttCluster share: they satisfy the restricted Pod Security Standard, with a read-only root file
system and no token of the API server."""

from collections.abc import Iterable

from flockmq_operator.manifest import Manifest
from flockmq_operator.resources import config
from flockmq_operator.resources.accounts import node_account
from flockmq_operator.resources.context import (
    CONFIG_DIR,
    DATA_DIR,
    LINK_PORT,
    MANAGEMENT_PORT,
    SECRETS_DIR,
    Context,
)
from flockmq_operator.resources.labels import (
    CONFIG_DIGEST,
    MANAGED_BY,
    MANAGER,
    SAFE_TO_EVICT,
    TAKES_CLIENTS,
    Component,
    selector,
)
from flockmq_operator.resources.node_config import Role
from flockmq_operator.resources.secret_files import SecretFile, node_files, takes_clients

NODE = "flockmq"
"""The container of a broker node."""
UID = 10001
SECRET_MODE = 0o440
"""Readable by the pod's user, through its group."""

CONTAINER_SECURITY: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}

TMP: Manifest = {"name": "tmp", "emptyDir": {}}
TMP_MOUNT: Manifest = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 (an emptyDir of the pod's own)


UNPRIVILEGED_PORTS = {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}
"""Ports below 1024 for a user that isn't root; one of the sysctls that the restricted standard admits."""


def pod_template(context: Context, component: Component, pod: Manifest, config_digest: str | None = None) -> Manifest:
    """`pod` (a PodSpec) with what every pod has."""
    metadata: Manifest = {"labels": {**selector(context, component), MANAGED_BY: MANAGER}}
    if config_digest:
        alone = component == "redis" and not context.redis_hosts  # nothing takes its place meanwhile
        metadata["annotations"] = {CONFIG_DIGEST: config_digest, SAFE_TO_EVICT: "false" if alone else "true"}
    spec: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "fsGroup": UID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **pod,
    }
    if context.spec.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret.name} for secret in context.spec.image_pull_secrets]
    return {"metadata": metadata, "spec": spec}


def node_template(context: Context, role: Role, resources: Manifest, volumes: Iterable[Manifest]) -> Manifest:
    """The pod of a broker node; `volumes` hold one named `data`, unless a volume claim template does."""
    listeners = context.spec.listeners if takes_clients(context, role) else ()
    container: Manifest = {
        "name": NODE,
        "image": context.spec.image or context.settings.flockmq_broker_image,
        "imagePullPolicy": context.image_pull_policy,
        "args": ["run", "--config", f"{CONFIG_DIR}/flockmq.toml"],
        "env": [
            {"name": "FLOCKMQ_ROLE", "value": role},
            {"name": "FLOCKMQ_NODE__NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FLOCKMQ_NODE__HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [
            *({"name": listener.name, "containerPort": listener.port} for listener in listeners),
            {"name": "link", "containerPort": LINK_PORT},
            {"name": "management", "containerPort": MANAGEMENT_PORT},
        ],
        "resources": resources,
        "securityContext": CONTAINER_SECURITY,
        # What a node says last, such as the key of its configuration that is wrong, is told in the conditions.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # A node that lost Redis or its cores is alive: /livez looks at the process alone. The bootstrap has no deadline
        # that fits every cluster, so readiness, not liveness, waits for it.
        "startupProbe": probe(context, "/livez", period_s=2, failures=90),
        "livenessProbe": probe(context, "/livez", period_s=10, failures=6),
        "readinessProbe": probe(context, "/readyz", period_s=3, failures=3),
        "volumeMounts": [
            {"name": "config", "mountPath": f"{CONFIG_DIR}/flockmq.toml", "subPath": "flockmq.toml", "readOnly": True},
            {"name": "secrets", "mountPath": SECRETS_DIR, "readOnly": True},
            {"name": "data", "mountPath": DATA_DIR},
            TMP_MOUNT,
        ],
    }
    secrets = secrets_volume(node_files(context, role))
    pod: Manifest = {
        "serviceAccountName": node_account(context),
        "terminationGracePeriodSeconds": context.spec.termination_grace_period_seconds,
        "containers": [container],
        "topologySpreadConstraints": topology_spread(context, role),
        "volumes": [config_volume(context, role, "flockmq.toml"), secrets, TMP, *volumes],
    }
    template = pod_template(context, role, pod, config.digest(role, config.files(context)))
    if takes_clients(context, role):
        template["metadata"]["labels"][TAKES_CLIENTS] = "true"
    if any(listener.port < 1024 for listener in listeners):
        template["spec"]["securityContext"]["sysctls"] = [UNPRIVILEGED_PORTS]
    return template


def probe(context: Context, path: str, *, period_s: int, failures: int) -> Manifest:
    tls = {"scheme": "HTTPS"} if context.spec.management.tls else {}
    return {
        "httpGet": {"path": path, "port": "management", **tls},
        "periodSeconds": period_s,
        "timeoutSeconds": 3,
        "failureThreshold": failures,
    }


def topology_spread(context: Context, component: Component) -> list[Manifest]:
    """Prefer other zones, then other machines, but never leave a pod unscheduled."""
    return [
        {
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(context, component)},
        }
        for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    ]


def config_volume(context: Context, component: Component, path: str) -> Manifest:
    """The component's one file, under the name `path`."""
    items = [{"key": config.FILES[component][0], "path": path}]
    name = config.config_name(context, component, config.files(context))
    return {"name": "config", "configMap": {"name": name, "items": items}}


def secrets_volume(files: Iterable[SecretFile], name: str = "secrets") -> Manifest:
    """A volume with these files."""
    sources = [{"secret": {"name": file.secret, "items": [{"key": file.key, "path": file.path}]}} for file in files]
    return {"name": name, "projected": {"sources": sources, "defaultMode": SECRET_MODE}}
