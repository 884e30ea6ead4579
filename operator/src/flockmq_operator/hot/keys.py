"""Which keys of a node's file nodes change while they run: those of the broker's config/hot.py. Pure."""

from flockmq_operator.manifest import Manifest

RATES = ("messages_rate", "messages_burst", "bytes_rate", "bytes_burst")
OF_CONNECTIONS = (
    *("max_clientid_len", "max_qos_allowed", "max_topic_alias", "retain_available", "wildcard_subscription"),
    *("shared_subscription", "exclusive_subscription", "max_inflight", "max_mqueue_len", "mqueue_store_qos0"),
    *("max_awaiting_rel", "await_rel_timeout", "session_expiry_interval", "max_session_expiry_interval"),
    *("keepalive_multiplier", "server_keepalive", "idle_timeout"),
    *("max_subscriptions", "max_shared_subscriptions", "max_wildcard_shapes"),
    *("response_information", "server_reference", "strict_mode"),
    *RATES,
)
KEYS: dict[str, tuple[str, ...]] = {
    "log": ("level",),
    "quotas": (
        *("max_sessions", "max_queued_bytes", "max_subscriptions", "max_subscription_bytes", "max_retained_bytes"),
    ),
    "authentication.failed_logins": ("enable", "max_count", "max_wait"),
    "authorization": ("no_match", "deny_action", "revoked_subscriptions"),
    "flapping": ("enable", "max_count", "window_time", "ban_time"),
    "node": (
        *("drain_timeout", "max_connections", "max_conn_rate", "max_connections_per_address"),
        *("max_unauthenticated_bytes", *RATES),
    ),
    "cluster": ("eviction_rate",),
    "cluster.rebalance": (
        *("enabled", "relative_threshold", "absolute_threshold", "wait"),
        *("connections_weight", "sessions_weight", "messages_weight"),
    ),
    "mqtt": OF_CONNECTIONS,
    "zones.NAME": OF_CONNECTIONS,
    **{
        f"listeners.{type}.NAME": ("max_connections", "max_conn_rate", *RATES)
        for type in ("tcp", "ssl", "ws", "wss", "unix")
    },
}
"""Section → its keys. NAME stands for the name of a zone or a listener."""


def is_hot(path: str) -> bool:
    section, _, key = path.rpartition(".")
    match section.split("."):
        case ["zones", _]:
            section = "zones.NAME"
        case ["listeners", type, _]:
            section = f"listeners.{type}.NAME"
    return key in KEYS.get(section, ())


def found_at(document: Manifest, path: str) -> object:
    """The value at a dotted path; None: there is none (TOML has no null)."""
    found: object = document
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def without(document: Manifest, paths: frozenset[str], prefix: str = "") -> Manifest:
    """The document without these keys, and without empty tables."""
    result: Manifest = {}
    for key, value in document.items():
        below = without(value, paths, f"{prefix}{key}.") if isinstance(value, dict) else value
        if f"{prefix}{key}" not in paths and below != {}:
            result[key] = below
    return result


def other_hot_keys(live: Manifest, wanted: Manifest, hot: frozenset[str]) -> frozenset[str]:
    """The keys of `hot` that `wanted` says otherwise; empty, if anything else differs."""
    if without(live, hot) != without(wanted, hot):
        return frozenset()
    there = {path: found_at(wanted, path) for path in hot}
    if any(value is None and found_at(live, path) is not None for path, value in there.items()):
        return frozenset()
    return frozenset(path for path, value in there.items() if value is not None and found_at(live, path) != value)


def is_there(document: Manifest, path: str) -> bool:
    return found_at(document, path) is not None
