"""The limits of a zone of clients, with EMQX's names; bytes and seconds. Defaults are those of `[mqtt]`."""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.config.schema import MqttSettings, NodeSettings

DEFAULT: Final = "default"
"""The zone of clients without another one."""
AUTO: Final = "auto"
TO_USER: Final = "user"
"""Values of `client_id_binding`, besides "none"."""
_DEFAULTS: Final = MqttSettings()


@mypyc_attr(acyclic=True)
class Limits:
    """One object per zone, filled from `[mqtt]` and `[zones.NAME]`. Each connection has the limits of its listener's
    zone.
    """

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
        max_packet_size: int = _DEFAULTS.max_packet_size,
        max_connect_packet_size: int = _DEFAULTS.max_connect_packet_size,
        max_clientid_len: int = _DEFAULTS.max_clientid_len,
        max_topic_levels: int = _DEFAULTS.max_topic_levels,
        max_qos_allowed: int = _DEFAULTS.max_qos_allowed,
        max_topic_alias: int = _DEFAULTS.max_topic_alias,
        retain_available: bool = _DEFAULTS.retain_available,
        wildcard_subscription: bool = _DEFAULTS.wildcard_subscription,
        shared_subscription: bool = _DEFAULTS.shared_subscription,
        exclusive_subscription: bool = _DEFAULTS.exclusive_subscription,
        max_inflight: int = _DEFAULTS.max_inflight,
        max_mqueue_len: int = _DEFAULTS.max_mqueue_len,
        mqueue_store_qos0: bool = _DEFAULTS.mqueue_store_qos0,
        max_awaiting_rel: int = _DEFAULTS.max_awaiting_rel,
        await_rel_timeout: float = _DEFAULTS.await_rel_timeout,
        session_expiry_interval: int = _DEFAULTS.session_expiry_interval,
        max_session_expiry_interval: int = _DEFAULTS.max_session_expiry_interval,
        keepalive_multiplier: float = _DEFAULTS.keepalive_multiplier,
        server_keepalive: int = _DEFAULTS.server_keepalive,
        idle_timeout: float = _DEFAULTS.idle_timeout,
        max_subscriptions: int = _DEFAULTS.max_subscriptions,
        max_wildcard_shapes: int = _DEFAULTS.max_wildcard_shapes,
        response_information: str = _DEFAULTS.response_information,
        server_reference: str = _DEFAULTS.server_reference,
        client_id_binding: str = _DEFAULTS.client_id_binding,
        strict_mode: bool = _DEFAULTS.strict_mode,
        max_connections: int = NodeSettings().max_connections,
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
        """True if client ids are bound to users. `identifies`: authentication is configured."""
        return self.client_id_binding == TO_USER or (self.client_id_binding == AUTO and identifies)
