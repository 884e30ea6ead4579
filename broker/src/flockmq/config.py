"""The configuration of one node: its shape, its defaults, and how the layers are put together.

Precedence: command line > environment > file > defaults. A layer is a list of `Setting`s: a dotted path, a value and
where it was said, so that every refusal names its place. The path `mqtt.listen` is `listen` below `[mqtt]` in the
TOML file and `FLOCKMQ_MQTT__LISTEN` in the environment.

What always holds: a `Config` is complete and checked; addresses are parsed; secrets were read from their files and
are never shown by `repr`, in a log or in an error; a URL kept here holds no password.
"""

from __future__ import annotations

import difflib
import os
import re
import socket
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Meta

from flockmq.bounds import CONFIG_MAX_BYTES, PACKET_MAX_BYTES, SECRET_MAX_BYTES
from flockmq.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "FLOCKMQ_"

NOT_SETTINGS: Final = re.compile(r"FLOCKMQ_(MYPYC|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_[0-9]+_(TCP|UDP).*)?)")
"""Variables with our prefix that say nothing to a node: what Kubernetes adds for a Service whose name starts with
`flockmq` (`FLOCKMQ_SERVICE_HOST`, `FLOCKMQ_PORT_1883_TCP`, …), and the switch of the build."""

Role = Literal["core", "replicant", "single"]


class Address(NamedTuple):
    """Where something listens or is reached. Port 0 on a listener: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Secret:
    """A value that is never shown: only `reveal()` gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret(…)"


