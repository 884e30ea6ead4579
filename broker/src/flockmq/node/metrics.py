"""Collects the samples for /metrics and $SYS from the parts of a node. Some parts yield their own samples.

All values are read from memory. `telemetry.metrics` has the names and help texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flockmq.delivery.delivery import Delivery
from flockmq.delivery.slot_sender import SlotSender
from flockmq.membership.cluster import Cluster
from flockmq.membership.membership_settings import traffic_by_node
from flockmq.node.durable_host import DurableHost
from flockmq.node.memory_shortage import MemoryShortage
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.publishing.delayed import Delayed
from flockmq.publishing.log_queue import LogQueue
from flockmq.publishing.retained_feed import RetainedFeed
from flockmq.publishing.unattended import Unattended
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS
from flockmq.routes.filter_registration import FilterRegistration
from flockmq.routes.route_turns import RouteTurns
from flockmq.routing.router import Router
from flockmq.session_rpc.rpc import SessionRpc
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.sample import Sample, Samples
from flockmq.transport.reactor import Reactor


class NodeMetrics:
    """All samples of a node: those of all `parts`."""

    def __init__(self) -> None:
        self.parts: Sequence[Samples] = ()

    def samples(self) -> list[Sample]:
        return [sample for part in self.parts for sample in part()]


def client_samples(reactor: Reactor, counters: Counters) -> Iterator[Sample]:
    yield Sample("flockmq_sessions", int(counters.connections + counters.sessions_away))
    yield Sample("flockmq_connections_max", reactor.max_connections())
    for listener, connections in reactor.listener_connections():
        yield Sample("flockmq_listener_connections", connections, (listener,))
    yield Sample("flockmq_queue_length", reactor.unauthenticated_bytes(), ("unauthenticated_bytes",))


def subscription_samples(
    router: Router, filters: FilterRegistration, sessions: CleanSessionEnd, host: DurableHost | None
) -> Iterator[Sample]:
    shared, exclusive = router.shared, len(filters.exclusive)
    groups, members = set(shared.groups), shared.members()
    yield Sample("flockmq_filter_shapes", router.local.shapes, ("connected",))
    yield Sample("flockmq_filter_shapes", router.remote.shapes, ("routed",))
    ended = sessions.ended.waiting
    if host is not None:
        yield Sample("flockmq_filter_shapes", host.router.local.shapes, ("home",))
        groups.update(share_filter for by_filter in host.router.groups.values() for share_filter in by_filter)
        members += host.router.members()
        exclusive += len(host.claims)
        ended += host.session_service.sessions.ended.waiting
    yield Sample("flockmq_shared_groups", len(groups))
    yield Sample("flockmq_shared_subscriptions", members)
    yield Sample("flockmq_exclusive_subscriptions", exclusive)
    yield Sample("flockmq_queue_length", ended, ("ended_filters",))


def message_samples(
    rlog: Rlog,
    router: Router,
    retained: RetainedFeed,
    delayed: Delayed,
    unattended: Unattended,
    routes: RouteTurns,
    log_queue: LogQueue[PendingPublish],
) -> Iterator[Sample]:
    yield Sample("flockmq_match_cache_topics", len(router.matches))
    yield Sample("flockmq_match_cache_bytes", int(router.matches.size_bytes))
    yield Sample("flockmq_match_cache_max_bytes", router.matches.max_bytes)
    yield Sample("flockmq_retained_messages", len(retained.index))
    yield Sample("flockmq_delayed_messages", len(rlog.tables.delayed))
    yield Sample("flockmq_delayed_bytes", rlog.tables.delayed.bytes)
    yield Sample("flockmq_delayed_published", delayed.published)
    yield Sample("flockmq_queue_length", unattended.new_bytes, ("unoffered_bytes",))
    yield Sample("flockmq_queue_length", len(unattended), ("offered_messages",))
    yield Sample("flockmq_queue_length", unattended.waiting_bytes, ("offered_bytes",))
    yield Sample("flockmq_queue_length", router.held.bytes, ("held_bytes",))
    yield Sample("flockmq_queue_length", routes.waiting_bytes, ("routes_waiting_bytes",))
    yield Sample("flockmq_queue_length", log_queue.waiting_bytes, ("logged_waiting_bytes",))


def client_id_samples(session_rpc: SessionRpc) -> Iterator[Sample]:
    """Attaches, wills and notifications between this node and the owners of client ids."""
    yield Sample("flockmq_queue_length", len(session_rpc.client), ("attaches",))
    yield Sample("flockmq_queue_length", session_rpc.server.registry.unconfirmed_ends(), ("unconfirmed_ends",))
    yield Sample("flockmq_queue_length", len(session_rpc.server.wills), ("home_wills",))
    yield Sample("flockmq_queue_length", session_rpc.server.wills.waiting_bytes, ("home_wills_bytes",))
    yield Sample("flockmq_owner_wills_dropped", session_rpc.server.wills.dropped)
    for why, notes in session_rpc.dropped():
        yield Sample("flockmq_owner_notes_dropped", notes, (why,))


def delivery_samples(delivery: Delivery) -> Iterator[Sample]:
    """Messages on their way to other nodes."""
    yield Sample("flockmq_queue_length", delivery.nodes.resend_messages, ("resend_messages",))
    yield Sample("flockmq_forward_dropped_bytes", delivery.nodes.dropped_bytes)
    yield Sample("flockmq_link_late_bytes", delivery.late_bytes)


def slot_message_samples(slot_sender: SlotSender, shortage: MemoryShortage) -> Iterator[Sample]:
    """Messages on their way to durable sessions."""
    yield Sample("flockmq_slot_queue_messages", slot_sender.waiting_messages)
    yield Sample("flockmq_slot_queue_bytes", slot_sender.waiting_bytes)
    yield Sample("flockmq_slot_queue_unassigned_messages", slot_sender.unassigned_messages)
    yield Sample("flockmq_slot_queue_blocked_bytes", slot_sender.blocked_bytes)
    yield Sample(
        "flockmq_slot_queue_congested_owners", slot_sender.congested - len(slot_sender.back_pressure.congested)
    )
    yield Sample("flockmq_slot_queue_congested_slots", len(slot_sender.back_pressure.congested))
    yield Sample("flockmq_slot_queue_dropped_bytes", slot_sender.dropped_bytes)
    yield Sample("flockmq_redis_short", shortage.is_redis_short)
    yield Sample("flockmq_node_memory_bytes", shortage.marks.used_bytes)
    yield Sample("flockmq_node_memory_max_bytes", shortage.marks.limit_bytes)
    yield Sample("flockmq_messages_refused_short", shortage.refused + slot_sender.refused)


def session_samples(host: DurableHost | None) -> Iterator[Sample]:
    """Durable sessions that this node owns."""
    session_service = None if host is None else host.session_service
    yield Sample("flockmq_sessions_congested", 0 if session_service is None else len(session_service.congestion))
    yield Sample("flockmq_sessions_persistent", 0 if session_service is None else len(session_service))
    if host is not None:
        slots, store = host.session_service.manager.slots.values(), host.store
        yield Sample("flockmq_owned_slots", len(slots))
        yield Sample("flockmq_owned_slots_loading", sum(not slot.loaded for slot in slots))
        yield Sample("flockmq_owner_wills", sum(len(slot.wills) for slot in slots))
        held = host.session_service.manager.held_wills
        yield Sample("flockmq_queue_length", held.count, ("held_wills",))
        yield Sample("flockmq_queue_length", held.bytes, ("held_wills_bytes",))
        cancelled = host.session_service.cancelled_wills
        yield Sample("flockmq_queue_length", cancelled.size_bytes, ("cancelled_wills_bytes",))
        yield Sample("flockmq_owner_intake_bytes", host.intake.waiting_bytes)
        yield Sample("flockmq_session_store_queue_bytes", store.queued_bytes)
        yield Sample("flockmq_session_store_commits", store.commits)
        yield Sample("flockmq_session_store_bytes", store.committed_bytes)
        yield Sample("flockmq_session_store_retries", store.retries)
        yield Sample("flockmq_session_store_redis_full", store.redis_full)
        for address, room in store.rooms().items():
            yield Sample("flockmq_redis_memory_bytes", room.memory.used, (address,))
            yield Sample("flockmq_redis_memory_max_bytes", room.memory.limit, (address,))


def log_samples(rlog: Rlog, cluster: Cluster) -> Iterator[Sample]:
    """Samples of the log, with Mria's names where there are any."""
    yield Sample("flockmq_routes", len(rlog.tables.routes))
    yield Sample("flockmq_queue_length", rlog.pending_bytes, ("log_pending_bytes",))
    yield Sample("flockmq_rlog_redis_lost_data", rlog.redis_lost_data)
    yield Sample("flockmq_rlog_digest_mismatches", rlog.digest_mismatches)
    for shard in SHARDS:
        stats = rlog.stats(shard)
        yield Sample("flockmq_rlog_bootstrap_time_seconds", stats.bootstrap_time_seconds, (shard,))
        yield Sample("flockmq_rlog_bootstrap_num_keys", stats.bootstrap_num_keys, (shard,))
        yield Sample("flockmq_rlog_message_queue_len", stats.message_queue_len, (shard,))
        yield Sample("flockmq_rlog_replayq_len", stats.replayq_len, (shard,))
        if cluster.is_core:
            yield Sample("flockmq_rlog_last_intercepted_trans", stats.last_intercepted_trans, (shard,))
            yield Sample("flockmq_rlog_server_mql", stats.server_mql, (shard,))
    if cluster.is_core and (status := cluster.status_of(cluster.incarnation)) is not None:
        yield Sample("flockmq_rlog_weight", status.weight)
        yield Sample("flockmq_rlog_replicants", status.replicants)


