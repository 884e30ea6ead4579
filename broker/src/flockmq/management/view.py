"""The interfaces through which management sees a node. The node passes its parts as `Views`.

The structs are the JSON of the REST API. Their values are read from memory on each request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import BinaryIO, Final, Literal, NamedTuple, Protocol

import msgspec

from flockmq.management.client_rows import ClientsWanted, SessionsWanted
from flockmq.management.rebalance_rows import RebalanceView
from flockmq.management.settings_rows import SettingsView
from flockmq.telemetry.sample import Samples


class NodePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that a node listens on; None if it has no such listener."""

    mqtt: int | None
    """The port of the listener `tcp:default`."""
    listeners: dict[str, int] = {}
    """All ports by listener name, for example `ssl:default`; the port of a Unix socket is 0."""
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
    """The position of this node's tables in one shard of the log."""

    shard: str
    applied: str
    """The Stream id of the last applied entry, `generation-sequence`."""
    lag_entries: int
    lag_ms: float


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """One shard of the log on this node, as `/api/v5/rlog` shows it. Nodes at the same position must have the same
    digests."""

    applied: str
    """The Stream id of the last applied entry, `generation-sequence`."""
    digests: dict[str, str]
    """Table → the sum of its rows' hashes, 16 hexadecimal digits."""
    lag_entries: int = 0
    lag_seconds: float = 0.0
    bootstraps: int = 0
    """Count since the node started."""
    bootstrap_time_seconds: float = 0.0
    """Duration of the last bootstrap."""
    bootstrap_num_keys: int = 0
    """Rows of the last bootstrap."""
    message_queue_len: int = 0
    """Entries read from Redis and not applied yet."""
    replayq_len: int = 0
    """Entries that a running bootstrap must still replay."""
    last_intercepted_trans: int = 0
    """Transactions that this core has written since it started."""
    server_mql: int = 0
    """Appends waiting in this core."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """This node, as `/api/v1/status` shows it."""

    name: str
    incarnation: str
    role: str
    version: str
    build: str
    ready: bool
    state: str
    """`starting`, `ready`, `draining`, or the reason why the node isn't ready."""
    uptime_s: float
    leader: str | None
    """The incarnation of the cluster's leader, as far as this node knows."""
    cluster_version: int
    """All nodes know the formats up to this version (membership/cluster_version.py)."""
    shards: Sequence[ShardStatus]


class PluginRow(msgspec.Struct, frozen=True, kw_only=True):
    """One enabled plugin, as `/api/v1/plugins` shows it."""

    name: str
    version: str
    state: Literal["running", "fenced"]
    """`fenced`: it failed too often, so it isn't called until somebody enables it again."""
    points: Sequence[str]
    """The hook points at which it has handlers."""
    calls: int
    seconds: float
    """The total time of its handlers."""
    failures: int
    last_failure: str


class PluginsView(Protocol):
    """A node's plugins."""

    def rows(self) -> Sequence[PluginRow]: ...

    def enable(self, name: str) -> PluginRow | None:
        """Enable a fenced plugin again. Returns None if there is no plugin of this name."""


REDIS_AWAY: Final = "redis-away"
"""The alarm that each node shows while no node reaches Redis. It isn't in the log, because the log is in Redis."""


class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm, as `/api/v5/alarms` shows it."""

    name: str
    since_s: float
    """Seconds since the epoch."""
    text: str


class AlarmsView(Protocol):
    """The cluster's alarms."""

    def rows(self) -> Sequence[AlarmRow]: ...

    async def end(self, name: str) -> bool:
        """End an alarm. Returns False if there is none of this name. Raises StorageError."""


class QuotaRow(msgspec.Struct, frozen=True, kw_only=True):
    """One user's usage in the cluster. `over` names the quotas that it has used up. `limits`: as in QuotasShown, if
    the user has quotas of its own."""

    name: str
    sessions: int
    queued_bytes: int
    subscriptions: int
    subscription_bytes: int
    retained_bytes: int
    over: Sequence[str] = ()
    limits: Mapping[str, int | None] | msgspec.UnsetType = msgspec.UNSET


class QuotasShown(msgspec.Struct, frozen=True, kw_only=True):
    """`limits` of each user without quotas of its own, None for no limit. `users` are those with at least a hundredth
    of a limit on some node, the largest first."""

    limits: Mapping[str, int | None]
    users: Sequence[QuotaRow]


Limit = int | Literal["infinity"] | msgspec.UnsetType


