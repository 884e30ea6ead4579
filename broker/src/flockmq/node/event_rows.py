"""What a node tells the nightly report: its events and samples, as the rows that `event_batches.COLUMNS` names.

An event costs its row and no more: no task, no system call but the one for a client's address as it connects. Who ended
a connection: the client if it sent DISCONNECT, the network if it was lost or fell silent, and otherwise the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flockmq.clock import Clock
from flockmq.delivery.delivery import Delivery
from flockmq.durable.session_service import SessionService
from flockmq.durable.session_store import SessionStore
from flockmq.membership.cluster import Cluster
from flockmq.membership.event_batches import Event, text_of
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import Channel
from flockmq.rlog.rlog import Rlog
from flockmq.rlog.schema import SHARDS
from flockmq.telemetry.counters import Counters
from flockmq.telemetry.loop import LoopWatch
from flockmq.telemetry.metrics import FROM_COUNTERS

CONNECTED: Final = "connected"
DISCONNECTED: Final = "disconnected"
TAKEN_OVER: Final = "taken_over"

CLIENT: Final = "client"
SERVER: Final = "server"
NETWORK: Final = "network"

_LOST: Final = (Reason.UNSPECIFIED_ERROR, Reason.KEEP_ALIVE_TIMEOUT)
_V31: Final = 3


class EventRows:
    """Hands events and samples to the cluster."""

    def __init__(
        self, cluster: Cluster, rlog: Rlog, delivery: Delivery, counters: Counters, loop_watch: LoopWatch, clock: Clock
    ) -> None:
        self.durable: tuple[SessionService, SessionStore] | None = None
        """Of a core."""
        self._cluster, self._rlog, self._delivery = cluster, rlog, delivery
        self._counters, self._loop_watch, self._clock = counters, loop_watch, clock

    def connection(self, kind: str, client_id: bytes, channel: Channel) -> None:
        """`channel` was admitted, has ended, or must end because its client is back on another connection."""
        make = {CONNECTED: connected, DISCONNECTED: disconnected, TAKEN_OVER: taken_over}[kind]
        self._cluster.events.buffer.add("connections", [make(self._clock.wall_ms(), client_id, channel)])

    def refused(self, channel: Channel, reason: int) -> None:
        self._cluster.events.buffer.add("refusals", [refused(self._clock.wall_ms(), channel, reason)])

    def sample(self, is_ready: bool) -> None:
        at_ms = self._clock.wall_ms()
        self._cluster.events.buffer.add("lag", list(self._lags(at_ms)))
        self._cluster.events.buffer.add("nodes", [self._node(at_ms, is_ready)])

    def _lags(self, at_ms: int) -> Iterator[Event]:
        for shard in SHARDS:
            (entries, ms), stats = self._rlog.lag(shard), self._rlog.stats(shard)
            bootstrap_ms = round(stats.bootstrap_time_seconds * 1000)
            rows = stats.bootstrap_num_keys
            queues = stats.message_queue_len, stats.replayq_len
            yield at_ms, shard, entries, round(ms), stats.bootstraps, bootstrap_ms, rows, *queues

    def _node(self, at_ms: int, is_ready: bool) -> Event:
        settings, counters, slots = self._cluster.settings, self._counters, self._delivery.slots.sender
        service, store = self.durable or (None, None)
        return (
            at_ms,
            settings.role,
            settings.version,
            is_ready,
            counters.connections,
            counters.connections + counters.sessions_away,
            0 if service is None else len(service),
            counters.subscriptions,
            len(self._rlog.tables.routes),
            counters.connects,
            counters.disconnects,
            counters.connects_refused,
            counters.takeovers,
            counters.evictions,
            counters.messages_received,
            counters.messages_sent,
            dropped(counters),
            counters.bytes_received,
            counters.bytes_sent,
            slots.waiting_messages,
            self._delivery.nodes.resend_messages,
            0 if store is None else store.queued_bytes,
            round(self._loop_watch.worst_s * 1000),
        )


def connected(at_ms: int, client_id: bytes, channel: Channel) -> Event:
    peer = channel.peer()
    nothing = (None,) * 5
    return at_ms, CONNECTED, text_of(client_id), 0, None, version_of(channel), peer.listener, peer.host, *nothing


def disconnected(at_ms: int, client_id: bytes, channel: Channel) -> Event:
    duration_ms = round((channel.router.host.now_s - channel.connected_s) * 1000)
    traffic = channel.bytes_in, channel.bytes_out, channel.messages_in, channel.messages_out
    why = int(channel.close_reason), ended_by(channel), version_of(channel)
    return at_ms, DISCONNECTED, text_of(client_id), *why, channel.listener_name(), None, max(duration_ms, 0), *traffic


def taken_over(at_ms: int, client_id: bytes, channel: Channel) -> Event:
    nothing = (None,) * 6
    listener = channel.listener_name()
    return at_ms, TAKEN_OVER, text_of(client_id), None, None, version_of(channel), listener, *nothing


def refused(at_ms: int, channel: Channel, reason: int) -> Event:
    peer = channel.peer()
    return at_ms, text_of(channel.client_id()), int(reason), version_of(channel), peer.listener, peer.host


def ended_by(channel: Channel) -> str:
    if channel.clean_end:
        return CLIENT
    return NETWORK if channel.close_reason in _LOST else SERVER


def version_of(channel: Channel) -> int:
    return _V31 if channel.is_mqtt31 else channel.protocol_version


def dropped(counters: Counters) -> int:
    """Messages that weren't delivered, for whatever reason."""
    return sum(getattr(counters, field) for field in FROM_COUNTERS if field.startswith("dropped_"))
