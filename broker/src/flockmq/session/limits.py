"""The limits of a zone of clients, with EMQX's names; bytes and seconds. Defaults are those of `[mqtt]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flockmq.bounds import MQUEUE_MAX_BYTES
from flockmq.config.schema import MqttSettings

DEFAULT: Final = "default"
"""The zone of clients without another one."""
AUTO: Final = "auto"
TO_USER: Final = "user"
"""Values of `client_id_binding`, besides "none"."""
_DEFAULTS: Final = MqttSettings()


@dataclass(eq=False)
class Limits:
    """One object per zone, filled from `[mqtt]` and `[zones.NAME]`. Each connection has the limits of its listener's
    zone.
    """

    name: str = DEFAULT
    max_packet_size: int = _DEFAULTS.max_packet_size
    max_connect_packet_size: int = _DEFAULTS.max_connect_packet_size
    max_clientid_len: int = _DEFAULTS.max_clientid_len
    max_topic_levels: int = _DEFAULTS.max_topic_levels
    max_qos_allowed: int = _DEFAULTS.max_qos_allowed
    max_topic_alias: int = _DEFAULTS.max_topic_alias
    retain_available: bool = _DEFAULTS.retain_available
    wildcard_subscription: bool = _DEFAULTS.wildcard_subscription
    shared_subscription: bool = _DEFAULTS.shared_subscription
    exclusive_subscription: bool = _DEFAULTS.exclusive_subscription
    max_inflight: int = _DEFAULTS.max_inflight
    max_mqueue_len: int = _DEFAULTS.max_mqueue_len
    mqueue_store_qos0: bool = _DEFAULTS.mqueue_store_qos0
    max_awaiting_rel: int = _DEFAULTS.max_awaiting_rel
    await_rel_timeout: float = _DEFAULTS.await_rel_timeout
    session_expiry_interval: int = _DEFAULTS.session_expiry_interval
    max_session_expiry_interval: int = _DEFAULTS.max_session_expiry_interval
    keepalive_multiplier: float = _DEFAULTS.keepalive_multiplier
    server_keepalive: int = _DEFAULTS.server_keepalive
    idle_timeout: float = _DEFAULTS.idle_timeout
    max_subscriptions: int = _DEFAULTS.max_subscriptions
    max_shared_subscriptions: int = _DEFAULTS.max_shared_subscriptions
    max_wildcard_shapes: int = _DEFAULTS.max_wildcard_shapes
    response_information: str = _DEFAULTS.response_information
    server_reference: str = _DEFAULTS.server_reference
    client_id_binding: str = _DEFAULTS.client_id_binding
    strict_mode: bool = _DEFAULTS.strict_mode

    def __post_init__(self) -> None:
        self.max_connect_packet_size = min(self.max_connect_packet_size, self.max_packet_size)

    def binds_client_ids(self, identifies: bool) -> bool:
        """True if client ids are bound to users. `identifies`: authentication is configured."""
        return self.client_id_binding == TO_USER or (self.client_id_binding == AUTO and identifies)

    # How many messages and bytes may wait for one client.

    def is_full(self, waiting: int, waiting_bytes: int) -> bool:
        """True if the queue is full."""
        return waiting >= self.max_mqueue_len or waiting_bytes > MQUEUE_MAX_BYTES

    def is_congested(self, waiting: int, waiting_bytes: int) -> bool:
        """True if publishers to the client should pause."""
        return waiting * 2 > self.max_mqueue_len or waiting_bytes * 2 > MQUEUE_MAX_BYTES

    def is_mostly_free(self, waiting: int, waiting_bytes: int) -> bool:
        """True if most of the queue is free for published messages."""
        return waiting * 4 < self.max_mqueue_len and waiting_bytes <= MQUEUE_MAX_BYTES // 4
