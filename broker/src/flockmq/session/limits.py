"""The limits of one zone of clients, by EMQX's names and defaults where it has them: bytes and seconds."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import TOPIC_MAX_LEVELS

DEFAULT: Final = "default"
"""The zone of whoever has no other."""
AUTO: Final = "auto"
TO_USER: Final = "user"
"""What a client id may be bound to; "none" besides."""


@mypyc_attr(acyclic=True)
class Limits:
    """One object a zone, filled from `[mqtt]` and `[zones.NAME]`; every connection has its listener's."""

    __slots__ = (
        "await_rel_timeout",
        "client_id_binding",
        "exclusive_subscription",
        "idle_timeout",
        "keepalive_multiplier",
        "max_awaiting_rel",
        "max_clientid_len",
        "max_connect_packet_size",
        "max_connections",
        "max_inflight",
        "max_mqueue_len",
        "max_packet_size",
        "max_qos_allowed",
        "max_session_expiry_interval",
        "max_subscriptions",
        "max_topic_alias",
        "max_topic_levels",
        "max_wildcard_shapes",
        "mqueue_store_qos0",
        "name",
        "response_information",
        "retain_available",
        "server_keepalive",
        "server_reference",
        "session_expiry_interval",
        "shared_subscription",
        "strict_mode",
        "wildcard_subscription",
    )

    def __init__(
        self,
        name: str = DEFAULT,
        *,
        max_packet_size: int = 1024 * 1024,
        max_connect_packet_size: int = 64 * 1024,
        max_clientid_len: int = 1024,
        max_topic_levels: int = TOPIC_MAX_LEVELS,
        max_qos_allowed: int = 2,
        max_topic_alias: int = 32,
        retain_available: bool = True,
        wildcard_subscription: bool = True,
        shared_subscription: bool = True,
        exclusive_subscription: bool = True,
        max_inflight: int = 32,
        max_mqueue_len: int = 1000,
        mqueue_store_qos0: bool = True,
        max_awaiting_rel: int = 100,
        await_rel_timeout: float = 300.0,
        session_expiry_interval: int = 7200,
        max_session_expiry_interval: int = 604_800,
        keepalive_multiplier: float = 1.5,
        server_keepalive: int = 0,
        idle_timeout: float = 15.0,
        max_subscriptions: int = 100_000,
        max_wildcard_shapes: int = 16,
        response_information: str = "",
        server_reference: str = "",
        client_id_binding: str = AUTO,
        strict_mode: bool = False,
        max_connections: int = 1_000_000,
    ) -> None:
        self.name = name
        self.max_packet_size = max_packet_size
        self.max_connect_packet_size = min(max_connect_packet_size, max_packet_size)
        self.max_clientid_len = max_clientid_len
        self.max_topic_levels = max_topic_levels
        self.max_qos_allowed = max_qos_allowed
        self.max_topic_alias = max_topic_alias
        self.retain_available = retain_available
        self.wildcard_subscription = wildcard_subscription
        self.shared_subscription = shared_subscription
        self.exclusive_subscription = exclusive_subscription
        self.max_inflight = max_inflight
        self.max_mqueue_len = max_mqueue_len
        self.mqueue_store_qos0 = mqueue_store_qos0
        self.max_awaiting_rel = max_awaiting_rel
        self.await_rel_timeout = await_rel_timeout
        self.session_expiry_interval = session_expiry_interval
        self.max_session_expiry_interval = max_session_expiry_interval
        self.keepalive_multiplier = keepalive_multiplier
        self.server_keepalive = server_keepalive
        self.idle_timeout = idle_timeout
        self.max_subscriptions = max_subscriptions
        self.max_wildcard_shapes = max_wildcard_shapes
        self.response_information = response_information
        self.server_reference = server_reference
        self.client_id_binding = client_id_binding
        self.strict_mode = strict_mode
        self.max_connections = max_connections

    def binds_client_ids(self, identifies: bool) -> bool:
        """To users; `identifies`: clients are asked who they are."""
        return self.client_id_binding == TO_USER or (self.client_id_binding == AUTO and identifies)
