"""The catalogue of all metrics, and their Prometheus exposition.

The hot path only adds to integers (`telemetry/counters.py`); a scrape reads them. A `Sample` with a name that isn't in
`CATALOGUE` is a bug and raises KeyError. All bounds of `bounds.py` are exported too, so that alerts needn't repeat
their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, NamedTuple

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from flockmq import bounds
from flockmq.mqtt import frame
from flockmq.mqtt.reason import Reason
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.sample import Sample, Samples

_REASONS: Final = frozenset(Reason)
CONTENT_TYPE: Final = prometheus_client.CONTENT_TYPE_LATEST


class Metric(NamedTuple):
    """One metric family. The exposition appends `_total` to the names of counters."""

    kind: Literal["counter", "gauge"]
    name: str
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE: Final = (
    Metric("gauge", "flockmq_info", "What runs here; the value is always 1.", ("version", "build", "role", "node")),
    Metric("gauge", "flockmq_ready", "1 if the node is bootstrapped, listens, and can serve."),
    Metric("gauge", "flockmq_draining", "1 while the node is sending its clients away."),
    Metric("gauge", "flockmq_rebalancing", "1 while the node sends clients beyond its share to other nodes."),
    Metric("gauge", "flockmq_uptime_seconds", "Seconds since the node started."),
    Metric("gauge", "flockmq_connections", "Connected MQTT clients."),
    Metric("gauge", "flockmq_connections_max", "So many connections this node accepts."),
    Metric("gauge", "flockmq_sessions", "Sessions whose state this node holds."),
    Metric(
        "gauge",
        "flockmq_sessions_congested",
        "Congested durable sessions of this owner: too many messages wait, so publishers are paused.",
    ),
    Metric("gauge", "flockmq_sessions_persistent", "Durable sessions of this owner."),
    Metric("gauge", "flockmq_sessions_away", "Durable sessions of this owner whose clients are offline."),
    Metric(
        "counter",
        "flockmq_owner_notes_dropped",
        "Notifications between nodes and owners of client ids that found no room; they are requested again.",
        ("why",),
    ),
    Metric(
        "counter",
        "flockmq_owner_wills_dropped",
        "Wills of clean sessions that found no room at the owners of their client ids; they are lost if the clients' "
        "nodes die.",
    ),
    Metric("counter", "flockmq_subscriptions_revoked", "Subscriptions that ended because rules no longer allow them."),
    Metric("counter", "flockmq_sessions_expired", "Sessions that expired."),
    Metric("counter", "flockmq_sessions_resumed", "Connections that resumed an existing session."),
    Metric("gauge", "flockmq_subscriptions", "Subscriptions of the sessions on this node."),
    Metric("gauge", "flockmq_listener_connections", "Open connections of one listener.", ("listener",)),
    Metric("gauge", "flockmq_routes", "Rows of the route table."),
    Metric("gauge", "flockmq_match_cache_topics", "Topics whose routes are cached."),
    Metric("gauge", "flockmq_match_cache_bytes", "What these take, and the heads of their packets."),
    Metric("gauge", "flockmq_match_cache_max_bytes", "The most that it may be: a part of this node's memory."),
    Metric(
        "gauge",
        "flockmq_filter_shapes",
        "Different positions of wildcards in filters: of clients connected here, of durable sessions of this owner, "
        "and of routes to other nodes.",
        ("of",),
    ),
    Metric("gauge", "flockmq_retained_messages", "Rows of the table of retained messages."),
    Metric("gauge", "flockmq_shared_subscriptions", "Shared subscriptions of this node's sessions."),
    Metric("gauge", "flockmq_shared_groups", "Shared groups that have members on this node."),
    Metric(
        "counter", "flockmq_shared_redispatched", "Shared messages that went to another member because theirs ended."
    ),
    Metric("gauge", "flockmq_exclusive_subscriptions", "Exclusive subscriptions of the sessions on this node."),
    Metric("gauge", "flockmq_delayed_messages", "Messages in the log that are not due yet."),
    Metric("gauge", "flockmq_delayed_bytes", "Bytes of messages in the log that are not due yet."),
    Metric("counter", "flockmq_delayed_published", "Delayed messages that this node published when they were due."),
    Metric("counter", "flockmq_connects", "CONNECTs accepted."),
    Metric(
        "counter", "flockmq_connects_refused", "CONNECTs answered with an error, and connections refused.", ("reason",)
    ),
    Metric("counter", "flockmq_authentications", "Authentications, by result.", ("result",)),
    Metric("counter", "flockmq_authorizations", "Authorization checks of publishes and subscriptions.", ("result",)),
    Metric("gauge", "flockmq_failed_logins", "Names and addresses of failed logins that this node remembers."),
    Metric("gauge", "flockmq_bans", "Bans in the cluster's log."),
    Metric("counter", "flockmq_flapping_bans", "Clients that this node banned for flapping."),
    Metric("counter", "flockmq_disconnects", "Ended connections, by reason code.", ("reason",)),
    Metric("counter", "flockmq_takeovers", "Connections that ended because their client id connected again."),
    Metric("counter", "flockmq_evicted_clients", "Clients that this node sent to others, draining or rebalancing."),
    Metric(
        "counter",
        "flockmq_throttled",
        "Times a client was read later because it, its listener or the node exceeded a rate.",
    ),
    Metric("counter", "flockmq_protocol_errors", "Connections ended because of a malformed or illegal packet."),
    Metric("counter", "flockmq_messages_received", "PUBLISH packets received from clients.", ("qos",)),
    Metric("counter", "flockmq_messages_sent", "PUBLISH packets sent to clients, or queued for them.", ("qos",)),
    Metric("counter", "flockmq_packets_received", "Packets received from clients, except PUBLISH.", ("type",)),
    Metric("counter", "flockmq_messages_forwarded", "Messages sent to other nodes."),
    Metric("counter", "flockmq_messages_arrived", "Messages received from other nodes."),
    Metric("counter", "flockmq_messages_dropped", "Messages not delivered to a subscriber.", ("cause",)),
    Metric("counter", "flockmq_slow_readers", "Times a client read too slowly and was paused."),
    Metric("counter", "flockmq_received_bytes", "Bytes received from clients."),
    Metric("counter", "flockmq_sent_bytes", "Bytes sent to clients."),
    Metric("counter", "flockmq_link_received_bytes", "Bytes received over the link with another node.", ("peer",)),
    Metric("counter", "flockmq_link_sent_bytes", "Bytes sent over the link with another node.", ("peer",)),
    Metric("gauge", "flockmq_forward_dropped_bytes", "QoS 0 bytes dropped because the link to a member was full."),
    Metric("gauge", "flockmq_link_queue_bytes", "Bytes that wait for another node.", ("peer",)),
    Metric("counter", "flockmq_link_late_bytes", "Bytes dropped because they came over a link that was replaced."),
    Metric("gauge", "flockmq_tunnelled_links", "Links of this node that go through a core."),
    Metric("gauge", "flockmq_relayed_tunnels", "Links between two other nodes that go through this core."),
    Metric("counter", "flockmq_relayed_bytes", "Bytes that this core relayed between two other nodes."),
    Metric("gauge", "flockmq_tunnel_queue_bytes", "Bytes of tunnels that wait to be sent or passed on."),
    Metric(
        "gauge",
        "flockmq_queue_length",
        "Length of an internal queue: items, or bytes if its name says so.",
        ("queue",),
    ),
    Metric(
        "gauge",
        "flockmq_slot_queue_messages",
        "QoS 1 and 2 messages on their way to owners of durable sessions, one copy per owner.",
    ),
    Metric("gauge", "flockmq_slot_queue_bytes", "Bytes of the messages in flockmq_slot_queue_messages."),
    Metric("gauge", "flockmq_slot_queue_unassigned_messages", "Messages on their way to slots that have no owner now."),
    Metric("gauge", "flockmq_slot_queue_blocked_bytes", "Bytes of messages that owners received but can't commit."),
    Metric("gauge", "flockmq_slot_queue_congested_owners", "Congested owners: publishers to them are paused."),
    Metric(
        "gauge",
        "flockmq_slot_queue_congested_slots",
        "Slots with a congested session: publishers to them are paused.",
    ),
    Metric(
        "counter",
        "flockmq_slot_queue_dropped_bytes",
        "QoS 0 bytes dropped because an owner was unreachable or congested.",
    ),
    Metric("gauge", "flockmq_owned_slots", "Slots of client ids that this core owns."),
    Metric("gauge", "flockmq_owned_slots_loading", "Slots of this core whose sessions aren't loaded yet."),
    Metric("gauge", "flockmq_owner_wills", "Due wills of this core that some receivers haven't accepted yet."),
    Metric(
        "gauge", "flockmq_owner_intake_bytes", "Bytes of messages for this core's sessions that aren't committed yet."
    ),
    Metric("gauge", "flockmq_session_store_queue_bytes", "Bytes of this core's session changes that wait for Redis."),
    Metric("counter", "flockmq_session_store_commits", "Batches of session changes that Redis committed."),
    Metric("counter", "flockmq_session_store_bytes", "Bytes of session changes that Redis committed."),
    Metric("counter", "flockmq_session_store_retries", "Writes of session changes that failed and were tried again."),
    Metric("gauge", "flockmq_session_store_redis_full", "1 while Redis refuses changes because its memory is full."),
    Metric("gauge", "flockmq_redis_memory_bytes", "Memory used by a Redis that has slots of this core.", ("server",)),
    Metric("gauge", "flockmq_redis_memory_max_bytes", "`maxmemory` of this Redis; 0 means none.", ("server",)),
    Metric("gauge", "flockmq_redis_short", "1 while Redis is short of memory, so that nothing more is stored."),
    Metric("gauge", "flockmq_node_memory_bytes", "Memory that this node uses."),
    Metric("gauge", "flockmq_node_memory_max_bytes", "Memory that this node may use; 0: any."),
    Metric(
        "counter",
        "flockmq_messages_refused_short",
        "Messages refused (0x97) because Redis or a node is short of memory.",
    ),
    Metric("counter", "flockmq_quota_refused", "Requests refused because of a user's quota.", ("quota",)),
    Metric("gauge", "flockmq_users_over_quota", "Users who have used up a quota, as far as this node knows."),
    Metric("gauge", "flockmq_rlog_lag_entries", "Entries between this node's tables and the log end.", ("shard",)),
    Metric(
        "gauge", "flockmq_rlog_lag_seconds", "How long this node's tables have been behind the log end.", ("shard",)
    ),
    Metric("gauge", "flockmq_cluster_version", "The cluster version: all nodes know the formats up to it."),
    Metric("gauge", "flockmq_redis_cut_off", "1 while this node can't reach Redis but another node can."),
    Metric("gauge", "flockmq_stale", "1 while QoS 1 and 2 messages wait because this node's tables may be stale."),
    Metric(
        "gauge",
        "flockmq_rlog_last_intercepted_trans",
        "Transactions that this core wrote to the shard since it started, for itself and for others.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_weight", "Appends from other nodes that this core took since its last heartbeat."),
    Metric("gauge", "flockmq_rlog_replicants", "Replicants that write through this core."),
    Metric(
        "gauge",
        "flockmq_rlog_server_mql",
        "Appends that wait in this core for Redis.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_bootstrap_time_seconds", "How long the shard's last bootstrap took.", ("shard",)),
    Metric("gauge", "flockmq_rlog_bootstrap_num_keys", "Rows of the shard's last bootstrap.", ("shard",)),
    Metric(
        "gauge",
        "flockmq_rlog_message_queue_len",
        "Entries that this node has read from Redis, or knows to be there, but hasn't applied.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_replayq_len", "Entries that a running bootstrap must still replay.", ("shard",)),
    Metric("counter", "flockmq_rlog_redis_lost_data", "Times this core seeded a shard's log that Redis had lost."),
    Metric("counter", "flockmq_rlog_digest_mismatches", "Times this node's tables differed from those of the cores."),
    Metric("counter", "flockmq_events_dropped", "Analytics events dropped because this node's buffer was full."),
    Metric("counter", "flockmq_events_lost_bytes", "Bytes of analytics events lost on their way to Redis.", ("why",)),
    Metric("gauge", "flockmq_clock_off_seconds", "How far this node's clock is ahead of the cluster's time."),
    Metric("counter", "flockmq_cluster_time_jumps", "Times the cluster's time was set to what most cores' clocks say."),
    Metric("gauge", "flockmq_alarms", "Alarms, as /api/v5/alarms lists them."),
    Metric("counter", "flockmq_loop_late_seconds", "Total delay of the event loop's timers."),
    Metric(
        "gauge", "flockmq_loop_late_worst_seconds", "The longest delay of the event loop in the last 1 to 2 minutes."
    ),
    Metric("gauge", "flockmq_plugin_running", "0 while the plugin is fenced because it failed too often.", ("plugin",)),
    Metric("counter", "flockmq_plugin_calls", "Calls of the plugin's handlers.", ("plugin",)),
    Metric(
        "counter", "flockmq_plugin_seconds", "Total time of the plugin's handlers; it blocks the loop.", ("plugin",)
    ),
    Metric("counter", "flockmq_plugin_failures", "Calls that failed, took too long or answered wrongly.", ("plugin",)),
    Metric("gauge", "flockmq_bound", "A named bound; its unit is a label.", ("name", "unit")),
)


FROM_COUNTERS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "bytes_received": ("flockmq_received_bytes", ()),
    "bytes_sent": ("flockmq_sent_bytes", ()),
    "connections": ("flockmq_connections", ()),
    "connects": ("flockmq_connects", ()),
    "dropped_away": ("flockmq_messages_dropped", ("away",)),
    "dropped_expired": ("flockmq_messages_dropped", ("expired",)),
    "dropped_left": ("flockmq_messages_dropped", ("left",)),
    "dropped_no_member": ("flockmq_messages_dropped", ("no_member",)),
    "dropped_no_room": ("flockmq_messages_dropped", ("no_room",)),
    "dropped_queue_full": ("flockmq_messages_dropped", ("queue_full",)),
    "dropped_revoked": ("flockmq_messages_dropped", ("revoked",)),
    "dropped_slow_reader": ("flockmq_messages_dropped", ("slow_reader",)),
    "dropped_too_large": ("flockmq_messages_dropped", ("too_large",)),
    "messages_arrived": ("flockmq_messages_arrived", ()),
    "messages_forwarded": ("flockmq_messages_forwarded", ()),
    "messages_received_qos1": ("flockmq_messages_received", ("1",)),
    "messages_received_qos2": ("flockmq_messages_received", ("2",)),
    "messages_sent_qos1": ("flockmq_messages_sent", ("1",)),
    "messages_sent_qos2": ("flockmq_messages_sent", ("2",)),
    "protocol_errors": ("flockmq_protocol_errors", ()),
    "sessions_away": ("flockmq_sessions_away", ()),
    "sessions_expired": ("flockmq_sessions_expired", ()),
    "sessions_resumed": ("flockmq_sessions_resumed", ()),
    "shared_redispatched": ("flockmq_shared_redispatched", ()),
    "slow_readers": ("flockmq_slow_readers", ()),
    "subscriptions": ("flockmq_subscriptions", ()),
    "subscriptions_revoked": ("flockmq_subscriptions_revoked", ()),
    "evictions": ("flockmq_evicted_clients", ()),
    "takeovers": ("flockmq_takeovers", ()),
    "throttled": ("flockmq_throttled", ()),
}
"""Counter of the hot path → the metric and the labels that show it."""


BY_QOS: Final = {"messages_received": "flockmq_messages_received", "messages_sent": "flockmq_messages_sent"}
"""Counters of messages of all QoS. The hot path doesn't count QoS 0: it is the total minus QoS 1 and 2."""

