"""The MqttCluster's spec, decoded.

Invariant: what decodes here, the CRD's schema admits, and the reverse: `crds/mqttclusters.yaml` is the reference for
the meaning, bounds and defaults of each field; the defaults are repeated for objects older than a field. Names are the
CRD's, in snake case.
"""

import hashlib
import json
from typing import Literal

import msgspec

from flockmq_operator.manifest import Manifest

GROUP = "flockmq.io"
VERSION = "v1alpha1"
KIND = "MqttCluster"
PLURAL = "mqttclusters"

Quantities = dict[str, str | int]


class SpecError(Exception):
    """A spec that can't be run; the message says what, where, and how to mend it."""


class Part(msgspec.Struct, rename="camel", frozen=True):
    pass


class Resources(Part, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}

    def manifest(self) -> Manifest:
        return {key: value for key, value in (("requests", self.requests), ("limits", self.limits)) if value}


NODE_RESOURCES = Resources(requests={"cpu": "250m", "memory": "256Mi"}, limits={"memory": "1Gi"})
REDIS_RESOURCES = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "1Gi"})
REPORT_RESOURCES = Resources(requests={"cpu": "250m", "memory": "1Gi"}, limits={"memory": "2Gi"})


class Storage(Part, frozen=True):
    size: str = "1Gi"
    storage_class_name: str | None = None


class RedisStorage(Storage, frozen=True):
    when_deleted: Literal["Retain", "Delete"] = "Retain"


class Cores(Part, frozen=True):
    replicas: int = 3
    resources: Resources = NODE_RESOURCES
    storage: Storage = Storage()


class Replicants(Part, frozen=True):
    replicas: int = 2
    resources: Resources = NODE_RESOURCES


class Autoscaling(Part, frozen=True):
    max_replicas: int
    min_replicas: int = 2
    target_cpu_utilization_percentage: int = msgspec.field(default=70, name="targetCPUUtilizationPercentage")
    connections_per_replicant: int = 10_000
    metrics: list[Manifest] = []
    behavior: Manifest | None = None


class SecretKey(Part, frozen=True):
    name: str
    key: str = "password"


class ExternalRedis(Part, frozen=True):
    url: str
    password_secret_ref: SecretKey | None = None


class Redis(Part, frozen=True):
    image: str | None = None
    resources: Resources = REDIS_RESOURCES
    storage: RedisStorage = RedisStorage()
    external: ExternalRedis | None = None


class Service(Part, frozen=True):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    node_port: int | None = None
    annotations: dict[str, str] = {}


class Mqtt(Part, frozen=True):
    """What stays None is left to the broker's own defaults."""

    allow_anonymous: bool | None = None
    max_packet_size_bytes: int | None = None
    max_inflight: int | None = None
    max_mqueue_len: int | None = None
    max_awaiting_rel: int | None = None
    idle_timeout_seconds: int | None = None
    max_connections: int | None = None


class Report(Part, frozen=True):
    enabled: bool = True
    suspend: bool = False
    schedule: str = "17 2 * * *"
    image: str | None = None
    resources: Resources = REPORT_RESOURCES
    storage: Storage = Storage()


class NetworkPolicy(Part, frozen=True):
    enabled: bool = True


class PullSecret(Part, frozen=True):
    name: str


class Spec(Part, frozen=True):
    image: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: list[PullSecret] = []
    cores: Cores = Cores()
    replicants: Replicants = Replicants()
    autoscaling: Autoscaling | None = None
    redis: Redis = Redis()
    service: Service = Service()
    mqtt: Mqtt = Mqtt()
    report: Report = Report()
    termination_grace_period_seconds: int = 540
    network_policy: NetworkPolicy = NetworkPolicy()
    update: Literal["Automatic", "OnSpecChange"] = "OnSpecChange"


class MqttCluster(msgspec.Struct, frozen=True):
    """A decoded MqttCluster object."""

    name: str
    namespace: str
    uid: str
    generation: int
    spec: Spec


def decode(body: Manifest) -> MqttCluster:
    """Decode a MqttCluster as the API server returned it; raises SpecError naming the field."""
    metadata = body["metadata"]
    try:
        spec = msgspec.convert(body.get("spec", {}), Spec)
    except msgspec.ValidationError as error:
        raise SpecError(
            f"spec{str(error).rpartition('`$')[2].rstrip('`')}: {error}. Mend the field, or install "
            "the CustomResourceDefinition that belongs to this operator."
        ) from None
    return MqttCluster(metadata["name"], metadata["namespace"], metadata["uid"], metadata["generation"], spec)


def pods_digest(spec: Spec, component: str) -> str:
    """A digest of what somebody wrote in `spec` that shows in the pods of this component (core, replicant or redis).

    Numbers of pods and sizes of volumes are left out: neither is a change of a pod. Fields at their default are left
    out too, so that an operator which knows more fields finds the same digest and, with `update: OnSpecChange`, leaves
    pods as they are.
    """
    pods = Spec(
        image_pull_policy=spec.image_pull_policy,
        image_pull_secrets=spec.image_pull_secrets,
        redis=msgspec.structs.replace(spec.redis, storage=RedisStorage()),
    )
    if component != "redis":
        resources = spec.cores.resources if component == "core" else spec.replicants.resources
        pods = msgspec.structs.replace(
            pods,
            image=spec.image,
            cores=Cores(resources=resources),
            redis=Redis(external=spec.redis.external),
            mqtt=spec.mqtt,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
        )
    return hashlib.sha256(json.dumps(_said(pods), sort_keys=True).encode()).hexdigest()[:16]


def _said(part: msgspec.Struct) -> Manifest:
    """The fields of `part` that aren't at their default."""
    said: Manifest = {}
    for field in msgspec.structs.fields(part):
        value = getattr(part, field.name)
        if value != field.default:
            said[field.encode_name] = msgspec.to_builtins(_said(value) if isinstance(value, msgspec.Struct) else value)
    return said