class OwnQuotasShown(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas that one user has in place of the settings', as in the section `[quotas]` of the settings. What isn't
    there is as in the settings."""

    name: str
    max_sessions: Limit = msgspec.UNSET
    max_queued_bytes: Limit = msgspec.UNSET
    max_subscriptions: Limit = msgspec.UNSET
    max_subscription_bytes: Limit = msgspec.UNSET
    max_retained_bytes: Limit = msgspec.UNSET


class QuotasView(Protocol):
    def shown(self) -> QuotasShown: ...


class NodeLog(msgspec.Struct, frozen=True, kw_only=True):
    """One node's log, as `/api/v5/rlog/nodes` shows it."""

    name: str
    incarnation: str
    role: str
    shards: Mapping[str, LogState] | None
    """None if the node didn't answer."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as `/api/v5/cluster` shows it. If `heard` is False, the core that answers gets no heartbeats of it, and
    only the fields from the log are set."""

    name: str
    incarnation: str
    role: str
    version: str
    host: str
    slots: int
    """Number of slots that it owns."""
    heard: bool
    leads: bool = False
    ready: bool = False
    draining: bool = False
    takes_clients: bool | None = None
    """Whether it has listeners for clients. None: its release doesn't report this."""
    connect_wait_ms: int = 0
    """For how long a client waits there for CONNACK now."""
    rebalancing: bool = False
    """Whether it sends clients beyond its share to other nodes."""
    durable_clients: int | None = None
    """How many of its connections have a durable session. None: its release doesn't report this."""
    messages_per_s: int | None = None
    """From its clients and to them, averaged. None: its release doesn't report this."""
    has_too_much: bool = False
    """Whether it has more than its share, and sends some of it to other nodes, or will when it has waited."""
    stale: bool = False
    """Whether its tables may be stale."""
    hears_redis: bool | None = None
    """Whether Redis answered it lately. None: its release doesn't report this."""
    connections: int = 0
    lag_entries: int = 0
    writes_through: str | None = None
    """The core that a replicant writes through."""
    replicants: int = 0
    """Number of replicants that write through this core."""
    unreachable: Sequence[str] = ()
    """Nodes that this core can't reach."""


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as the node `told_by` sees it. `stale`: that node's tables may be stale."""

    told_by: str
    stale: bool
    leader: str | None
    slots_without_owner: int
    nodes: Sequence[Member]


class Unavailable(Exception):
    """The request can't be answered now. The message says why."""


class Conflict(Exception):
    """The request is refused because of the state of the cluster. The message says why, and what to do first."""


class ClientsView(Protocol):
    """The cluster's connections. Results are JSON."""

    async def clients(self, wanted: ClientsWanted) -> bytes:
        """A Listing of ClientRows. Raises ValueError for invalid filters, Unavailable."""

    async def client(self, client_id: str) -> bytes:
        """A ClientRow; empty if the client isn't connected. Raises Unavailable."""

    async def kick(self, client_id: str) -> bool:
        """Disconnect the client. Returns False if it isn't connected. Raises Unavailable."""


class SessionsView(Protocol):
    """The cluster's sessions. Results are JSON."""

    async def sessions(self, wanted: SessionsWanted) -> bytes:
        """A Listing of SessionRows: the durable sessions. Raises Unavailable."""

    async def session(self, client_id: str, after: int, limit: int) -> bytes:
        """A ShownSession, durable or clean, with at most `limit` subscriptions after the first `after`; empty if there
        is no session. Raises Unavailable."""

    async def end_session(self, client_id: str) -> bool:
        """End the session and its connection on any node. Returns when that is committed; False if there was neither.
        Raises Unavailable."""


class OverviewView(Protocol):
    """The overview of the whole cluster."""

    async def members(self) -> ClusterState: ...

    async def logs(self) -> Sequence[NodeLog]: ...


class Evacuated(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node's evacuation, as `/api/v1/evacuation` shows it."""

    is_on: bool
    """Whether an operator has started one."""
    clients: int
    """How many clients are left."""
    evicted: int
    """How many clients were sent away since the node started."""
    rate: float
    """Clients per second: this node's part of the cluster's rate. 0.0 while no other node accepts clients."""


class EvacuationView(Protocol):
    """The evacuation of this node."""

    def status(self) -> Evacuated: ...

    def start(self) -> None:
        """Send clients to other nodes, and refuse new ones, until `stop`. Raises Unavailable."""

    def stop(self) -> None: ...


class TablesView(Protocol):
    """The tables of the log, if this node is a core."""

    async def saved(self, shard: str) -> BinaryIO:
        """Open a snapshot of what the shard's tables hold now. Raises Unavailable."""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a core that begins to leave the cluster."""

    node: str
    clients: int
    """How many clients it sends to other nodes before it ends."""
    slots: int
    """How many slots other cores get from it."""
    file: str
    """While this file is on its disk, the core doesn't start again."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """A dead core that is no member any more."""

    node: str
    cores: Sequence[str]
    """The names of the cores that are members."""


class CoresView(Protocol):
    """Which nodes are cores of the cluster."""

    async def leave(self) -> Leaving:
        """Have this core hand over its slots and clients, leave for good, and end. Raises Conflict, Unavailable."""

    async def forget(self, name: str) -> Forgotten:
        """Return when a dead core is no member any more, and no core counts it. Raises Conflict, Unavailable."""


class NodeView(Protocol):
    """This node's status. All methods answer from memory."""

    def ready(self) -> tuple[bool, str]:
        """Whether this node's tables are bootstrapped, its listeners are open, and it can serve; and its state, or the
        reason why not."""

    def draining(self) -> bool:
        """Whether this node is sending its clients away."""

    def nodes(self) -> Sequence[NodeRow]: ...

    def status(self) -> NodeStatus: ...

    def rlog(self) -> Mapping[str, LogState]:
        """This node's log, by shard."""


class Views(NamedTuple):
    """The parts of a node that management sees. `samples` returns its current metrics."""

    node: NodeView
    samples: Samples
    plugins: PluginsView
    alarms: AlarmsView
    quotas: QuotasView
    clients: ClientsView
    sessions: SessionsView
    overview: OverviewView
    evacuation: EvacuationView
    rebalance: RebalanceView
    tables: TablesView
    cores: CoresView
    settings: SettingsView
