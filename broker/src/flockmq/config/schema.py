"""All keys of a node's configuration, with types, bounds and defaults.

A struct is a section (`[node]`), a dict of structs is one section per name (`[listeners.tcp.default]`), and everything
else is a key. Names are EMQX's where it has the feature. A key added here works in the file and in the environment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from flockmq.bounds import PACKET_MAX_BYTES, TOPIC_MAX_LEVELS
from flockmq.config.auth_settings import AuthenticationSettings, AuthorizationSettings, FlappingSettings
from flockmq.config.feature_settings import AutoSubscribeSettings, PluginsSettings, RewriteSettings, SysTopicsSettings
from flockmq.config.listener_settings import ListenersSettings, RatesSettings, Some
from flockmq.config.values import (
    Address,
    AnyRedisUrl,
    Count,
    Kind,
    Quota,
    QuotaBytes,
    Rate,
    Seconds,
    Secret,
)
from flockmq.redis.url import parse_redis_url

Role = Literal["core", "replicant", "single"]
PacketIds = Annotated[int, Meta(ge=1, le=65_535)]
Whole = Annotated[int, Meta(ge=0, le=0xFFFFFFFF), Kind.DURATION]
"""Seconds as in the MQTT protocol; 4294967295 means for ever."""
TextToClients = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z",
        max_length=1024,
        description="a text without control characters, of at most 1024 characters",
    ),
]
"""Clients close the connection when a packet has a NUL in a text [MQTT-1.5.4-2], and may for other control
characters."""
ClientIdBinding = Literal["auto", "user", "none"]


class NodeSettings(RatesSettings, frozen=True, kw_only=True):
    """The rates apply to all clients of this node together."""

    name: str = ""
    """Unique in the cluster. Default: the host's name."""
    host: str = "127.0.0.1"
    """The address at which other nodes reach this one."""
    data_dir: Path | None = None
    """The folder of a core's snapshots and of the embedded Valkey. Default: below the user's state folder."""
    max_memory: Annotated[int, Meta(ge=0, le=2**50), Kind.SIZE] = 0
    """Memory of this process, from which other limits follow. 0: its container's, or the machine's, less a quarter for
    an embedded Valkey. It is never more than that."""
    max_connections: Count = 1_000_000
    max_conn_rate: Rate = 0.0
    max_connections_per_address: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """Per IPv4 address, or per /64 of IPv6. 0 means half of what fits into memory."""
    max_unauthenticated_bytes: Annotated[int, Meta(ge=0, le=1024**3), Kind.SIZE] = 0
    """Memory for all unauthenticated clients; beyond it the oldest are closed. 0 means a share of the memory, at most
    24 MiB."""
    drain_timeout: Seconds = 60.0
    """A node that stops has sent all clients to other nodes within this time. 0 means at once."""


class MqttSettings(RatesSettings, frozen=True, kw_only=True):
    """The limits of the default zone, and the defaults of `[zones.NAME]`. The rates are per client."""

    max_packet_size: Annotated[int, Meta(ge=64, le=PACKET_MAX_BYTES), Kind.SIZE] = 1024 * 1024
    max_connect_packet_size: Annotated[int, Meta(ge=64, le=PACKET_MAX_BYTES), Kind.SIZE] = 64 * 1024
    """Size of CONNECT (with its will) and AUTH while a client is unauthenticated. `max_packet_size` applies too."""
    max_clientid_len: Annotated[int, Meta(ge=23, le=65_535)] = 1024
    """In bytes. The client's node and its owner both hold the client id in memory while the client is connected."""
    max_topic_levels: Annotated[int, Meta(ge=1, le=TOPIC_MAX_LEVELS)] = TOPIC_MAX_LEVELS
    max_qos_allowed: Annotated[int, Meta(ge=0, le=2)] = 2
    max_topic_alias: Annotated[int, Meta(ge=0, le=65_535)] = 32
    """Each alias of each client takes memory."""
    retain_available: bool = True
    wildcard_subscription: bool = True
    shared_subscription: bool = True
    shared_subscription_strategy: Literal[
        "random", "round_robin", "round_robin_per_group", "sticky", "local", "hash_clientid", "hash_topic"
    ] = "round_robin"
    exclusive_subscription: bool = True
    max_inflight: PacketIds = 32
    max_mqueue_len: Count = 1_000
    mqueue_store_qos0: bool = True
    max_awaiting_rel: PacketIds = 100
    await_rel_timeout: Seconds = 300.0
    session_expiry_interval: Whole = 7200
    """For MQTT 3.x clients that connect without Clean Session."""
    max_session_expiry_interval: Whole = 7 * 24 * 3600
    """The maximum for MQTT 5.0 clients. CONNACK tells clients that ask for more."""
    keepalive_multiplier: Annotated[float, Meta(ge=1.0, le=10.0)] = 1.5
    server_keepalive: Annotated[int, Meta(ge=0, le=65_535), Kind.DURATION] = 0
    """Replaces the keep-alive that clients ask for; 0 means that it doesn't."""
    idle_timeout: Some = 15.0
    """How long a connection may take until its CONNECT is complete, including TLS."""
    max_subscriptions: Count = 100_000
    max_shared_subscriptions: Count = 1000
    """Of one client. Each costs its owner work when the client comes and goes."""
    max_wildcard_shapes: Annotated[int, Meta(ge=1, le=256)] = 16
    """Number of shapes, that is positions of wildcards, among one client's filters."""
    response_information: TextToClients = ""
    server_reference: TextToClients = ""
    """The Server Reference that a 5.0 client gets when this node sends it away: `host:port`, or several, separated by
    spaces."""
    client_id_binding: ClientIdBinding = "auto"
    """`user`: while a client id has a connection or a session, only the same user may use it. `none`: any user may.
    `auto` is `user` if clients are authenticated, else `none`."""
    strict_mode: bool = False
    """Refuse everything that the specification allows a server to refuse; see `protocol/strict_mode.py`."""


class QuotasSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Quotas per user for the whole cluster, if clients are authenticated: a number, or "infinity". All clients without
    a user name are one user. The defaults are high, but leave room for other users."""

    max_sessions: Quota | None = None
    """Durable sessions."""
    max_queued_bytes: QuotaBytes | None = None
    """Data stored for its sessions: messages, wills, client ids, unfinished QoS 2 exchanges."""
    max_subscriptions: Quota | None = None
    """Subscriptions of all its sessions."""
    max_subscription_bytes: QuotaBytes | None = None
    """Bytes of their filters."""
    max_retained_bytes: QuotaBytes | None = None
    """Bytes of topics and retained messages that it published."""


RelativeThreshold: TypeAlias = Annotated[float, Meta(ge=1.0, le=10.0)]
AbsoluteThreshold: TypeAlias = Annotated[int, Meta(ge=1, le=10_000_000)]
LoadWeight: TypeAlias = Annotated[float, Meta(ge=0.0, le=1000.0)]
EvictionRate: TypeAlias = Annotated[float, Meta(ge=1.0, le=1_000_000.0)]


class RebalanceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a node that has more load than its share sends the excess to other nodes. Load is counted in clients: if
    all clients are alike, it is their number."""

    enabled: bool = False
    relative_threshold: RelativeThreshold = 1.1
    """A node has too much if it has more than this times the mean, and exceeds `absolute_threshold`."""
    absolute_threshold: AbsoluteThreshold | None = None
    """The difference to the mean that a node must exceed, in clients. Once it has begun, it continues down to the mean.
    None: twice the square root of the mean, as chance makes it, and 100 at most."""
    wait: Seconds = 30.0
    """How long a node must have too much, while the set of nodes that accept clients stays the same, before it begins.
    """
    connections_weight: LoadWeight = 2.0
    """How much a node's share of all connections counts in its load, relative to the other shares."""
    sessions_weight: LoadWeight = 1.0
    """The like of its share of the clients with durable sessions."""
    messages_weight: LoadWeight = 1.0
    """The like of its share of the messages from and to clients. They count for less while there are fewer than 100 a
    second for each node."""


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=512)] = ""
    """The cluster's name. Redis keeps the name of the first cluster that uses it, and a core of another one doesn't
    start. Empty: no check."""
    listen: Address = Address("127.0.0.1", 4370)
    seeds: tuple[Address, ...] = ()
    """The cores to contact first. A DNS name may have many addresses."""
    key: Secret | None = None
    """The key that links authenticate with, the same on every node. While it is being replaced, two lines: this node
    uses the first, and accepts both."""
    key_file: Path | None = None
    """The broker reloads it when it changes."""
    cores: Annotated[int, Meta(ge=0, le=255)] = 0
    """The number of cores of the cluster, which majorities are counted from. 0 means the number of cores that are
    members."""
    max_stale: Annotated[float, Meta(ge=0.5, le=60.0), Kind.DURATION] = 0.5
    """A node whose tables are older holds back QoS 1 and 2 messages, and their acknowledgements, until it has caught
    up. So a message that is acknowledged at least this long after a SUBACK reaches that subscriber."""
    version_settle: Seconds = 300.0
    """How long all nodes must run a release before the cluster uses formats that only this release knows. Until then it
    can be rolled back."""
    eviction_rate: EvictionRate = 500.0
    """Clients per second that all nodes together send to other nodes, when nodes stop or rebalance. It is exceeded if
    `node.drain_timeout` requires that."""
    rebalance: RebalanceSettings = RebalanceSettings()
    forwarding: Literal["direct", "via-core"] = "direct"
    """How messages get from one replicant to another. Use `via-core` if replicants can't reach each other."""
    certfile: Path | None = None
    """PEM: this node's certificate for links. With these three files links use TLS 1.3. Set all three or none. The
    broker reloads them when they change."""
    keyfile: Path | None = None
    cacertfile: Path | None = None
    """PEM: the authority of all nodes' certificates; two of them while the authority is being replaced."""

    def __post_init__(self) -> None:
        files = (self.certfile, self.keyfile, self.cacertfile)
        if any(files) and not all(files):
            raise ValueError("certfile, keyfile and cacertfile need one another: links have TLS on both sides or none")


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: AnyRedisUrl | None = None
    """One server, Sentinels, or a Redis Cluster. None: the embedded Valkey (role `single` only)."""
    username: str | None = None
    """The ACL user. It may be in the URL instead."""
    password: Secret | None = None
    password_file: Path | None = None
    """The broker reads this file, and those below, at each connect."""
    sentinel_password_file: Path | None = None
    cacertfile: Path | None = None
    """PEM: the authority of the servers' certificates. Default: the authorities that the system trusts."""
    certfile: Path | None = None
    """PEM: the client certificate, for servers that ask for one."""
    keyfile: Path | None = None
    min_replicas: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many replicas must have a write before it is acknowledged."""
    wait_timeout: Annotated[float, Meta(ge=0.01, le=60.0), Kind.DURATION] = 1.0
    """How long a write waits for these replicas before it is tried again."""
    connect_timeout: Annotated[float, Meta(ge=0.0, le=3600.0), Kind.DURATION] = 10.0
    """How long a starting node waits for Redis before it stops with exit code 3."""

    def __post_init__(self) -> None:
        place = None if self.url is None else parse_redis_url(self.url)
        if self.username and place is not None and place.username:
            raise ValueError("username: the URL names a user as well; say it once")
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile need one another")
        if (self.cacertfile or self.certfile) and not (place is not None and place.tls):
            raise ValueError("cacertfile, certfile and keyfile need TLS: a url that begins with rediss")
        if self.sentinel_password_file is not None and not (place is not None and place.kind == "sentinel"):
            raise ValueError("sentinel_password_file needs sentinels: a url that begins with redis+sentinel://")


class ManagementSettings(msgspec.Struct, frozen=True, kw_only=True):
    listen: Address = Address("127.0.0.1", 18083)
    api_key: Secret | None = None
    """The admin key, at least 32 bytes: `Authorization: Bearer KEY`. With it, other keys are created."""
    api_key_file: Path | None = None
    certfile: Path | None = None
    """PEM: the certificate of the port. With both files the port uses TLS. Set both or none. The broker reloads them
    when they change."""
    keyfile: Path | None = None
    readiness_of: Literal["node", "replicants"] = "node"
    """What /readyz and /availz tell of: this node, or whether it and at least one of the replicants take clients."""

    def __post_init__(self) -> None:
        if (self.certfile is None) != (self.keyfile is None):
            raise ValueError("certfile and keyfile need one another: the port has TLS or not")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    role: Role = "single"
    node: NodeSettings = NodeSettings()
    mqtt: MqttSettings = MqttSettings()
    zones: dict[str, MqttSettings] = {}
    listeners: ListenersSettings = field(default_factory=ListenersSettings)
    cluster: ClusterSettings = ClusterSettings()
    redis: RedisSettings = RedisSettings()
    plugins: PluginsSettings = PluginsSettings()
    rewrite: tuple[RewriteSettings, ...] = ()
    auto_subscribe: tuple[AutoSubscribeSettings, ...] = ()
    sys_topics: SysTopicsSettings = SysTopicsSettings()
    management: ManagementSettings = ManagementSettings()
    authentication: AuthenticationSettings = AuthenticationSettings()
    authorization: AuthorizationSettings = AuthorizationSettings()
    flapping: FlappingSettings = FlappingSettings()
    quotas: QuotasSettings = QuotasSettings()
    log: LogSettings = LogSettings()
