"""The settings that can be changed while nodes run: which they are, and the one JSON document that changes them.

    {"log": {"level": "debug"}, "quotas": {"max_sessions": 1000}}

The document is a merge patch (RFC 7396) to the configuration of each node, and counts more than its file, its
environment and its command line. All nodes have the same document. No I/O.

Invariants:
- Only keys of HOT are in the document. Everything else needs each node's configuration and a restart.
- A value is checked as in a file, with the same messages.
- No key of HOT is, or contains, a secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from flockmq.bounds import SETTINGS_DEPTH_MAX
from flockmq.config.conversion import describe, read
from flockmq.config.listener_settings import ListenersSettings, RatesSettings
from flockmq.config.load import has_place
from flockmq.config.schema import Config, QuotasSettings, RebalanceSettings
from flockmq.config.sources import is_section, kind_of, unknown
from flockmq.errors import ConfigError
from flockmq.quotas import INFINITE

Document = dict[str, Any]

AT_ONCE: Final = "at once"
AT_CONNECT: Final = "from the next connection on"
Since = Literal["at once", "from the next connection on"]

_OF_CONNECTIONS: Final = (
    *("max_clientid_len", "max_qos_allowed", "max_topic_alias", "retain_available", "wildcard_subscription"),
    *("shared_subscription", "exclusive_subscription", "max_inflight", "max_mqueue_len", "mqueue_store_qos0"),
    *("max_awaiting_rel", "await_rel_timeout", "session_expiry_interval", "max_session_expiry_interval"),
    *("keepalive_multiplier", "server_keepalive", "idle_timeout"),
    *("max_subscriptions", "max_shared_subscriptions", "max_wildcard_shapes"),
    *("response_information", "server_reference", "strict_mode"),
)
"""Keys of `[mqtt]` and of zones. CONNACK told them to a client, so they hold until its connection ends."""
_RATES: Final = RatesSettings.__struct_fields__
_OF_NODE: Final = (
    *("drain_timeout", "max_connections", "max_conn_rate", "max_connections_per_address", "max_unauthenticated_bytes"),
    *_RATES,
)
_OF_LISTENERS: Final = ("max_connections", "max_conn_rate", *_RATES)
"""A rate of a node or listener that had none holds for clients that connect from then on."""
HOT: Final[Mapping[str, Since]] = {
    "log.level": AT_ONCE,
    **{f"quotas.{key}": AT_ONCE for key in QuotasSettings.__struct_fields__},
    **{f"authentication.failed_logins.{key}": AT_ONCE for key in ("enable", "max_count", "max_wait")},
    **{f"authorization.{key}": AT_ONCE for key in ("no_match", "deny_action", "revoked_subscriptions")},
    **{f"flapping.{key}": AT_ONCE for key in ("enable", "max_count", "window_time", "ban_time")},
    **{f"node.{key}": AT_ONCE for key in _OF_NODE},
    **{
        f"listeners.{type}.NAME.{key}": AT_ONCE for type in ListenersSettings.__struct_fields__ for key in _OF_LISTENERS
    },
    "cluster.eviction_rate": AT_ONCE,
    **{f"cluster.rebalance.{key}": AT_ONCE for key in RebalanceSettings.__struct_fields__},
    **{f"{of}.{key}": AT_CONNECT for of in ("mqtt", "zones.NAME") for key in (*_OF_CONNECTIONS, *_RATES)},
}
"""Key → when a new value holds. NAME stands for the name of a zone or a listener."""


def is_hot(path: str) -> bool:
    return _with_name(path) in HOT


def _with_name(path: str) -> str:
    """The path with NAME in the place of a name."""
    match path.split("."):
        case ["zones", _, *rest]:
            return ".".join(["zones", "NAME", *rest])
        case ["listeners", type, _, *rest]:
            return ".".join(["listeners", type, "NAME", *rest])
    return path


# --- the document ---------------------------------------------------------------------------------------------------


def check_patch(patch: object) -> None:
    """Raises ConfigError if this isn't a merge patch of keys of HOT with valid values. None takes a change back."""
    if not isinstance(patch, dict):
        raise ConfigError('the body must be a JSON object of sections, for example {"log": {"level": "debug"}}')
    for path, value in leaves(patch):
        if value is not None:
            value_at(path, value)
        elif is_section(kind_of(path)):
            if not any(key.startswith(f"{_with_name(path)}.") for key in HOT):
                raise _cold(path)
        else:
            _check_path(path)


def merged(document: Document, patch: Mapping[str, Any]) -> Document:
    """Apply a merge patch. Objects without keys are left out."""
    result = dict(document)
    for key, value in patch.items():
        below, new = result.get(key), value
        if isinstance(value, dict):
            new = merged(below if isinstance(below, dict) else {}, value) or None
        if new is None:
            result.pop(key, None)
        else:
            result[key] = new
    return result


def difference(old: Document, new: Document) -> Document:
    """The merge patch that makes `new` of `old`."""
    patch: Document = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if below := difference(before, value):
                patch[key] = below
        elif value != before or type(value) is not type(before):
            patch[key] = value
    return patch


def leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path and the value of everything that isn't an object. Raises ConfigError."""
    if prefix.count(".") > SETTINGS_DEPTH_MAX:
        raise ConfigError(f"{prefix[:-1]}: nested too deep")
    for key, value in document.items():
        if "." in key:
            raise ConfigError(f"{prefix}{key}: a key has no dot; write a section as an object below its name")
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def value_at(path: str, value: object) -> object:
    """The value as the configuration has it. Raises ConfigError."""
    kind = _check_path(path)
    if isinstance(value, list):
        raise ConfigError(f"{path}: must be {describe(kind)}")
    return read(value, kind, path)


def _check_path(path: str) -> object:
    """The type of this key of HOT. Raises ConfigError."""
    kind = kind_of(path)
    if kind is None or is_section(kind):
        raise unknown(path, path)
    if not is_hot(path):
        raise _cold(path)
    return kind


def _cold(path: str) -> ConfigError:
    return ConfigError(
        f"{path}: can't be changed while nodes run; set it in the configuration of each node, and restart the nodes"
    )


# --- what holds -----------------------------------------------------------------------------------------------------


def shown(config: Config) -> Document:
    """The values of all keys of HOT, as JSON has them."""
    result: Document = {}
    for key in HOT:
        before, has_name, _ = key.partition(".NAME.")
        names: Iterable[str] = _found(config, before) if has_name else ("",)
        for path in (key.replace("NAME", name) for name in names):
            value = _found(config, path)
            *sections, last = path.split(".")
            below = result
            for section in sections:
                below = below.setdefault(section, {})
            below[last] = "infinity" if value == INFINITE else value
    return result


def _found(config: Config, path: str) -> Any:
    found: Any = config
    for name in path.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    return found


def split(config: Config, document: Document) -> tuple[dict[str, object], list[str]]:
    """The changes of a document that concern this node: path → value; and the paths of all others: of a zone that it
    doesn't have, or that a later release knows. Raises ConfigError if a value is invalid."""
    changes: dict[str, object] = {}
    unused: list[str] = []
    for path, value in leaves(document):
        if is_hot(path) and has_place(config, path):
            changes[path] = value_at(path, value)
        else:
            unused.append(path)
    return changes, unused
