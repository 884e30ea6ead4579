"""What management asks of a node, part by part. The node hands in its parts as `Views`; nothing here imports them.

The structs are what goes over HTTP and into metrics: plain numbers that the node counts anyway, read at scrape time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from flockmq.management.rows import ClientsWanted, SessionsWanted
from flockmq.telemetry.sample import Samples


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """Where a node listens, once it does. None: it has no such listener."""

    mqtt: int | None
    """The listener `tcp:default`'s."""
    listeners: dict[str, int] = {}
    """By name, `ssl:default`; a Unix socket's is 0."""
    link: int | None
    management: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the cluster, as `/api/v1/nodes` shows it."""

    name: str
    incarnation: str
    role: str
    host: str
    mqtt_port: int | None
    connections: int
    routes: int
    lag_entries: int
    ready: bool
    draining: bool
    version: str


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How far this node's tables are in one shard of the rlog."""

    shard: str
    applied: str
    """Stream ID of the last entry applied, `generation-sequence`."""
    lag_entries: int
    lag_ms: float


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of the rlog on this node, as `/api/v5/rlog` shows it: equal places must mean equal digests."""

    applied: str
    """Stream ID, `generation-sequence`."""
    digests: dict[str, str]
    """Table → the sum of its rows' hashes, 16 hexadecimal digits."""
    lag_entries: int = 0
    lag_seconds: float = 0.0
    bootstraps: int = 0
    """Since the node started; the next two are the last one's."""
    bootstrap_time_seconds: float = 0.0
    bootstrap_num_keys: int = 0
    message_queue_len: int = 0
    """Entries that were read from Redis and aren't applied yet."""
    replayq_len: int = 0
    """Entries that a bootstrap under way has still to replay."""
    last_intercepted_trans: int = 0
    """Transactions that this core wrote since it started."""
    server_mql: int = 0
    """Appends that wait in this core."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """This node, as `/api/v1/status` shows it."""

    name: str
    incarnation: str
    role: str
    version: str
    build: str
    ready: bool
    state: str
    """`starting`, `ready`, `draining`, or why it isn't ready any more."""
    uptime_s: float
    leader: str | None
    """The incarnation of the cluster's leader, as far as this node knows."""
    cluster_version: int
    """All nodes understand the formats up to this one (membership/cluster_version.py)."""
    shards: Sequence[ShardStatus]


