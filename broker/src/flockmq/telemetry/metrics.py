"""What /metrics shows: one catalogue of names and meanings, filled at scrape time from plain integers.

The hot path only adds to integers (`telemetry/counters.py`); a scrape reads them. A `Sample` names an entry of
`CATALOGUE`; one that isn't there is a defect and raises KeyError. Every bound of `bounds.py` is exported beside the
numbers it bounds, so that an alert needs no figure of its own.
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
    """One family. Counters get `_total` appended on the wire."""

    kind: Literal["counter", "gauge"]
    name: str
    help: str
    labels: tuple[str, ...] = ()


CATALOGUE: Final = (
    Metric("gauge", "flockmq_info", "What runs here; the value is always 1.", ("version", "build", "role", "node")),
    Metric("gauge", "flockmq_ready", "1 when the node is bootstrapped, listens, and can serve."),
    Metric("gauge", "flockmq_draining", "1 while the node is sending its clients away."),
    Metric("gauge", "flockmq_uptime_seconds", "Seconds since the node started."),
    Metric("gauge", "flockmq_connections", "MQTT clients connected now."),
    Metric("gauge", "flockmq_sessions", "Sessions whose state this node holds now."),
    Metric(
        "gauge",
        "flockmq_sessions_crowded",
        "Sessions of this node that outlive their connections and for which more waits than they take.",
    ),
    Metric("gauge", "flockmq_sessions_persistent", "Sessions of this node that outlive their connections."),
    Metric("gauge", "flockmq_sessions_away", "Sessions of this node whose clients are not connected."),
    Metric(
        "counter",
        "flockmq_home_notes_dropped",
        "What nodes and homes had to say of client ids and found no room; it is asked for again.",
        ("why",),
    ),
    Metric(
        "counter",
        "flockmq_home_wills_dropped",
        "Wills that found no room at the homes of their clients, and are lost if the nodes of these die.",
    ),
    Metric("counter", "flockmq_subscriptions_revoked", "Subscriptions that rules no longer allowed, and that ended."),
    Metric("counter", "flockmq_sessions_expired", "Sessions that ended because their clients stayed away too long."),
    Metric("counter", "flockmq_sessions_resumed", "Connections that went on with a session that was there."),
    Metric("gauge", "flockmq_subscriptions", "Subscriptions of the sessions on this node."),
    Metric("gauge", "flockmq_listener_connections", "Open connections of one listener.", ("listener",)),
    Metric("gauge", "flockmq_routes", "Rows of the route table."),
    Metric(
        "gauge",
        "flockmq_filter_shapes",
        "Different places where wildcards stand: in filters of clients connected here, of sessions at home here,"
        " and of what is routed elsewhere.",
        ("of",),
    ),
    Metric("gauge", "flockmq_retained_messages", "Rows of the table of retained messages."),
    Metric("gauge", "flockmq_shared_subscriptions", "Subscriptions of this node's sessions that are shared."),
    Metric("gauge", "flockmq_shared_groups", "Shared subscriptions that have members on this node."),
    Metric("counter", "flockmq_shared_redispatched", "Messages that went to another member when theirs ended."),
    Metric("gauge", "flockmq_exclusive_subscriptions", "Exclusive subscriptions of the sessions on this node."),
    Metric("gauge", "flockmq_delayed_messages", "Messages in the log that are not due yet."),
    Metric("gauge", "flockmq_delayed_bytes", "Bytes of messages in the log that are not due yet."),
    Metric("counter", "flockmq_delayed_published", "Delayed messages that this node published when they were due."),
    Metric("counter", "flockmq_connects", "CONNECTs accepted."),
    Metric(
        "counter", "flockmq_connects_refused", "CONNECTs answered with an error, and connections refused.", ("reason",)
    ),
    Metric("counter", "flockmq_authentications", "Authentications, by how they ended.", ("result",)),
    Metric("counter", "flockmq_authorizations", "Publishes and subscriptions that were asked about.", ("result",)),
    Metric("gauge", "flockmq_failed_logins", "Names and addresses of failed logins that this node remembers."),
    Metric("gauge", "flockmq_bans", "Bans in the cluster's log."),
    Metric("counter", "flockmq_flapping_bans", "Clients that this node banned for coming and going too often."),
    Metric("counter", "flockmq_disconnects", "Connections ended, by the reason code of the end.", ("reason",)),
    Metric("counter", "flockmq_takeovers", "Connections ended because their client id connected again."),
    Metric("counter", "flockmq_evicted_clients", "Clients that this node, draining, sent to other nodes."),
    Metric(
        "counter",
        "flockmq_throttled",
        "Times a client was read later because it, its listener or the node is over a rate.",
    ),
    Metric("counter", "flockmq_protocol_errors", "Connections ended because of a malformed or illegal packet."),
    Metric("counter", "flockmq_messages_received", "PUBLISH packets received from clients.", ("qos",)),
    Metric("counter", "flockmq_messages_sent", "PUBLISH packets sent to clients, or kept for them.", ("qos",)),
    Metric("counter", "flockmq_packets_received", "Packets received from clients, PUBLISH apart.", ("type",)),
    Metric("counter", "flockmq_messages_forwarded", "Messages handed to other nodes."),
    Metric("counter", "flockmq_messages_arrived", "Messages that other nodes handed to this one."),
    Metric("counter", "flockmq_messages_dropped", "Messages not delivered to a subscriber.", ("cause",)),
    Metric("counter", "flockmq_slow_readers", "Times a client read too slowly and was paused."),
    Metric("counter", "flockmq_received_bytes", "Bytes received from clients."),
    Metric("counter", "flockmq_sent_bytes", "Bytes sent to clients."),
    Metric("counter", "flockmq_link_received_bytes", "Bytes received over the link with another node.", ("peer",)),
    Metric("counter", "flockmq_link_sent_bytes", "Bytes sent over the link with another node.", ("peer",)),
    Metric("gauge", "flockmq_forward_dropped_bytes", "QoS 0 bytes that found no room towards present members."),
    Metric("gauge", "flockmq_link_queue_bytes", "Bytes that wait for another node.", ("peer",)),
    Metric("counter", "flockmq_link_late_bytes", "Bytes that came by a link which its node had left: dropped."),
    Metric("gauge", "flockmq_tunnelled_links", "Links of this node that go through a core."),
    Metric("gauge", "flockmq_relayed_tunnels", "Links between two other nodes that go through this core."),
    Metric("counter", "flockmq_relayed_bytes", "Bytes that this core passed on between two other nodes."),
    Metric("gauge", "flockmq_tunnel_queue_bytes", "Bytes of tunnels that wait to be sent or passed on."),
    Metric(
        "gauge",
        "flockmq_queue_length",
        "What waits in an inner queue: items, or bytes where its name says so.",
        ("queue",),
    ),
    Metric(
        "gauge",
        "flockmq_courier_messages",
        "QoS 1 and 2 messages on their way to homes of sessions that last, a copy for each home.",
    ),
    Metric("gauge", "flockmq_courier_bytes", "Bytes of them."),
    Metric("gauge", "flockmq_courier_parked_messages", "Those among them whose slots have no home now."),
    Metric("gauge", "flockmq_courier_stuck_bytes", "Messages whose homes have them, and can't make them durable."),
    Metric("gauge", "flockmq_courier_congested_lanes", "Homes that are behind: whoever publishes to them is paused."),
    Metric(
        "gauge",
        "flockmq_courier_crowded_slots",
        "Slots in which more waits for a session than that takes: whoever publishes to them is paused.",
    ),
    Metric("counter", "flockmq_courier_dropped_bytes", "QoS 0 bytes that found no way to a home, or a congested one."),
    Metric("gauge", "flockmq_home_slots", "Slots of client ids that this core owns."),
    Metric("gauge", "flockmq_home_slots_loading", "Those among them whose sessions aren't here yet."),
    Metric("gauge", "flockmq_home_wills", "Wills that are due here and that not everybody has accepted."),
    Metric("gauge", "flockmq_home_intake_bytes", "Messages for sessions of this core that aren't durable yet."),
    Metric("gauge", "flockmq_home_store_queue_bytes", "Changes of this core's sessions that wait for Redis."),
    Metric("counter", "flockmq_home_store_commits", "Batches of changes that Redis made durable."),
    Metric("counter", "flockmq_home_store_bytes", "Bytes of them."),
    Metric("counter", "flockmq_home_store_retries", "Round trips that failed and were tried again."),
    Metric("gauge", "flockmq_home_store_redis_full", "1 while Redis takes no more changes for want of memory."),
    Metric("gauge", "flockmq_redis_memory_bytes", "What a Redis that has slots of this core uses.", ("server",)),
    Metric("gauge", "flockmq_redis_memory_max_bytes", "Its `maxmemory`; 0: none.", ("server",)),
    Metric("gauge", "flockmq_redis_short", "1 while nothing more is kept, because Redis has little memory left."),
    Metric("counter", "flockmq_messages_refused_short", "Messages that were refused (0x97) meanwhile."),
    Metric("counter", "flockmq_quota_refused", "What was too much for its user's quota, by which.", ("quota",)),
    Metric("gauge", "flockmq_users_over_quota", "Users who have used up a quota, as far as this node knows."),
    Metric("gauge", "flockmq_rlog_lag_entries", "Entries between the shard's head and this node's tables.", ("shard",)),
    Metric("gauge", "flockmq_rlog_lag_seconds", "How long this node's tables have been behind the head.", ("shard",)),
    Metric("gauge", "flockmq_cluster_version", "The version of the cluster's formats: all nodes understand it."),
    Metric("gauge", "flockmq_redis_cut_off", "1 while this node doesn't reach Redis, and another node does."),
    Metric("gauge", "flockmq_stale", "1 while QoS 1 and 2 wait because this node's tables may be old."),
    Metric(
        "gauge",
        "flockmq_rlog_last_intercepted_trans",
        "Transactions that this core wrote to the shard since it started, for itself and for others.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_weight", "Appends that this core took of other nodes since its last heartbeat."),
    Metric("gauge", "flockmq_rlog_replicants", "Replicants that write through this core, in every shard."),
    Metric(
        "gauge",
        "flockmq_rlog_server_mql",
        "Appends that wait in this core for Redis. Nothing waits for replicants: they read the log themselves.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_bootstrap_time_seconds", "How long the shard's last bootstrap took.", ("shard",)),
    Metric("gauge", "flockmq_rlog_bootstrap_num_keys", "Rows that the shard's last bootstrap brought.", ("shard",)),
    Metric(
        "gauge",
        "flockmq_rlog_message_queue_len",
        "Entries that this node read from Redis, or knows to be there, and hasn't applied.",
        ("shard",),
    ),
    Metric("gauge", "flockmq_rlog_replayq_len", "Entries that a bootstrap under way has still to replay.", ("shard",)),
    Metric("counter", "flockmq_rlog_redis_lost_data", "Times this core began a shard's log anew that Redis had lost."),
    Metric("counter", "flockmq_rlog_digest_mismatches", "Times this node's tables were not what the cores have."),
    Metric("counter", "flockmq_events_dropped", "Events for the nightly report that found no room on this node."),
    Metric("counter", "flockmq_events_lost_bytes", "Bytes of such events that were lost on their way.", ("why",)),
    Metric("gauge", "flockmq_clock_off_seconds", "How far this node's clock is ahead of the cluster's time."),
    Metric("counter", "flockmq_cluster_time_jumps", "Times the cluster's time was set, as most cores' clocks said."),
    Metric("gauge", "flockmq_alarms", "Alarms, as /api/v5/alarms lists them."),
    Metric("counter", "flockmq_loop_late_seconds", "By how much a timer of the event loop came late, in all."),
    Metric("gauge", "flockmq_loop_late_worst_seconds", "The longest such pause of the last one to two minutes."),
    Metric("gauge", "flockmq_plugin_running", "0 while the plugin is fenced off because it failed.", ("plugin",)),
    Metric("counter", "flockmq_plugin_calls", "Calls of the plugin's handlers.", ("plugin",)),
    Metric("counter", "flockmq_plugin_seconds", "What they took in all: nothing else runs meanwhile.", ("plugin",)),
    Metric("counter", "flockmq_plugin_failures", "Calls that raised, took too long or answered nonsense.", ("plugin",)),
    Metric("gauge", "flockmq_bound", "A named bound; its unit is a label.", ("name", "unit")),
)

FAMILIES: Final = {metric.name: metric for metric in CATALOGUE}

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
"""Each of the hot path's counters, and the family and labels under which it is shown."""