PACKETS: Final = {
    frame.CONNECT: "connect",
    frame.PUBACK: "puback",
    frame.PUBREC: "pubrec",
    frame.PUBREL: "pubrel",
    frame.PUBCOMP: "pubcomp",
    frame.SUBSCRIBE: "subscribe",
    frame.UNSUBSCRIBE: "unsubscribe",
    frame.PINGREQ: "pingreq",
    frame.DISCONNECT: "disconnect",
    frame.AUTH: "auth",
}
"""Packets that clients send, except PUBLISH, which `flockmq_messages_received` counts."""

BY_REASON: Final = {"connects_refused": "flockmq_connects_refused", "disconnects": "flockmq_disconnects"}
"""Counters that the node also counts by reason code. The rest of each are connections without an accepting CONNACK."""


class Reasons:
    """Counts by MQTT reason code. `rest` is the label for the part of the counter that has no reason code."""

    def __init__(self, field: str, rest: str) -> None:
        self._field = field
        self._rest = rest
        self._tally: dict[int, int] = {}
        self._beyond = (
            0  # kept, because the tally may be ahead of the counter for a moment, and a counter must not fall
        )

    def note(self, reason: int) -> None:
        self._tally[reason] = self._tally.get(reason, 0) + 1

    def samples(self, counters: Counters) -> Iterator[Sample]:
        family = BY_REASON[self._field]
        total: int = getattr(counters, self._field)
        for reason, times in self._tally.items():
            yield Sample(family, times, (reason_name(reason),))
        self._beyond = max(self._beyond, total - sum(self._tally.values()))
        yield Sample(family, self._beyond, (self._rest,))


