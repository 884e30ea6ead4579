"""The counters of a node since its start: plain integers that the hot path adds to and a scrape reads."""

from __future__ import annotations


class Counters:
    """Monotonic counters, except `connections`, `sessions_away` and `subscriptions`, which are gauges.

    `packets_received` is by packet type; it counts only those PUBLISHes that don't take the fast path.
    """

    bytes_received: int = 0
    bytes_sent: int = 0
    connections: int = 0
    connects: int = 0
    connects_refused: int = 0
    disconnects: int = 0
    dropped_away: int = 0
    dropped_expired: int = 0
    dropped_left: int = 0
    dropped_no_member: int = 0
    dropped_no_room: int = 0
    dropped_queue_full: int = 0
    dropped_revoked: int = 0
    dropped_slow_reader: int = 0
    dropped_too_large: int = 0
    evictions: int = 0
    messages_arrived: int = 0
    messages_forwarded: int = 0
    messages_received: int = 0
    messages_received_qos1: int = 0
    messages_received_qos2: int = 0
    messages_sent: int = 0
    messages_sent_qos1: int = 0
    messages_sent_qos2: int = 0
    protocol_errors: int = 0
    sessions_away: int = 0
    sessions_expired: int = 0
    sessions_resumed: int = 0
    shared_redispatched: int = 0
    slow_readers: int = 0
    subscriptions: int = 0
    subscriptions_revoked: int = 0
    takeovers: int = 0
    throttled: int = 0

    def __init__(self) -> None:
        self.packets_received: list[int] = [0] * 16
