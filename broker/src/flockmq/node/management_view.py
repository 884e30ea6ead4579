"""A node as management and telemetry see it: what it is, how it is, and its numbers, read when somebody asks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from flockmq import __version__, build
from flockmq.clock import Clock
from flockmq.management.rows import ClientsWanted, SessionsWanted
from flockmq.management.view import (
    REDIS_AWAY,
    AlarmRow,
    ClusterState,
    LogState,
    NodeLog,
    NodeRow,
    NodeStatus,
    PluginRow,
    QuotaRow,
    QuotasShown,
    ShardStatus,
    Unavailable,
)
from flockmq.membership.readiness import OWN_AWAY
from flockmq.membership.views import traffic_by_node
from flockmq.node.user_quotas import name_of
from flockmq.quotas import INFINITE, KINDS, over, share
from flockmq.rlog.shards import SHARDS
from flockmq.session_rpc.client import Admission, AttachError
from flockmq.telemetry.metrics import counter_samples
from flockmq.telemetry.sample import Sample

if TYPE_CHECKING:
    from flockmq.node.node import Node


_WAITS: Final = "what is subscribed to, and what is for sessions that last, waits"


class ManagementView:
    """A `management.view.NodeView`; every call that isn't awaited answers at once, from memory."""

    def __init__(self, node: Node, clock: Clock) -> None:
        self._node = node
        self._clock = clock
        self._started_s = clock.monotonic()

    def ready(self) -> tuple[bool, str]:
        state, unfit = self._node.state, self._node.cluster.fitness.unfit
        if state == "ready" and unfit:
            return False, unfit
        return state in ("ready", "draining"), state

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
            ready=self.ready()[0],
            state=self.ready()[1],
            uptime_s=self._clock.monotonic() - self._started_s,
            leader=next((view.incarnation for view in self._node.cluster.nodes() if view.leader), None),
            cluster_version=self._node.cluster.version.current,
            shards=[
                ShardStatus(shard=shard, applied=str(node.rlog.applied(shard)), lag_entries=entries, lag_ms=ms)
                for shard, (entries, ms) in lags.items()
            ],
        )

    def rlog(self) -> Mapping[str, LogState]:
        return {name: self._log_of(name) for name in SHARDS}

    def _log_of(self, name: str) -> LogState:
        shard, stats = self._node.rlog.tables.shards[name], self._node.rlog.stats(name)
        return LogState(
            applied=str(shard.applied),
            digests={table: f"{digest:016x}" for table, digest in shard.digests().items()},
            lag_entries=stats.lag_entries,
            lag_seconds=stats.lag_s,
            bootstraps=stats.bootstraps,
            bootstrap_time_seconds=stats.bootstrap_s,
            bootstrap_num_keys=stats.bootstrap_rows,
            message_queue_len=stats.unapplied,
            replayq_len=stats.replaying,
            last_intercepted_trans=stats.appended,
            server_mql=stats.appends_waiting,
        )

    async def members(self) -> ClusterState:
        return await self._node.overview.members()

    async def logs(self) -> Sequence[NodeLog]:
        return await self._node.overview.logs()

    def plugins(self) -> Sequence[PluginRow]:
        return self._node.hooking.rows()

    def enable_plugin(self, name: str) -> PluginRow | None:
        return self._node.hooking.enable(name)

    def alarms(self) -> Sequence[AlarmRow]:
        rows = [
            AlarmRow(name=name, since_s=alarm.since_s, text=alarm.text)
            for name, alarm in self._node.rlog.tables.alarms.items()
        ]
        return sorted([*rows, *self._redis_away()], key=lambda row: row.since_s)

    def _redis_away(self) -> Iterator[AlarmRow]:
        if not self._node.rlog.hears_redis() and not self._node.cluster.fitness.is_cut_off:
            since_s = self._clock.wall() - self._node.rlog.unheard_s()
            text = f"no node reaches Redis, or one of its servers: {_WAITS}; look at Redis"
            if own_trouble := self._node.cluster.fitness.own_trouble():
                text = f"{OWN_AWAY}: {_WAITS}; {own_trouble}"
            yield AlarmRow(name=REDIS_AWAY, since_s=since_s, text=text)

    def quotas(self) -> QuotasShown:
        quotas = self._node.quotas
        limits = quotas.quotas.limits
        users = sorted(quotas.users().items(), key=lambda row: share(row[1], limits), reverse=True)
        return QuotasShown(
            limits={
                f"max_{kind}": limit if limit < INFINITE else None for kind, limit in zip(KINDS, limits, strict=True)
            },
            users=[QuotaRow(name=name_of(user), **held._asdict(), over=over(held, limits)) for user, held in users],
        )

    async def end_alarm(self, name: str) -> bool:
        is_there = self._node.rlog.tables.alarms.get(name) is not None
        if is_there:
            await self._node.rlog.end_alarm(name)
        return is_there

    async def clients(self, wanted: ClientsWanted) -> bytes:
        return await self._node.directory.clients(wanted)

    async def client(self, client_id: str) -> bytes:
        return await self._node.directory.client(client_id)

    async def kick(self, client_id: str) -> bool:
        return await self._node.directory.kick(client_id)

    async def sessions(self, wanted: SessionsWanted) -> bytes:
        return await self._node.directory.sessions(wanted)

    async def session(self, client_id: str, after: int, limit: int) -> bytes:
        return await self._node.directory.session(client_id, after, limit)

    async def end_session(self, client_id: str) -> bool:
        """Its connection first, which hears why. Then as a CONNECT that wants no session does, by a connection that is
        gone at once: that ends what nobody can be asked about, too."""
        was_connected = False
        with contextlib.suppress(Unavailable):
            was_connected = await self.kick(client_id)
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._node.homes.attach(client_id.encode(), None, partial(self._ended, client_id.encode(), answered))
        return await answered or was_connected

    def _ended(self, client_id: bytes, answered: asyncio.Future[bool], answer: Admission | AttachError) -> None:
        if isinstance(answer, Admission):
            self._node.homes.detach(client_id, answer.token)
        if answered.done():
            return
        if isinstance(answer, Admission):
            answered.set_result(not answer.absent)
        else:
            answered.set_exception(Unavailable(str(answer)))

    def _log_samples(self) -> Iterator[Sample]:
        """What Mria calls them, in our log."""
        node = self._node
        yield Sample("flockmq_stale", node.router.stale)
        yield Sample("flockmq_cluster_version", node.cluster.version.current)
        yield Sample("flockmq_redis_cut_off", node.cluster.fitness.is_cut_off)
        for shard in SHARDS:
            stats = node.rlog.stats(shard)
            yield Sample("flockmq_rlog_bootstrap_time_seconds", stats.bootstrap_s, (shard,))
            yield Sample("flockmq_rlog_bootstrap_num_keys", stats.bootstrap_rows, (shard,))
            yield Sample("flockmq_rlog_message_queue_len", stats.unapplied, (shard,))
            yield Sample("flockmq_rlog_replayq_len", stats.replaying, (shard,))
            if node.cluster.is_core:
                yield Sample("flockmq_rlog_last_intercepted_trans", stats.appended, (shard,))
                yield Sample("flockmq_rlog_server_mql", stats.appends_waiting, (shard,))
        if node.cluster.is_core and (status := node.cluster.status_of(node.cluster.incarnation)) is not None:
            yield Sample("flockmq_rlog_weight", status.weight)
            yield Sample("flockmq_rlog_replicants", status.replicants)

    def _home_samples(self) -> Iterator[Sample]:
        """Messages on their way to sessions that last, and those sessions."""
        lanes = self._node.delivery.slots.lanes
        yield Sample("flockmq_courier_messages", lanes.waiting_messages)
        yield Sample("flockmq_courier_bytes", lanes.waiting_bytes)
        yield Sample("flockmq_courier_parked_messages", lanes.parked_messages)
        yield Sample("flockmq_courier_stuck_bytes", lanes.stuck_bytes)
        yield Sample("flockmq_courier_congested_lanes", lanes.congested - lanes.crowded_slots)
        yield Sample("flockmq_courier_crowded_slots", lanes.crowded_slots)
        yield Sample("flockmq_courier_dropped_bytes", lanes.dropped_bytes)
        shortage, hosting = self._node.shortage, self._node.hosting
        yield Sample("flockmq_redis_short", shortage.is_on)
        yield Sample("flockmq_messages_refused_short", shortage.refused + lanes.refused)
        yield Sample("flockmq_sessions_crowded", 0 if hosting is None else len(hosting.residents.crowds))
        yield Sample("flockmq_sessions_persistent", 0 if hosting is None else len(hosting.residents))
        if hosting is not None:
            slots, store = hosting.residents.holding.slots.values(), hosting.store
            yield Sample("flockmq_home_slots", len(slots))
            yield Sample("flockmq_home_slots_loading", sum(not slot.loaded for slot in slots))
            yield Sample("flockmq_home_wills", sum(len(slot.wills) for slot in slots))
            yield Sample("flockmq_home_intake_bytes", hosting.intake.waiting_bytes)
            yield Sample("flockmq_home_store_queue_bytes", store.queued_bytes)
            yield Sample("flockmq_home_store_commits", store.commits)
            yield Sample("flockmq_home_store_bytes", store.committed_bytes)
            yield Sample("flockmq_home_store_retries", store.retries)
            yield Sample("flockmq_home_store_redis_full", store.redis_full)
            for address, room in store.rooms().items():
                yield Sample("flockmq_redis_memory_bytes", room.memory.used, (address,))
                yield Sample("flockmq_redis_memory_max_bytes", room.memory.limit, (address,))

    def _quota_samples(self) -> Iterator[Sample]:
        quotas = self._node.quotas
        limits = quotas.quotas.limits
        for kind, times in quotas.quotas.refused.items():
            yield Sample("flockmq_quota_refused", times, (kind,))
        yield Sample("flockmq_users_over_quota", sum(bool(over(held, limits)) for held in quotas.users().values()))

    def _shared_samples(self) -> Iterator[Sample]:
        shared, hosting = self._node.router.shared, self._node.hosting
        homed = {} if hosting is None else hosting.router.groups
        groups = shared.groups.keys() | {share_filter for by_filter in homed.values() for share_filter in by_filter}
        yield Sample("flockmq_shared_groups", len(groups))
        yield Sample("flockmq_shared_subscriptions", shared.members() + (hosting.router.members() if hosting else 0))

    def _shape_samples(self) -> Iterator[Sample]:
        router, hosting = self._node.router, self._node.hosting
        yield Sample("flockmq_filter_shapes", router.local.shapes, ("connected",))
        yield Sample("flockmq_filter_shapes", router.remote.shapes, ("routed",))
        if hosting is not None:
            yield Sample("flockmq_filter_shapes", hosting.router.local.shapes, ("home",))

    def _exclusive(self) -> int:
        hosting = self._node.hosting
        return len(self._node.filters.exclusive) + (0 if hosting is None else len(hosting.claims))

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
            *(
                Sample("flockmq_listener_connections", listener.connections, (listener.name,))
                for listener in node.reactor.listeners.values()
            ),
            Sample("flockmq_routes", len(node.rlog.tables.routes)),
            Sample("flockmq_retained_messages", len(node.retained.index)),
            *self._shared_samples(),
            *self._shape_samples(),
            Sample("flockmq_exclusive_subscriptions", self._exclusive()),
            Sample("flockmq_delayed_messages", len(node.rlog.tables.delayed)),
            Sample("flockmq_delayed_bytes", node.rlog.tables.delayed.bytes),
            Sample("flockmq_delayed_published", node.delayed.published),
            Sample("flockmq_queue_length", node.reactor.unauthenticated_bytes(), ("unauthenticated_bytes",)),
            Sample("flockmq_queue_length", node.homes.attaching, ("attaches",)),
            Sample("flockmq_queue_length", len(node.homes.guests), ("home_wills",)),
            Sample("flockmq_queue_length", node.homes.guests.waiting_bytes, ("home_wills_bytes",)),
            Sample("flockmq_home_wills_dropped", node.homes.guests.dropped),
            *(Sample("flockmq_home_notes_dropped", notes, (why,)) for why, notes in node.homes.dropped()),
            Sample("flockmq_queue_length", node.delivery.nodes.resend_messages, ("resend_messages",)),
            Sample("flockmq_queue_length", node.rlog.pending_bytes, ("log_pending_bytes",)),
            Sample("flockmq_queue_length", len(node.publishing), ("offered_messages",)),
            Sample("flockmq_queue_length", node.publishing.waiting_bytes, ("offered_bytes",)),
            Sample("flockmq_queue_length", node.router.held.bytes, ("held_bytes",)),
            *self._home_samples(),
            *self._quota_samples(),
            *self._log_samples(),
            Sample("flockmq_rlog_redis_lost_data", node.rlog.redis_lost_data),
            Sample("flockmq_rlog_digest_mismatches", node.rlog.digest_mismatches),
            Sample("flockmq_events_dropped", node.cluster.events.buffer.dropped),
            *(Sample("flockmq_events_lost_bytes", n, (why,)) for why, n in node.cluster.events.lost_bytes.items()),
            Sample("flockmq_clock_off_seconds", node.cluster.time.off_s),
            Sample("flockmq_cluster_time_jumps", node.cluster.time.jumps),
            Sample("flockmq_alarms", len(self.alarms())),
            Sample("flockmq_forward_dropped_bytes", node.delivery.nodes.dropped_bytes),
            Sample("flockmq_link_late_bytes", node.delivery.late_bytes),
            Sample("flockmq_tunnelled_links", sum(bool(link.through) for link in node.cluster.mesh.links())),
            Sample("flockmq_tunnel_queue_bytes", sum(link.tunnelled_bytes for link in node.cluster.mesh.links())),
            Sample("flockmq_relayed_tunnels", node.cluster.mesh.tunnels.relayed),
            Sample("flockmq_relayed_bytes", node.cluster.mesh.tunnels.relayed_bytes),
            *(
                Sample(name, value, (peer,))
                for peer, traffic in traffic_by_node(node.cluster.mesh.links()).items()
                for name, value in (
                    ("flockmq_link_sent_bytes", traffic.sent_bytes),
                    ("flockmq_link_received_bytes", traffic.received_bytes),
                    ("flockmq_link_queue_bytes", traffic.queue_bytes),
                )
            ),
        ]
