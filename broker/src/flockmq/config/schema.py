"""Every key of a node's configuration: its name, its kind, its bounds, its default.

A struct is a section, `[node]`; a dict of structs is a section for each name, `[listeners.tcp.default]`; everything
else is a key. EMQX's names where it has the thing. A key added here can be said in the file and in the environment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, field

from flockmq.bounds import PACKET_MAX_BYTES, TOPIC_MAX_LEVELS
from flockmq.config.auth_settings import AuthenticationSettings, AuthorizationSettings, FlappingSettings
from flockmq.config.feature_settings import AutoSubscribeSettings, PluginsSettings, RewriteSettings, SysTopicsSettings
from flockmq.config.values import (
    Address,
    AnyRedisUrl,
    ByteRate,
    Count,
    Kind,
    Network,
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
"""Seconds as the protocol counts them; 4294967295: for ever."""
UrlPath = Annotated[
    str, Meta(pattern=r"^/[!-~]*$", max_length=256, description="a path that begins with /, of at most 256 characters")
]
HostName = Annotated[
    str,
    Meta(
        pattern=r"^(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*$",
        description="a host's name, for example mqtt.example.com or *.example.com",
    ),
]
Origin = Annotated[
    str,
    Meta(
        pattern=r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+)$",
        max_length=256,
        description="a page's origin, scheme, host and port alone, for example https://app.example.com; or * for all",
    ),
]
Mode = Annotated[str, Meta(pattern=r"^0?[0-7]{3}$", description='a mode as chmod takes it, for example "0660"')]
ClientIdBinding = Literal["auto", "user", "none"]
Some = Annotated[float, Meta(ge=0.1, le=3600.0), Kind.DURATION]


class RatesSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is read at most. A client above it is read more slowly, and never cut off. 0: no limit.

    A burst is what may come at once after a silence; 0: one second's worth.
    """

    messages_rate: Rate = 0.0
    messages_burst: Rate = 0.0
    bytes_rate: ByteRate = 0.0
    bytes_burst: Annotated[float, Meta(ge=0.0, le=1e12), Kind.SIZE] = 0.0


class NodeSettings(RatesSettings, frozen=True, kw_only=True):
    """The rates are of all clients of this node together."""

    name: str = ""
    """Unique in the cluster; default: the host's name."""
    host: str = "127.0.0.1"
    """The address at which the other nodes reach this one."""
    data_dir: Path | None = None
    """Cores: snapshots; single: also the embedded Valkey's files. Default: below the user's state folder."""
    max_connections: Count = 1_000_000
    max_conn_rate: Rate = 0.0
    max_connections_per_address: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """Of one IPv4 address, or one /64 of IPv6. 0: half of what the memory has room for."""
    max_unauthenticated_bytes: Annotated[int, Meta(ge=0, le=1024**3), Kind.SIZE] = 0
    """What all clients that aren't let in yet may cost; beyond it the oldest go. 0: by the memory, at most 24 MiB."""
    drain_timeout: Seconds = 60.0
    """When a node that ends has sent all its clients to other nodes, at the latest; 0: at once."""


