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
Amount = int | str
"""A number, or a text with a unit that the broker reads: "15s", "1MB", "100/s"."""


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
EXECUTOR_RESOURCES = Resources(requests={"cpu": "1"}, limits={"memory": "2Gi"})
BACKUP_RESOURCES = Resources(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "512Mi"})


class Storage(Part, frozen=True):
    size: str = "1Gi"
    storage_class_name: str | None = None


class RedisStorage(Storage, frozen=True):
    when_deleted: Literal["Retain", "Delete"] = "Retain"


class PodMetadata(Part, frozen=True):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class PodTemplate(Part, frozen=True):
    """What is merged over the pods that the operator makes (`resources.custom_pod`)."""

    metadata: PodMetadata = PodMetadata()
    spec: Manifest = {}
    """A PodSpec's fields."""


class Cores(Part, frozen=True):
    replicas: int = 3
    resources: Resources = NODE_RESOURCES
    storage: Storage = Storage()
    pod_template: PodTemplate = PodTemplate()


class Replicants(Part, frozen=True):
    replicas: int = 2
    resources: Resources = NODE_RESOURCES
    pod_template: PodTemplate = PodTemplate()


class Autoscaling(Part, frozen=True):
    max_replicas: int
    min_replicas: int = 2
    target_cpu_utilization_percentage: int = msgspec.field(default=70, name="targetCPUUtilizationPercentage")
    connections_per_replicant: int = 10_000
    metrics: list[Manifest] = []
    behavior: Manifest | None = None


class LoadWeights(Part, frozen=True):
    """How much each share of a node counts in its load. None: the broker's own default."""

    connections: int | None = None
    sessions: int | None = None
    messages: int | None = None

    def said(self) -> dict[str, int]:
        """By the broker's names."""
        weights = {f"{name}_weight": getattr(self, name) for name in LoadWeights.__struct_fields__}
        return {name: weight for name, weight in weights.items() if weight is not None}


class Rebalance(Part, frozen=True):
    """When a node sends load beyond its share to others."""

    relative_threshold_percent: int = 110
    absolute_threshold: int | None = None
    wait_seconds: int = 30
    weights: LoadWeights = LoadWeights()


class SecretKey(Part, frozen=True):
    name: str
    key: str = "password"


class CaSecret(Part, frozen=True):
    name: str
    key: str = "ca.crt"


class TlsSecret(Part, frozen=True):
    name: str


class RedisUser(Part, frozen=True):
    username: str
    password_secret_ref: SecretKey


class ExternalRedis(Part, frozen=True):
    url: str
    username: str | None = None
    password_secret_ref: SecretKey | None = None
    sentinel_password_secret_ref: SecretKey | None = None
    ca_secret_ref: CaSecret | None = None
    tls_secret_ref: TlsSecret | None = None
    replicants: RedisUser | None = None
    min_replicas: int = 0


class Redis(Part, frozen=True):
    replicas: int = 1
    image: str | None = None
    resources: Resources = REDIS_RESOURCES
    storage: RedisStorage = RedisStorage()
    pod_template: PodTemplate = PodTemplate()
    tls: bool | None = None
    """None: as it was made (`redis_tls`)."""
    external: ExternalRedis | None = None


class Service(Part, frozen=True):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: dict[str, str] = {}
    load_balancer_source_ranges: tuple[str, ...] = ()
    load_balancer_class: str | None = None
    external_traffic_policy: Literal["Cluster", "Local"] | None = None
    ip_families: tuple[Literal["IPv4", "IPv6"], ...] = ()
    ip_family_policy: Literal["SingleStack", "PreferDualStack", "RequireDualStack"] | None = None


class Rates(Part, frozen=True):
    messages_rate: Amount | None = None
    messages_burst: Amount | None = None
    bytes_rate: Amount | None = None
    bytes_burst: Amount | None = None