class PluginRow(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled plugin, as `/api/v1/plugins` shows it."""

    name: str
    version: str
    state: Literal["running", "fenced"]
    """fenced: it failed too often, and isn't called until it is enabled again."""
    points: Sequence[str]
    """Where its handlers are."""
    calls: int
    seconds: float
    """What its handlers took in all."""
    failures: int
    last_failure: str


class PluginsView(Protocol):
    """A node's plugins seen from outside."""

    def rows(self) -> Sequence[PluginRow]: ...

    def enable(self, name: str) -> PluginRow | None:
        """Call it again; None: no plugin of this name."""


REDIS_AWAY: Final = "redis-away"
"""An alarm that isn't in the log, because that is in Redis: a node shows it while no node reaches Redis."""


class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at, as `/api/v5/alarms` shows it."""

    name: str
    since_s: float
    """Seconds since the epoch."""
    text: str


class AlarmsView(Protocol):
    """The cluster's alarms."""

    def rows(self) -> Sequence[AlarmRow]: ...

    async def end(self, name: str) -> bool:
        """False: there is none of this name. Raises StorageError."""


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one user has in the cluster, and which quotas it has used up."""

    name: str
    sessions: int
    queued_bytes: int
    subscriptions: int
    subscription_bytes: int
    retained_bytes: int
    over: Sequence[str] = ()


class QuotasShown(msgspec.Struct, frozen=True, kw_only=True):
    """`limits` of each user, None where there is none. `users` who have a hundredth of a limit at some node, the
    largest first."""

    limits: Mapping[str, int | None]
    users: Sequence[QuotaRow]


class QuotasView(Protocol):
    def shown(self) -> QuotasShown: ...


class NodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """One node's log, as `/api/v5/rlog/nodes` shows it."""

    name: str
    incarnation: str
    role: str
    shards: Mapping[str, LogState] | None
    """None: the node didn't answer."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as `/api/v5/cluster` shows it; unless it is `heard`, nothing but what the log says of it."""

    name: str
    incarnation: str
    role: str
    version: str
    host: str
    slots: int
    """How many slots of client ids it owns."""
    heard: bool
    leads: bool = False
    ready: bool = False
    draining: bool = False
    takes_clients: bool | None = None
    """It has listeners for clients. None: it is of a version that doesn't say."""
    stale: bool = False
    """Its tables may be old."""
    hears_redis: bool | None = None
    """Whether Redis answered it lately. None: it is of a version that doesn't say."""
    connections: int = 0
    lag_entries: int = 0
    writes_through: str | None = None
    """A replicant's core."""
    replicants: int = 0
    """How many write through this core."""
    unreachable: Sequence[str] = ()
    """Whom this core can't reach."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """`told_by` a node whose tables may be `stale`."""

    told_by: str
    stale: bool
    leader: str | None
    slots_without_owner: int
    nodes: Sequence[Member]


class Unavailable(Exception):
    """Something can't be told, or done, now; the text says why."""


class ClientsView(Protocol):
    """The cluster's connections; what is shown is JSON."""

    async def clients(self, wanted: ClientsWanted) -> bytes:
        """A Listing of ClientRows. Raises ValueError for what can't be meant, Unavailable."""

    async def client(self, client_id: str) -> bytes:
        """A ClientRow; empty: it isn't connected. Raises Unavailable."""

    async def kick(self, client_id: str) -> bool:
        """End its connection; False: there is none. Raises Unavailable."""


class SessionsView(Protocol):
    """The cluster's sessions; what is shown is JSON."""

    async def sessions(self, wanted: SessionsWanted) -> bytes:
        """A Listing of SessionRows: those that outlive their connections. Raises Unavailable."""

    async def session(self, client_id: str, after: int, limit: int) -> bytes:
        """A ShownSession, whether it lasts or not, with at most `limit` of its subscriptions, behind the first `after`;
        empty: there is none. Raises Unavailable."""

    async def end_session(self, client_id: str) -> bool:
        """With its connection, wherever they are; returns when that is durable. False: there was neither. Raises
        Unavailable."""


class OverviewView(Protocol):
    """The whole cluster, as a node finds out by asking the others."""

    async def members(self) -> ClusterState: ...

    async def logs(self) -> Sequence[NodeLog]: ...


class Evacuated(msgspec.Struct, frozen=True, kw_only=True):
    """How a node's clients are sent to others, as `/api/v1/evacuation` shows it."""

    is_on: bool
    """An operator wants it."""
    clients: int
    """That are left."""
    evicted: int
    """Since the node started."""
    rate: float
    """Clients a second: this node's part of the cluster's. 0.0: none are sent away; no other node takes any."""


class EvacuationView(Protocol):
    """Of this node."""

    def status(self) -> Evacuated: ...

    def start(self) -> None:
        """Send its clients to other nodes, and take none, until `stop`. Raises Unavailable."""

    def stop(self) -> None: ...


class NodeView(Protocol):
    """A node seen from outside. Every call that isn't awaited answers at once, from memory."""

    def ready(self) -> tuple[bool, str]:
        """Whether this node's tables are bootstrapped and its listeners open, and it can serve; if not, why."""

    def draining(self) -> bool:
        """Whether this node is sending its clients away."""

    def nodes(self) -> Sequence[NodeRow]: ...

    def status(self) -> NodeStatus: ...

    def rlog(self) -> Mapping[str, LogState]:
        """By shard."""


class Views(NamedTuple):
    """The parts of a node that are seen from outside. `samples`: its counters and gauges, now."""

    node: NodeView
    samples: Samples
    plugins: PluginsView
    alarms: AlarmsView
    quotas: QuotasView
    clients: ClientsView
    sessions: SessionsView
    overview: OverviewView
    evacuation: EvacuationView