BY_QOS: Final = {"messages_received": "flockmq_messages_received", "messages_sent": "flockmq_messages_sent"}
"""Counters of all messages. The hot path doesn't count QoS 0 apart: it is the rest beside QoS 1 and 2."""

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
"""What clients send, but for PUBLISH, of which `flockmq_messages_received` tells."""

BY_REASON: Final = {"connects_refused": "flockmq_connects_refused", "disconnects": "flockmq_disconnects"}
"""Counters whose reasons the node tallies. The rest of each are connections that CONNACK never accepted."""


class Reasons:
    """How often something happened, by MQTT reason code. `rest` names what the counter has beyond the tally."""

    def __init__(self, field: str, rest: str) -> None:
        self._field = field
        self._rest = rest
        self._tally: dict[int, int] = {}
        self._beyond = 0  # the tally may be ahead of the counter for a moment, and a metric must not fall

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
    """`not_authorized`; what isn't in the catalogue is its number."""
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
    """Reads a node when Prometheus asks, and keeps nothing. `samples`: all but the bounds."""

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
    """Every bound of `bounds.py`: `LINK_FRAME_MAX_BYTES` is {name="link_frame_max_bytes", unit="bytes"}."""
    for name, value in vars(bounds).items():
        if name.isupper() and isinstance(value, int | float):
            unit = name.lower().removesuffix("_max").rpartition("_")[2]
            yield Sample("flockmq_bound", value, (name.lower(), unit))


def registry(samples: Samples) -> CollectorRegistry:
    """The node's numbers, the process' (memory, CPU, descriptors) and the garbage collector's."""
    made = CollectorRegistry(auto_describe=False)
    made.register(NodeCollector(samples))
    prometheus_client.ProcessCollector(registry=made)
    prometheus_client.GCCollector(registry=made)
    return made


def exposition(made: CollectorRegistry) -> bytes:
    """The text that /metrics answers with."""
    return prometheus_client.generate_latest(made)
