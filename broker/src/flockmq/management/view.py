"""What management and telemetry may ask a node. The node implements `NodeView`; nothing here imports it.

The structs are what goes over HTTP and into metrics: plain numbers that the node counts anyway, read at scrape time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec


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


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """This node, as `/api/v1/status` shows it."""

    name: str
    incarnation: str
    role: str
    version: str
    build: str
    uptime_s: float
    leader: str | None
    """The incarnation of the cluster's leader, as far as this node knows."""
    shards: Sequence[ShardStatus]


class Sample(NamedTuple):
    """One number for /metrics: a name out of the telemetry catalogue, its label values, and the number."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


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

    def plugins(self) -> Sequence[PluginRow]: ...

    def enable_plugin(self, name: str) -> PluginRow | None:
        """Call it again; None: no plugin of this name."""


class AlarmRow(msgspec.Struct, frozen=True, kw_only=True):
    """Something that somebody should look at, as `/api/v5/alarms` shows it."""

    name: str
    since_s: float
    """Seconds since the epoch."""
    text: str


class AlarmsView(Protocol):
    """The cluster's alarms."""

    def alarms(self) -> Sequence[AlarmRow]: ...

    async def end_alarm(self, name: str) -> bool:
        """False: there is none of this name. Raises LogError."""


class NodeView(PluginsView, AlarmsView, Protocol):
    """A node seen from outside. Every call answers at once, from memory."""

    def ready(self) -> tuple[bool, str]:
        """Whether this node's tables are bootstrapped and its listeners open, and if not, why."""

    def draining(self) -> bool:
        """Whether this node is sending its clients away."""

    def nodes(self) -> Sequence[NodeRow]: ...

    def status(self) -> NodeStatus: ...

    def rlog(self) -> Mapping[str, LogState]:
        """By shard."""

    def samples(self) -> Sequence[Sample]:
        """The node's counters and gauges, now."""