def reason_name(reason: int) -> str:
    """The name of a reason code, for example `not_authorized`; its number if it is unknown."""
    return Reason(reason).name.lower() if reason in _REASONS else f"0x{reason:02x}"


def counter_samples(counters: Counters) -> list[Sample]:
    """The hot path's counters as samples."""
    packets = counters.packets_received
    return [
        *(Sample(name, getattr(counters, field), labels) for field, (name, labels) in FROM_COUNTERS.items()),
        *(Sample("flockmq_packets_received", packets[type], (name,)) for type, name in PACKETS.items()),
        *(Sample(name, _unacknowledged(counters, field), ("0",)) for field, name in BY_QOS.items()),
    ]


def _unacknowledged(counters: Counters, field: str) -> int:
    total: int = getattr(counters, field)
    acknowledged: int = getattr(counters, f"{field}_qos1") + getattr(counters, f"{field}_qos2")
    return total - acknowledged


class NodeCollector(Collector):
    """Reads a node's samples at each scrape. `samples` returns all but the bounds."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        families = {
            metric.name: (CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for metric in CATALOGUE
        }
        for sample in (*bound_samples(), *self._samples()):
            families[sample.name].add_metric(sample.labels, sample.value)
        yield from families.values()


def bound_samples() -> Iterable[Sample]:
    """All bounds of `bounds.py`: `LINK_FRAME_MAX_BYTES` is {name="link_frame_max_bytes", unit="bytes"}."""
    for name, value in vars(bounds).items():
        if name.isupper() and isinstance(value, int | float):
            unit = name.lower().removesuffix("_max").rpartition("_")[2]
            yield Sample("flockmq_bound", value, (name.lower(), unit))


def registry(samples: Samples) -> CollectorRegistry:
    """The metrics of the node, of the process (memory, CPU, descriptors) and of the garbage collector."""
    made = CollectorRegistry(auto_describe=False)
    made.register(NodeCollector(samples))
    prometheus_client.ProcessCollector(registry=made)
    prometheus_client.GCCollector(registry=made)
    return made


def exposition(made: CollectorRegistry) -> bytes:
    """The text that /metrics answers with."""
    return prometheus_client.generate_latest(made)
