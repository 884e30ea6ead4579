"""The counters of a node since its start: plain integers that the hot path adds to and a scrape reads."""

from __future__ import annotations

from mypy_extensions import i64


class Counters:
    """Monotonic counters, except `connections`, `sessions_away` and `subscriptions`, which are gauges.

    `packets_received` is by packet type, except PUBLISH.
    """

    bytes_received: i64 = 0
    bytes_sent: i64 = 0
    connections: i64 = 0
    connects: i64 = 0
    connects_refused: i64 = 0
    disconnects: i64 = 0
    dropped_away: i64 = 0
    dropped_expired: i64 = 0
    dropped_left: i64 = 0
    dropped_no_member: i64 = 0
    dropped_no_room: i64 = 0
    dropped_queue_full: i64 = 0
    dropped_revoked: i64 = 0
    dropped_slow_reader: i64 = 0
    dropped_too_large: i64 = 0
    evictions: i64 = 0
    messages_arrived: i64 = 0
    messages_forwarded: i64 = 0
    messages_received: i64 = 0
    messages_received_qos1: i64 = 0
    messages_received_qos2: i64 = 0
    messages_sent: i64 = 0
    messages_sent_qos1: i64 = 0
    messages_sent_qos2: i64 = 0
    protocol_errors: i64 = 0
    sessions_away: i64 = 0
    sessions_expired: i64 = 0
    sessions_resumed: i64 = 0
    shared_redispatched: i64 = 0
    slow_readers: i64 = 0
    subscriptions: i64 = 0
    subscriptions_revoked: i64 = 0
    takeovers: i64 = 0
    throttled: i64 = 0

    def __init__(self) -> None:
        self.packets_received: list[int] = [0] * 16