def cluster_samples(cluster: Cluster) -> Iterator[Sample]:
    yield Sample("flockmq_stale", cluster.staleness.is_stale)
    yield Sample("flockmq_cluster_version", cluster.version.current)
    yield Sample("flockmq_redis_cut_off", cluster.readiness.is_cut_off)
    yield Sample("flockmq_clock_off_seconds", cluster.time.off_s)
    yield Sample("flockmq_cluster_time_jumps", cluster.time.jumps)
    yield Sample("flockmq_events_dropped", cluster.events.buffer.dropped)
    for why, lost_bytes in cluster.events.lost_bytes.items():
        yield Sample("flockmq_events_lost_bytes", lost_bytes, (why,))
    links, tunnels = cluster.mesh.links(), cluster.mesh.tunnels
    yield Sample("flockmq_tunnelled_links", sum(bool(link.through) for link in links))
    yield Sample("flockmq_tunnel_queue_bytes", sum(link.tunnelled_bytes for link in links))
    yield Sample("flockmq_relayed_tunnels", tunnels.relayed)
    yield Sample("flockmq_relayed_bytes", tunnels.relayed_bytes)
    for peer, traffic in traffic_by_node(links).items():
        yield Sample("flockmq_link_sent_bytes", traffic.sent_bytes, (peer,))
        yield Sample("flockmq_link_received_bytes", traffic.received_bytes, (peer,))
        yield Sample("flockmq_link_queue_bytes", traffic.queue_bytes, (peer,))