Bytes = Annotated[int, Meta(ge=1, le=256 * 1024 * 1024)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
PacketIds = Annotated[int, Meta(ge=1, le=65_535)]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    """Unique in the cluster; default: the host's name."""
    host: str = "127.0.0.1"
    """The address at which the other nodes reach this one."""
    data_dir: Path | None = None
    """Cores: snapshots; single: also the embedded Valkey's files. Default: below the user's state folder."""


class Mqtt(msgspec.Struct, frozen=True, kw_only=True):
    listen: Address | None = Address("127.0.0.1", 1883)
    """None ("" in the file): no MQTT listener, as on cores."""
    allow_anonymous: bool = True
    max_packet_size_bytes: Annotated[int, Meta(ge=64, le=PACKET_MAX_BYTES)] = 1024 * 1024
    max_inflight: PacketIds = 32
    max_mqueue_len: Count = 1_000
    max_awaiting_rel: PacketIds = 100
    keepalive_multiplier: Annotated[float, Meta(ge=1.0, le=10.0)] = 1.5
    idle_timeout_s: Annotated[float, Meta(ge=1.0, le=3600.0)] = 15.0
    """How long a connection may take until its CONNECT is complete."""
    max_connections: Count = 1_000_000


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    listen: Address = Address("127.0.0.1", 4370)
    seeds: tuple[Address, ...] = ()
    """Cores to ask first; a DNS name may stand for many."""
    key: Secret | None = None
    """What links authenticate with; every node of a cluster has the same."""
    key_file: Path | None = None


class Redis(msgspec.Struct, frozen=True, kw_only=True):
    url: str | None = None
    """redis://, rediss:// or unix://; None: the embedded Valkey (role `single` only)."""
    password: Secret | None = None
    password_file: Path | None = None
    connect_timeout_s: Annotated[float, Meta(ge=0.0, le=3600.0)] = 10.0
    """How long a starting node waits for Redis before it gives up with exit code 3."""


class Management(msgspec.Struct, frozen=True, kw_only=True):
    listen: Address = Address("127.0.0.1", 18083)


class Log(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    role: Role = "single"
    node: Node = Node()
    mqtt: Mqtt = Mqtt()
    cluster: Cluster = Cluster()
    redis: Redis = Redis()
    management: Management = Management()
    log: Log = Log()


class Setting(NamedTuple):
    """One value of one layer."""

    path: str
    value: object
    source: str
    """Where it was said, as the user would look for it: `flockmq.toml: mqtt.listen`, `--listen`, `FLOCKMQ_ROLE`."""
    is_text: bool = True
    """Whether the layer knows nothing but text ("32", "true"), as all do but the file."""


def load(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, command_line: Iterable[Setting] = ()
) -> Config:
    """Put the layers together and check the whole. Raises ConfigError: one line that names place, value and mend."""
    layers = (
        *(read_file(file) if file else ()),
        *read_environment(os.environ if environment is None else environment),
        *command_line,
    )
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for setting in layers:
        values[setting.path] = _convert(setting)
        sources[setting.path] = setting.source
    _read_secrets(values, sources)
    _split_redis_password(values)
    config = _build(Config, values)
    config = _fill_defaults(config)
    _check_whole(config)
    return config


# --- layers ---------------------------------------------------------------------------------------------------------


def read_file(file: Path) -> list[Setting]:
    """The settings of a TOML file, in its order."""
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}; name a readable TOML file with --config") from None
    if len(text) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{file}: larger than {CONFIG_MAX_BYTES} bytes; is it the right file?")
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    return list(_flatten(document, "", str(file)))


def _flatten(table: Mapping[str, object], prefix: str, file: str) -> Iterable[Setting]:
    for key, value in table.items():
        path, source = f"{prefix}{key}", f"{file}: {prefix}{key}"
        if path in SECTIONS:
            if not isinstance(value, dict):
                raise ConfigError(f"{source}: is a section, not a value; write [{path}] above its keys")
            yield from _flatten(value, f"{path}.", file)
        else:
            _require_known(path, source, shown=str)
            yield Setting(path, value, source, is_text=False)


def read_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The settings among the variables: `FLOCKMQ_MQTT__LISTEN` is `mqtt.listen`."""
    settings = []
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and not NOT_SETTINGS.fullmatch(name):
            path = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _require_known(path, name, shown=environment_name)
            settings.append(Setting(path, environment[name], name))
    return settings


def environment_name(path: str) -> str:
    return ENVIRONMENT_PREFIX + path.upper().replace(".", "__")


def _require_known(path: str, source: str, *, shown: Callable[[str], str]) -> None:
    if path in FIELDS:
        return
    near = difflib.get_close_matches(path, (*FIELDS, *SECTIONS), n=1, cutoff=0.5)
    mend = f"did you mean {shown(near[0])}?" if near else f"known: {', '.join(shown(p) for p in FIELDS)}"
    raise ConfigError(f"{source}: unknown key; {mend}")


# --- values ---------------------------------------------------------------------------------------------------------


ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]\s]+)):([0-9]{1,5})")


def parse_address(text: object) -> Address:
    """`HOST:PORT`, IPv6 in brackets. Raises ValueError."""
    match = ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if match is None or int(match[3]) > 65_535:
        raise ValueError("isn't HOST:PORT; for example 127.0.0.1:1883 or [::1]:1883")
    return Address(match[1] or match[2], int(match[3]))


def _optional_address(text: object) -> Address | None:
    return None if text == "" else parse_address(text)


def _addresses(value: object) -> tuple[Address, ...]:
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise ValueError('isn\'t a list of HOST:PORT; for example ["core-0:4370", "core-1:4370"]')
    return tuple(map(parse_address, parts))


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("isn't the path of a file or folder")
    return Path(value).expanduser()


def _secret(value: object) -> Secret:
    if not isinstance(value, str) or not value:
        raise ValueError("isn't a text with at least one character")
    return Secret(value)


def _redis_url(value: object) -> str:
    parts = urlsplit(value) if isinstance(value, str) else None
    try:
        usable = parts is not None and (
            (parts.scheme in ("redis", "rediss") and parts.hostname and parts.port != 0)
            or (parts.scheme == "unix" and parts.path)
        )
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("isn't a Redis URL; for example redis://127.0.0.1:6379/0 or unix:///run/valkey.sock")
    assert isinstance(value, str)
    return value


PARSERS: Final[Mapping[object, Callable[[object], object]]] = {
    Address: parse_address,
    Address | None: _optional_address,
    tuple[Address, ...]: _addresses,
    Path | None: _path,
    Secret | None: _secret,
}
"""Types that need more than msgspec's own conversion."""


def _convert(setting: Setting) -> object:
    field_type = FIELDS[setting.path]
    parse = _redis_url if setting.path == "redis.url" else PARSERS.get(field_type)
    shown = "" if setting.path in HIDDEN else f"{setting.value!r} "
    try:
        if parse is not None:
            return parse(setting.value)
        return msgspec.convert(setting.value, field_type, strict=not setting.is_text)
    except msgspec.ValidationError:
        raise ConfigError(f"{setting.source}: {shown}must be {describe(field_type)}") from None
    except ValueError as error:
        raise ConfigError(f"{setting.source}: {shown}{error}") from None


PLAIN_TYPES: Final[Mapping[object, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
}


def describe(field_type: object) -> str:
    """A type as a user is told of it: `Literal["a", "b"]` is "a or b"."""
    if get_origin(field_type) is Literal:
        return " or ".join(get_args(field_type))
    if get_origin(field_type) is Annotated:
        base, bounds = get_args(field_type)
        return f"{describe(base)} from {bounds.ge:g} to {bounds.le}"
    return PLAIN_TYPES[field_type]


# --- the whole ------------------------------------------------------------------------------------------------------


def _read_secrets(values: dict[str, object], sources: Mapping[str, str]) -> None:
    """Fill `key` and `password` from their files, unless a layer said them directly."""
    for path in ("cluster.key", "redis.password"):
        file = values.get(f"{path}_file")
        if not isinstance(file, Path) or path in values:
            continue
        source = sources[f"{path}_file"]
        try:
            with file.open("rb") as opened:
                text = opened.read(SECRET_MAX_BYTES + 1).decode().strip()
        except OSError as error:
            raise ConfigError(f"{source}: {str(file)!r} can't be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{source}: {str(file)!r} isn't UTF-8 text") from None
        if not 0 < len(text) <= SECRET_MAX_BYTES:
            raise ConfigError(f"{source}: {str(file)!r} must hold 1 to {SECRET_MAX_BYTES} characters")
        values[path] = Secret(text)


def _split_redis_password(values: dict[str, object]) -> None:
    """Move a password that stands in the URL to where it is hidden; a password said on its own wins."""
    url = values.get("redis.url")
    if not isinstance(url, str):
        return
    parts = urlsplit(url)
    if parts.password is None:
        return
    values.setdefault("redis.password", Secret(unquote(parts.password)))
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    values["redis.url"] = urlunsplit(parts._replace(netloc=f"{name}@{host}" if name else host))


S = TypeVar("S", bound=msgspec.Struct)


def _build(struct: type[S], values: Mapping[str, object], prefix: str = "") -> S:
    given: dict[str, object] = {}
    for name, field_type in get_type_hints(struct, include_extras=True).items():
        path = prefix + name
        if path in SECTIONS:
            given[name] = _build(field_type, values, f"{path}.")
        elif path in values:
            given[name] = values[path]
    return struct(**given)


def _fill_defaults(config: Config) -> Config:
    name = config.node.name or socket.gethostname()
    data_dir = config.node.data_dir or _state_dir() / name
    return msgspec.structs.replace(config, node=msgspec.structs.replace(config.node, name=name, data_dir=data_dir))


def _state_dir() -> Path:
    """$XDG_STATE_HOME/flockmq, ~/.local/state/flockmq, or a folder of this user's below the temporary one."""
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "flockmq"
    home = Path("~").expanduser()
    if os.access(home, os.W_OK):
        return home / ".local" / "state" / "flockmq"
    return Path(tempfile.gettempdir()) / f"flockmq-{os.getuid()}"


def _check_whole(config: Config) -> None:
    """What only several keys together can get wrong."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", config.node.name):
        raise ConfigError(
            f"node.name: {config.node.name!r} must be 1 to 253 of A-Z a-z 0-9 . _ - and start with a letter or digit"
        )
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


def _schema(struct: type[msgspec.Struct], prefix: str = "") -> Iterable[tuple[str, object]]:
    for name, field_type in get_type_hints(struct, include_extras=True).items():
        yield prefix + name, field_type
        if isinstance(field_type, type) and issubclass(field_type, msgspec.Struct):
            yield from _schema(field_type, f"{prefix}{name}.")


_ALL: Final = dict(_schema(Config))
SECTIONS: Final = frozenset(p for p, t in _ALL.items() if isinstance(t, type) and issubclass(t, msgspec.Struct))
FIELDS: Final[Mapping[str, object]] = {path: t for path, t in _ALL.items() if path not in SECTIONS}
"""Every key: dotted path → type."""
HIDDEN: Final = frozenset(p for p, t in FIELDS.items() if t == Secret | None) | {"redis.url"}
"""Values that no error shows."""