class MqttSettings(RatesSettings, frozen=True, kw_only=True):
    """The limits of the default zone; `[zones.NAME]` takes what it doesn't say from here. The rates are per client."""

    max_packet_size: Annotated[int, Meta(ge=64, le=PACKET_MAX_BYTES), Kind.SIZE] = 1024 * 1024
    max_connect_packet_size: Annotated[int, Meta(ge=64, le=PACKET_MAX_BYTES), Kind.SIZE] = 64 * 1024
    """Of CONNECT and AUTH, its will included, until a client is let in; `max_packet_size` holds as well."""
    max_clientid_len: Annotated[int, Meta(ge=23, le=65_535)] = 1024
    """In bytes. Its node and its home keep each as long as the client is connected."""
    max_topic_levels: Annotated[int, Meta(ge=1, le=TOPIC_MAX_LEVELS)] = TOPIC_MAX_LEVELS
    max_qos_allowed: Annotated[int, Meta(ge=0, le=2)] = 2
    max_topic_alias: Annotated[int, Meta(ge=0, le=65_535)] = 32
    """Memory is spent for each."""
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
    """What a 3.x client that doesn't ask for a clean session gets."""
    max_session_expiry_interval: Whole = 7 * 24 * 3600
    """The most that a 5.0 client gets; CONNACK tells who asked for more."""
    keepalive_multiplier: Annotated[float, Meta(ge=1.0, le=10.0)] = 1.5
    server_keepalive: Annotated[int, Meta(ge=0, le=65_535), Kind.DURATION] = 0
    """Replaces what clients ask for; 0: it doesn't."""
    idle_timeout: Some = 15.0
    """How long a connection may take until its CONNECT is complete, TLS and all included."""
    max_subscriptions: Count = 100_000
    max_wildcard_shapes: Annotated[int, Meta(ge=1, le=256)] = 16
    """Different places where wildcards stand in one client's filters."""
    response_information: Annotated[str, Meta(max_length=1024)] = ""
    server_reference: Annotated[str, Meta(max_length=1024)] = ""
    """Where a 5.0 client may go when this node sends it away: `host:port`, or several, separated by spaces."""
    client_id_binding: ClientIdBinding = "auto"
    """Whether a client id is its user's while there is a connection or a session of it: `auto` is `user` where clients
    are authenticated, and `none` elsewhere."""
    strict_mode: bool = False
    """Refuse what the specification lets a server refuse: see `protocol/strict_mode.py`."""


class QuotasSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one user may have in the whole cluster, where clients are authenticated: a number, or "infinity". Clients
    without a name are one user. Unset: much, but never so much that others are refused because of it."""

    max_sessions: Quota | None = None
    """That outlive their connections."""
    max_queued_bytes: QuotaBytes | None = None
    """What is kept for its sessions: messages, wills, names, exchanges under way."""
    max_subscriptions: Quota | None = None
    """Of all its sessions."""
    max_subscription_bytes: QuotaBytes | None = None
    """Their filters."""
    max_retained_bytes: QuotaBytes | None = None
    """Topics and messages that it stored."""


# --- listeners ------------------------------------------------------------------------------------------------------


class ListenerSettings(RatesSettings, frozen=True, kw_only=True):
    """What listeners of all types have. The rates are of all its clients together."""

    zone: str = "default"
    max_connections: Count = 1_000_000
    max_conn_rate: Rate = 0.0


class InetSettings(ListenerSettings, frozen=True, kw_only=True):
    bind: Address | None
    """None ("" in the file): this listener is off."""
    allow: tuple[Network, ...] = ()
    """Addresses of clients, and of load balancers where there are any; empty: all that `deny` doesn't name."""
    deny: tuple[Network, ...] = ()
    proxy_protocol: bool = False
    """A load balancer says who the client is (PROXY protocol, version 1 or 2); whoever doesn't say it is refused."""
    proxy_protocol_from: tuple[Network, ...] = ()
    """The load balancers' addresses: nobody else is believed, or let in."""
    proxy_protocol_common_name: bool = False
    """The common name of a certificate that the load balancer verified counts as the client's."""
    proxy_protocol_timeout: Some = 3.0

    def __post_init__(self) -> None:
        if self.proxy_protocol and not self.proxy_protocol_from:
            raise ValueError(
                "proxy_protocol = true needs proxy_protocol_from: the networks of the load balancers, which alone may "
                'say who a client is; for example proxy_protocol_from = ["10.0.0.0/24"]'
            )
        if self.proxy_protocol and self.allow and not _overlap(self.proxy_protocol_from, self.allow):
            raise ValueError(
                "allow names no load balancer of proxy_protocol_from, so nobody could come in: it judges both the load "
                "balancer and the client that it names; add the networks of proxy_protocol_from to it"
            )
        if not self.proxy_protocol and (self.proxy_protocol_from or self.proxy_protocol_common_name):
            raise ValueError("proxy_protocol_from and proxy_protocol_common_name need proxy_protocol = true")