class Mqtt(Rates, frozen=True):
    """`[mqtt]` of the nodes' configuration, key by key; what stays None is left to the broker's own defaults."""

    max_packet_size: Amount | None = None
    max_connect_packet_size: Amount | None = None
    max_clientid_len: int | None = None
    max_topic_levels: int | None = None
    max_qos_allowed: int | None = None
    max_topic_alias: int | None = None
    retain_available: bool | None = None
    wildcard_subscription: bool | None = None
    shared_subscription: bool | None = None
    shared_subscription_strategy: str | None = None
    exclusive_subscription: bool | None = None
    max_inflight: int | None = None
    max_mqueue_len: int | None = None
    mqueue_store_qos0: bool | None = None
    max_awaiting_rel: int | None = None
    await_rel_timeout: Amount | None = None
    session_expiry_interval: Amount | None = None
    max_session_expiry_interval: Amount | None = None
    keepalive_multiplier: float | None = None
    server_keepalive: Amount | None = None
    idle_timeout: Amount | None = None
    max_subscriptions: int | None = None
    max_shared_subscriptions: int | None = None
    max_wildcard_shapes: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    client_id_binding: str | None = None
    strict_mode: bool | None = None


class ListenerLimits(Rates, frozen=True):
    max_connections: int | None = None
    max_conn_rate: Amount | None = None


class ServerName(Part, frozen=True):
    host: str
    secret_name: str


class CrlSecret(Part, frozen=True):
    name: str
    key: str = "ca.crl"


class Tls(Part, frozen=True):
    secret_name: str
    verify: Literal["none", "peer"] = "none"
    fail_if_no_peer_cert: bool = False
    ca_secret: CaSecret | None = None
    crl_secret: CrlSecret | None = None
    versions: tuple[str, ...] = ()
    sni: tuple[ServerName, ...] = ()


class Listener(Part, frozen=True):
    name: str
    port: int
    type: Literal["tcp", "ssl", "ws", "wss"] = "tcp"
    node_port: int | None = None
    tls: Tls | None = None
    path: str | None = None
    allowed_origins: tuple[str, ...] = ()
    proxy_protocol: bool = False
    proxy_protocol_from: tuple[str, ...] = ()
    proxy_protocol_common_name: bool = False
    zone: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    limits: ListenerLimits = ListenerLimits()


class Users(Part, frozen=True):
    """A Secret with users that are put into the cluster's log."""

    secret_name: str
    key: str = "users.csv"
    passwords: Literal["plain", "hash"] = "hash"


class Authentication(Part, frozen=True):
    allow_anonymous: bool = False
    users: Users | None = None
    chain: tuple[Manifest, ...] = ({"mechanism": "password_based:built_in_database"},)
    """Authenticators as the broker's own configuration has them, but for secrets (see `secret_files`)."""


class Rule(Part, frozen=True):
    permit: Literal["allow", "deny"]
    action: Literal["publish", "subscribe", "all"] = "all"
    topics: tuple[str, ...] = ()
    qos: tuple[int, ...] = ()
    retain: bool | None = None
    username: str | None = None
    clientid: str | None = None
    ipaddr: tuple[str, ...] = ()


class Authorization(Part, frozen=True):
    no_match: Literal["allow", "deny"] | None = None
    deny_action: Literal["ignore", "disconnect"] | None = None
    revoked_subscriptions: Literal["drop", "disconnect"] | None = None
    rules: tuple[Rule, ...] = ()
    sources: tuple[Manifest, ...] = ()
    """Sources that are asked after the rules, as the broker's own configuration has them, but for secrets."""


class S3Credentials(Part, frozen=True):
    """A Secret with a file as Amazon's own tools have it: `[default]`, `aws_access_key_id`, `aws_secret_access_key`."""

    name: str
    key: str = "credentials"


class S3(Part, frozen=True):
    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    credentials_secret_ref: S3Credentials | None = None


class ReportStorage(Storage, frozen=True):
    s3: S3 | None = None
    """None: on a volume."""


class Executors(Part, frozen=True):
    replicas: int = 0
    resources: Resources = EXECUTOR_RESOURCES


class Report(Part, frozen=True):
    enabled: bool = True
    suspend: bool = False
    schedule: str = "17 2 * * *"
    ingest_schedule: str = "*/5 * * * *"
    time_zone: str = "Etc/UTC"
    keep_days: int = 90
    lag_objective_ms: int = 1000
    image: str | None = None
    resources: Resources = REPORT_RESOURCES
    storage: ReportStorage = ReportStorage()
    executors: Executors = Executors()


class Backup(Part, frozen=True):
    """When the whole state is copied into a volume that outlives the cluster."""

    schedule: str
    claim_name: str
    time_zone: str = "Etc/UTC"
    keep: int = 7
    suspend: bool = False
    resources: Resources = BACKUP_RESOURCES


class Restore(Part, frozen=True):
    """What a new cluster begins with."""

    claim_name: str
    backup: str
    """CLUSTER/TIME, or CLUSTER for its newest."""


