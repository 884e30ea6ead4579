"""The counters of a node since its start: plain integers that the hot path adds to and a scrape reads."""

from __future__ import annotations


class Counters:
    """Monotonic counters, except `connections`, `sessions_away` and `subscriptions`, which are gauges.

    `packets_received` is by packet type; it counts only those PUBLISHes that don't take the fast path.
    """

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections",
        "connects",
        "connects_refused",
        "disconnects",
        "dropped_away",
        "dropped_expired",
        "dropped_left",
        "dropped_no_member",
        "dropped_no_room",
        "dropped_queue_full",
        "dropped_revoked",
        "dropped_slow_reader",
        "dropped_too_large",
        "evictions",
        "messages_arrived",
        "messages_forwarded",
        "messages_received",
        "messages_received_qos1",
        "messages_received_qos2",
        "messages_sent",
        "messages_sent_qos1",
        "messages_sent_qos2",
        "packets_received",
        "protocol_errors",
        "sessions_away",
        "sessions_expired",
        "sessions_resumed",
        "shared_redispatched",
        "slow_readers",
        "subscriptions",
        "subscriptions_revoked",
        "takeovers",
        "throttled",
    )

    def __init__(self) -> None:
        self.bytes_received: int = 0
        self.bytes_sent: int = 0
        self.connections: int = 0
        self.connects: int = 0
        self.connects_refused: int = 0
        self.disconnects: int = 0
        self.dropped_away: int = 0
        self.dropped_expired: int = 0
        self.dropped_left: int = 0
        self.dropped_no_member: int = 0
        self.dropped_no_room: int = 0
        self.dropped_queue_full: int = 0
        self.dropped_revoked: int = 0
        self.dropped_slow_reader: int = 0
        self.dropped_too_large: int = 0
        self.evictions: int = 0
        self.messages_arrived: int = 0
        self.messages_forwarded: int = 0
        self.messages_received: int = 0
        self.messages_received_qos1: int = 0
        self.messages_received_qos2: int = 0
        self.messages_sent: int = 0
        self.messages_sent_qos1: int = 0
        self.messages_sent_qos2: int = 0
        self.packets_received: list[int] = [0] * 16
        self.protocol_errors: int = 0
        self.sessions_away: int = 0
        self.sessions_expired: int = 0
        self.sessions_resumed: int = 0
        self.shared_redispatched: int = 0
        self.slow_readers: int = 0
        self.subscriptions: int = 0
        self.subscriptions_revoked: int = 0
        self.takeovers: int = 0
        self.throttled: int = 0
