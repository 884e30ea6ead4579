"""Merges all sources of configuration into a `Config`, and checks keys that depend on each other.

Precedence, key by key: command line > environment > file > defaults.

Invariants: a `Config` is complete and valid. Every zone that a listener names exists.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from flockmq.config.conversion import build, field_types, is_struct, nearest, read
from flockmq.config.listener_settings import named_listeners
from flockmq.config.schema import Config
from flockmq.config.sources import Setting, kind_of, named, read_environment, read_file, refuse_secrets
from flockmq.errors import ConfigError

DEFAULT_LISTENER: Final = "listeners.tcp.default.bind"


class Loaded(NamedTuple):
    config: Config
    zone_keys: frozenset[str]
    """The keys of zones that somebody set, such as `zones.inside.max_inflight`. Zones have all others from `[mqtt]`."""


def load(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, command_line: Iterable[Setting] = ()
) -> Config:
    """As `load_all`, without what only later changes need. Raises ConfigError."""
    return load_all(file=file, environment=environment, command_line=command_line).config


def load_all(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, command_line: Iterable[Setting] = ()
) -> Loaded:
    """Load and check the configuration. Raises ConfigError: one line with the key, the value and what to change."""
    layers = (
        *(read_file(file) if file else ()),
        *read_environment(os.environ if environment is None else environment),
        *command_line,
    )
    settings: dict[str, object] = {}
    sources: dict[str, str] = {}
    for setting in layers:
        value = read(setting.value, kind_of(setting.path), setting.source, is_text=setting.is_text)
        if not setting.is_text:
            refuse_secrets(value, setting)
        settings[setting.path] = value
        sources[setting.path] = setting.source
    if settings.get("role") == "core":
        settings.setdefault(DEFAULT_LISTENER, None)
    zone_keys = frozenset(path for path in settings if path.startswith("zones."))
    _inherit(settings, {path.split(".")[1] for path in zone_keys}, zone_keys)
    config = _fill_defaults(_section(Config, "", settings, sources, Config()))
    _check_whole(config, sources)
    return Loaded(config, zone_keys)


def changed(loaded: Loaded, changes: Mapping[str, object]) -> Config:
    """The configuration with other values: path → value of the path's type. Zones have those of `[mqtt]` as in a file.
    A zone or listener that the configuration doesn't have isn't made. Raises ConfigError."""
    config, settings = loaded.config, dict(changes)
    _inherit(settings, config.zones, loaded.zone_keys)
    known = {path: value for path, value in settings.items() if has_place(config, path)}
    result: Config = _section(Config, "", known, {}, config)
    return result


def has_place(config: Config, path: str) -> bool:
    """Whether the zone or the listener of this path exists; true for all other paths."""
    match path.split("."):
        case ["zones", name, *_]:
            return name in config.zones
        case ["listeners", type, name, *_]:
            return name in getattr(config.listeners, type)
    return True


def _inherit(settings: dict[str, object], zones: Collection[str], zone_keys: Collection[str]) -> None:
    """Keys that a zone doesn't set are those of `[mqtt]`."""
    for path, value in list(settings.items()):
        if path.startswith("mqtt."):
            for zone in zones:
                inherited = f"zones.{zone}.{path.removeprefix('mqtt.')}"
                if inherited not in zone_keys:
                    settings.setdefault(inherited, value)


def _section(struct: Any, path: str, settings: Mapping[str, object], sources: Mapping[str, str], base: Any) -> Any:
    """Make the struct at `path`. Keys that nobody set come from `base`, or, if that is None, are the type's
    defaults."""
    fields: dict[str, object] = {}
    for name, kind in field_types(struct).items():
        below = f"{path}.{name}" if path else name
        default = getattr(base, name, None)
        if is_struct(kind):
            fields[name] = _section(kind, below, settings, sources, default)
        elif (one := named(kind)) is not None:
            names = {
                key.removeprefix(f"{below}.").split(".")[0]: None for key in settings if key.startswith(f"{below}.")
            }
            bases: dict[str, Any] = default or {}
            fields[name] = {
                each: _section(one, f"{below}.{each}", settings, sources, bases.get(each)) for each in (bases | names)
            }
        elif below in settings:
            fields[name] = settings[below]
        elif base is not None:
            fields[name] = default
    return build(struct, fields, path, sources)


def _fill_defaults(config: Config) -> Config:
    name = config.node.name or socket.gethostname()
    data_dir = config.node.data_dir or _state_dir() / name
    return msgspec.structs.replace(config, node=msgspec.structs.replace(config.node, name=name, data_dir=data_dir))


def _state_dir() -> Path:
    """$XDG_STATE_HOME/flockmq, ~/.local/state/flockmq, or a folder of this user below the temporary folder."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "flockmq"
    home = Path("~").expanduser()
    if os.access(home, os.W_OK):
        return home / ".local" / "state" / "flockmq"
    return Path(tempfile.gettempdir()) / f"flockmq-{os.getuid()}"


def _check_whole(config: Config, sources: Mapping[str, str]) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", config.node.name):
        raise ConfigError(
            f"node.name: {config.node.name!r} must be 1 to 253 of A-Z a-z 0-9 . _ - and start with a letter or digit"
        )
    zones = ("default", *config.zones)
    for type, name, listener in named_listeners(config.listeners):
        if (zone := listener.zone) not in zones:
            path = f"listeners.{type}.{name}.zone"
            raise ConfigError(f"{sources.get(path, path)}: {zone!r} isn't a zone; {nearest(zone, zones)}")
    if config.role == "single":
        return
    if config.redis.url is None:
        raise ConfigError(
            f"redis.url: role {config.role} needs a Redis; say --redis redis://HOST:6379/0, or use role single"
        )
    if config.cluster.key is None:
        raise ConfigError(f"cluster.key_file: role {config.role} needs the cluster's key; name the file that holds it")
    if config.role == "replicant" and not config.cluster.seeds:
        raise ConfigError('cluster.seeds: role replicant needs a core to ask; for example ["core-0:4370"]')