def _overlap(some: tuple[Network, ...], others: tuple[Network, ...]) -> bool:
    """Whether an address is in both."""
    return any(one.overlaps(other) for one in some for other in others if one.version == other.version)


class TcpListenerSettings(InetSettings, frozen=True, kw_only=True):
    pass


class ServerNameSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Another certificate, for clients that ask for this host."""

    host: HostName
    """`mqtt.example.com`, or `*.example.com`."""
    certfile: Path
    keyfile: Path


class SslListenerSettings(InetSettings, frozen=True, kw_only=True):
    certfile: Path
    """PEM: the server's certificate, then the chain. Read again when it changes, as are all files here."""
    keyfile: Path
    password: Secret | None = None
    """Of the key."""
    password_file: Path | None = None
    cacertfile: Path | None = None
    """PEM: who signs clients' certificates."""
    crlfile: Path | None = None
    """PEM: what was revoked, with a list of each authority of the chain."""
    verify: Literal["none", "peer"] = "none"
    fail_if_no_peer_cert: bool = False
    versions: tuple[Literal["tlsv1.2", "tlsv1.3"], ...] = ("tlsv1.2", "tlsv1.3")
    ciphers: str = ""
    """OpenSSL's names for TLS 1.2; empty: OpenSSL's choice."""
    sni: tuple[ServerNameSettings, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.verify == "peer" and self.cacertfile is None:
            raise ValueError("verify = peer needs a cacertfile: who signs clients' certificates")
        if self.verify == "none" and (self.fail_if_no_peer_cert or self.crlfile is not None):
            raise ValueError("fail_if_no_peer_cert and crlfile need verify = peer")
        if not self.versions:
            raise ValueError("versions must name tlsv1.2, tlsv1.3 or both")


class WsListenerSettings(InetSettings, frozen=True, kw_only=True):
    path: UrlPath = "/mqtt"
    allowed_origins: tuple[Origin, ...] = ()
    """Web pages whose scripts may connect; empty: those of the listener's own host and port."""


class WssListenerSettings(SslListenerSettings, frozen=True, kw_only=True):
    path: UrlPath = "/mqtt"
    allowed_origins: tuple[Origin, ...] = ()


class UnixListenerSettings(ListenerSettings, frozen=True, kw_only=True):
    bind: Path | None
    """The socket's path; None ("" in the file): this listener is off."""
    mode: Mode = "0660"
    """Who may connect, as `chmod` takes it."""


class ListenersSettings(msgspec.Struct, frozen=True, kw_only=True):
    tcp: dict[str, TcpListenerSettings] = field(
        default_factory=lambda: {"default": TcpListenerSettings(bind=Address("127.0.0.1", 1883))}
    )
    """Cores: `default` is off unless it is told where to listen."""
    ssl: dict[str, SslListenerSettings] = {}
    ws: dict[str, WsListenerSettings] = {}
    wss: dict[str, WssListenerSettings] = {}
    unix: dict[str, UnixListenerSettings] = {}


# --- the rest -------------------------------------------------------------------------------------------------------


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=512)] = ""
    """Which cluster this is. Redis keeps the name of the first, and a core of another doesn't start. Empty: of any."""
    listen: Address = Address("127.0.0.1", 4370)
    seeds: tuple[Address, ...] = ()
    """Cores to ask first; a DNS name may stand for many."""
    key: Secret | None = None
    """What links authenticate with; every node of a cluster has the same. Two lines while it is replaced: this node
    shows the first, and takes both."""
    key_file: Path | None = None
    """Read again when it changes."""
    cores: Annotated[int, Meta(ge=0, le=255)] = 0
    """How many cores the cluster is to have: majorities are of this number. 0: of as many as its members' table has."""
    max_stale: Annotated[float, Meta(ge=0.5, le=60.0), Kind.DURATION] = 0.5
    """A node whose tables are older holds its acknowledgements of QoS 1 and 2 until it has caught up: what is
    acknowledged later than that after a SUBACK reaches the subscriber."""
    version_settle: Seconds = 300.0
    """For how long all nodes must have been of a release before the cluster uses what only that release understands.
    Until then it can be rolled back."""
    eviction_rate: Annotated[float, Meta(ge=1.0, le=1_000_000.0)] = 500.0
    """How many clients a second all nodes that end, together, send to other nodes; more where `node.drain_timeout` asks
    for it."""
    forwarding: Literal["direct", "via-core"] = "direct"
    """How messages get from one replicant to another: `via-core` where replicants can't reach one another."""
    certfile: Path | None = None
    """PEM: what this node shows on links, which are TLS 1.3 then. All three or none; read again when they change."""
    keyfile: Path | None = None
    cacertfile: Path | None = None
    """PEM: who signs every node's certificate; two of them while the authority is being replaced."""

    def __post_init__(self) -> None:
        files = (self.certfile, self.keyfile, self.cacertfile)
        if any(files) and not all(files):
            raise ValueError("certfile, keyfile and cacertfile need one another: links have TLS on both sides or none")