class NetworkPolicy(Part, frozen=True):
    enabled: bool = True
    management_from: tuple[Manifest, ...] = ()
    """NetworkPolicyPeers."""
    egress: tuple[Manifest, ...] | None = None
    """NetworkPolicyEgressRules; None: nodes may connect to anything."""


class ManagementTls(Part, frozen=True):
    secret_name: str
    """With tls.crt and tls.key."""


class Management(Part, frozen=True):
    tls: ManagementTls | None = None


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
    listeners: tuple[Listener, ...] = (Listener(name="mqtt", port=1883),)
    service: Service = Service()
    mqtt: Mqtt = Mqtt()
    forwarding: Literal["direct", "via-core"] = "direct"
    rebalance: Rebalance | None = None
    authentication: Authentication = Authentication()
    authorization: Authorization = Authorization()
    config: str = ""
    report: Report = Report()
    backup: Backup | None = None
    restore: Restore | None = None
    termination_grace_period_seconds: int = 540
    management: Management = Management()
    network_policy: NetworkPolicy = NetworkPolicy()
    update: Literal["Automatic", "OnSpecChange"] = "OnSpecChange"
    cluster_key_rotation: str = ""
    pause: bool = False
    hibernate: bool = False


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

    Numbers of replicants and sizes of volumes are left out: neither is a change of a pod. (Cores and pods of Redis know
    of how many they are one: their majorities are of that number.) Fields at their default are left out too, so that an
    operator which knows more fields finds the same digest and, with `update: OnSpecChange`, leaves pods as they are. So
    it does where Redis is in the clear, as each was once.
    """
    tls = spec.redis.tls or None
    pods = Spec(
        image_pull_policy=spec.image_pull_policy,
        image_pull_secrets=spec.image_pull_secrets,
        redis=msgspec.structs.replace(spec.redis, storage=RedisStorage(), tls=tls),
    )
    if component != "redis":
        cores = msgspec.structs.replace(spec.cores, storage=Storage())
        cores_take_clients = component == "core" and spec.replicants.replicas == 0 and spec.autoscaling is None
        takes_clients = component == "replicant" or cores_take_clients
        pods = msgspec.structs.replace(
            pods,
            image=spec.image,
            cores=cores if component == "core" else as_cores(spec.replicants),
            redis=Redis(replicas=spec.redis.replicas, tls=tls, external=spec.redis.external),
            replicants=Replicants(replicas=0) if cores_take_clients else Replicants(),
            listeners=spec.listeners if takes_clients else Spec().listeners,
            mqtt=spec.mqtt,
            forwarding=spec.forwarding,
            rebalance=with_former_default(spec.rebalance) if takes_clients else None,
            authentication=spec.authentication,
            authorization=spec.authorization,
            config=spec.config,
            termination_grace_period_seconds=spec.termination_grace_period_seconds,
        )
    return hashlib.sha256(json.dumps(said(pods), sort_keys=True).encode()).hexdigest()[:16]


def with_former_default(rebalance: Rebalance | None) -> Rebalance | None:
    """The API server has written the first default of this threshold into each object, and no digest has it."""
    if rebalance is None or rebalance.absolute_threshold != FORMER_ABSOLUTE_THRESHOLD:
        return rebalance
    return msgspec.structs.replace(rebalance, absolute_threshold=None)


FORMER_ABSOLUTE_THRESHOLD = 100


def as_cores(replicants: Replicants) -> Cores:
    """What shows in the pods of replicants, where a digest has that of cores."""
    return Cores(resources=replicants.resources, pod_template=replicants.pod_template)


ALWAYS_SAID = ((Spec, "imagePullSecrets"), (Resources, "requests"), (Resources, "limits"))
"""Digests of the first operators have these at their default too, so those of today must."""


def said(part: msgspec.Struct) -> Manifest:
    """The fields of `part` that aren't at their default: a field that a newer operator adds changes no digest."""
    fields = [(field, getattr(part, field.name)) for field in msgspec.structs.fields(part)]
    return {
        field.encode_name: _plain(value)
        for field, value in fields
        if value != default_of(field) or (type(part), field.encode_name) in ALWAYS_SAID
    }


def default_of(field: msgspec.structs.FieldInfo) -> object:
    """NODEFAULT: it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _plain(value: object) -> object:
    match value:
        case msgspec.Struct():
            return said(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case _:
            return msgspec.to_builtins(value)
