"""A node as management and telemetry see it: what it is, how it is, and its numbers, read when somebody asks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flockmq import __version__, build
from flockmq.management.view import AlarmRow, LogState, NodeRow, NodeStatus, PluginRow, Sample, ShardStatus
from flockmq.rlog.shards import SHARDS
from flockmq.telemetry.metrics import counter_samples

if TYPE_CHECKING:
    from flockmq.node.node import Node


class View:
    """A `management.view.NodeView`; every call answers at once, from memory."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._started_s = time.monotonic()

    def ready(self) -> tuple[bool, str]:
        return self._node.state in ("ready", "draining"), self._node.state

    def draining(self) -> bool:
        return self._node.state == "draining"

    def nodes(self) -> Sequence[NodeRow]:
        return [
            NodeRow(
                name=view.name,
                incarnation=view.incarnation,
                role=view.role,
                host=view.host,
                mqtt_port=view.mqtt_port or None,
                connections=view.connections,
                routes=view.routes,
                lag_entries=view.lag_entries,
                ready=view.ready,
                draining=view.draining,
                version=view.version,
            )
            for view in self._node.cluster.nodes()
        ]

    def names(self) -> list[str]:
        """The nodes of the cluster."""
        return [view.name for view in self._node.cluster.nodes()]

    def status(self) -> NodeStatus:
        node = self._node
        lags = {shard: node.rlog.lag(shard) for shard in SHARDS}
        return NodeStatus(
            name=node.name,
            incarnation=node.incarnation,
            role=node.role,
            version=__version__,
            build=build.kind(),
            uptime_s=time.monotonic() - self._started_s,
            leader=next((view.incarnation for view in self._node.cluster.nodes() if view.leader), None),
            shards=[
                ShardStatus(shard=shard, applied=str(node.rlog.applied(shard)), lag_entries=entries, lag_ms=ms)
                for shard, (entries, ms) in lags.items()
            ],
        )

    def rlog(self) -> Mapping[str, LogState]:
        return {
            name: LogState(
                applied=str(shard.applied),
                digests={table: f"{digest:016x}" for table, digest in shard.digests().items()},
            )
            for name, shard in self._node.rlog.tables.shards.items()
        }

    def plugins(self) -> Sequence[PluginRow]:
        return self._node.hooking.rows()

    def enable_plugin(self, name: str) -> PluginRow | None:
        return self._node.hooking.enable(name)

    def alarms(self) -> Sequence[AlarmRow]:
        rows = [
            AlarmRow(name=name, since_s=alarm.since_s, text=alarm.text)
            for name, alarm in self._node.rlog.tables.alarms.items()
        ]
        return sorted(rows, key=lambda row: row.since_s)

    async def end_alarm(self, name: str) -> bool:
        is_there = self._node.rlog.tables.alarms.get(name) is not None
        if is_there:
            await self._node.rlog.end_alarm(name)
        return is_there

    def samples(self) -> Sequence[Sample]:
        node = self._node
        return [
            *counter_samples(node.counters),
            *node.refusals.samples(node.counters),
            *node.ends.samples(node.counters),
            *node.loop_watch.samples(),
            *node.hooking.samples(),
            *(Sample(*sample) for sample in node.access.auth.samples()),
            Sample("flockmq_sessions", node.counters.connections + node.counters.sessions_away),
            Sample("flockmq_sessions_persistent", 0 if node.hosting is None else len(node.hosting.residents)),
            *(
                Sample("flockmq_listener_connections", listener.connections, (listener.name,))
                for listener in node.engine.listeners.values()
            ),
            Sample("flockmq_routes", len(node.rlog.tables.routes)),
            Sample("flockmq_retained_messages", len(node.retained.index)),
            Sample("flockmq_shared_groups", len(node.router.shared.groups)),
            Sample("flockmq_shared_subscriptions", node.router.shared.members()),
            Sample("flockmq_exclusive_subscriptions", len(node.filters.exclusive)),
            Sample("flockmq_delayed_messages", len(node.rlog.tables.delayed)),
            Sample("flockmq_delayed_bytes", node.rlog.tables.delayed.bytes),
            Sample("flockmq_delayed_published", node.delayed.published),
            Sample("flockmq_queue_length", node.homes.attaching, ("attaches",)),
            Sample("flockmq_queue_length", node.cluster.resend_messages, ("resend_messages",)),
            Sample("flockmq_queue_length", node.rlog.pending_bytes, ("log_pending_bytes",)),
            Sample("flockmq_rlog_redis_lost_data", node.rlog.redis_lost_data),
            Sample("flockmq_rlog_digest_mismatches", node.rlog.digest_mismatches),
            Sample("flockmq_alarms", len(node.rlog.tables.alarms)),
            Sample("flockmq_forward_dropped_bytes", node.cluster.dropped_bytes),
            *(
                Sample(name, value, (peer,))
                for peer, traffic in node.cluster.traffic().items()
                for name, value in (
                    ("flockmq_link_sent_bytes", traffic.sent_bytes),
                    ("flockmq_link_received_bytes", traffic.received_bytes),
                    ("flockmq_link_queue_bytes", traffic.queue_bytes),
                )
            ),
        ]
