"""The limits of one zone of clients, by EMQX's names where it has them; units last."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(acyclic=True)
class Limits:
    """Filled from the configuration's `[mqtt]`."""

    __slots__ = (
        "allow_anonymous",
        "idle_timeout_s",
        "keepalive_multiplier",
        "max_awaiting_rel",
        "max_connections",
        "max_inflight",
        "max_mqueue_len",
        "max_packet_bytes",
    )

    def __init__(
        self,
        max_packet_bytes: int = 1024 * 1024,
        max_inflight: int = 32,
        max_mqueue_len: int = 1000,
        max_awaiting_rel: int = 100,
        keepalive_multiplier: float = 1.5,
        idle_timeout_s: float = 15.0,
        max_connections: int = 1_000_000,
        allow_anonymous: bool = True,
    ) -> None:
        self.max_packet_bytes = max_packet_bytes
        self.max_inflight = max_inflight
        self.max_mqueue_len = max_mqueue_len
        self.max_awaiting_rel = max_awaiting_rel
        self.keepalive_multiplier = keepalive_multiplier
        self.idle_timeout_s = idle_timeout_s
        self.max_connections = max_connections
        self.allow_anonymous = allow_anonymous