class RedisSettings(msgspec.Struct, frozen=True, kw_only=True):
    url: AnyRedisUrl | None = None
    """One server, sentinels or a cluster; None: the embedded Valkey (role `single` only)."""
    username: str | None = None
    """Of an ACL; also in the URL."""
    password: Secret | None = None
    password_file: Path | None = None
    """Read again at each connect, as are the three files below."""
    sentinel_password_file: Path | None = None
    cacertfile: Path | None = None
    """PEM: who signs the servers' certificates; default: whom the system trusts."""
    certfile: Path | None = None
    """PEM: what we show to servers that ask for a certificate."""
    keyfile: Path | None = None
    min_replicas: Annotated[int, Meta(ge=0, le=100)] = 0
    """How many replicas must have a write before it is acknowledged."""
    wait_timeout: Annotated[float, Meta(ge=0.01, le=60.0), Kind.DURATION] = 1.0
    """How long a write waits for them before it is tried again."""
    connect_timeout: Annotated[float, Meta(ge=0.0, le=3600.0), Kind.DURATION] = 10.0
    """How long a starting node waits for Redis before it gives up with exit code 3."""

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
    """An admin's key, at least 32 bytes: `Authorization: Bearer KEY`. It makes the others."""
    api_key_file: Path | None = None
    certfile: Path | None = None
    """PEM: what the port shows, which has TLS then. Both or none; read again when they change."""
    keyfile: Path | None = None

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


AnyListener = (
    TcpListenerSettings | SslListenerSettings | WsListenerSettings | WssListenerSettings | UnixListenerSettings
)
ListenerType = Literal["tcp", "ssl", "ws", "wss", "unix"]


class NamedListenerSettings(NamedTuple):
    """One listener of the configuration that is on; `str()` is `tcp:default`."""

    type: ListenerType
    name: str
    settings: AnyListener

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def named_listeners(config: Config) -> Iterator[NamedListenerSettings]:
    """Those that are on, in the order of their types."""
    of = config.listeners
    by_type: tuple[tuple[ListenerType, Mapping[str, AnyListener]], ...] = (
        ("tcp", of.tcp),
        ("ssl", of.ssl),
        ("ws", of.ws),
        ("wss", of.wss),
        ("unix", of.unix),
    )
    for type, listeners in by_type:
        for name, settings in listeners.items():
            if settings.bind is not None:
                yield NamedListenerSettings(type, name, settings)
