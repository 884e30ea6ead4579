"""The sources of configuration: file, environment, command line. Each gives a list of `Setting`s.

A key is named by a dotted path: `listeners.tcp.default.bind` is `bind` below `[listeners.tcp.default]` in the TOML
file, and `FLOCKMQ_LISTENERS__TCP__DEFAULT__BIND` in the environment. A list of tables is one value; in the environment
it is JSON.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

import msgspec

from flockmq.bounds import CONFIG_MAX_BYTES
from flockmq.config.conversion import field_types, is_struct, nearest
from flockmq.config.schema import Config
from flockmq.config.values import Secret, split_password
from flockmq.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "FLOCKMQ_"

NOT_SETTINGS: Final = re.compile(
    r"FLOCKMQ_(MYPYC|API_KEY|(.*_)?SERVICE_(HOST|PORT.*)|(.*_)?PORT(_[0-9]+_(TCP|UDP).*)?)"
)
"""Variables with our prefix that aren't settings: those that Kubernetes adds for a Service whose name starts with
`flockmq` (`FLOCKMQ_SERVICE_HOST`, `FLOCKMQ_PORT_1883_TCP`, …), the build option, and the API key for `ctl`."""

NAME: Final = re.compile(r"(?!.*__)[a-z0-9][a-z0-9_-]{0,30}[a-z0-9]|[a-z0-9]")
"""Valid names of listeners and zones. They can also be written in a name of an environment variable."""

NOT_HERE: Final = "must not stand in this file"
SECRET_HEADERS: Final = frozenset(
    ("authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token")
)


class Setting(NamedTuple):
    """One value from one source."""

    path: str
    value: object
    source: str
    """Where the user set it, for error texts: `flockmq.toml: log.level`, `--listen`, `FLOCKMQ_ROLE`."""
    is_text: bool = True
    """True if the source has only texts ("32", "true"). All have, except the file."""


# --- keys -----------------------------------------------------------------------------------------------------------


def named(kind: object) -> Any:
    """The struct of a section with user-chosen names, such as `listeners.tcp.NAME`; None for any other type."""
    of = get_args(kind)
    return of[1] if get_origin(kind) is dict and is_struct(of[1]) else None


def kind_of(path: str) -> Any:
    """The type at a dotted path; None if there is no such section or key."""
    kind: Any = Config
    for name in path.split("."):
        below = field_types(kind).get(name) if is_struct(kind) else None
        kind = named(kind) if NAME.fullmatch(name) and not is_struct(kind) else below
    return kind


def is_section(kind: object) -> bool:
    return is_struct(kind) or named(kind) is not None


def every_key(kind: Any = Config, prefix: str = "") -> Iterator[str]:
    """Yield every key. NAME stands for a user-chosen name."""
    if is_struct(kind):
        for name, of in field_types(kind).items():
            yield from every_key(of, f"{prefix}.{name}" if prefix else name)
    elif (struct := named(kind)) is not None:
        yield from every_key(struct, f"{prefix}.NAME")
    else:
        yield prefix


def unknown(path: str, source: str, shown: Callable[[str], str] = str) -> ConfigError:
    """The error for an unknown path. It suggests the most similar known name at the first unknown part."""
    names = path.split(".")
    kind: Any = Config
    for at, name in enumerate(names):
        if is_struct(kind):
            kinds = field_types(kind)
            if name not in kinds:
                before, after = names[:at], names[at + 1 :]
                mend = nearest(name, kinds, lambda near: shown(".".join([*before, near, *after])))  # noqa: B023
                return ConfigError(f"{source}: unknown key; {mend}")
            kind = kinds[name]
        elif (one := named(kind)) is not None:
            if not NAME.fullmatch(name):
                return ConfigError(f"{source}: {name!r} can't be a name; it takes 1 to 32 of a-z 0-9 _ -")
            kind = one
        else:
            return ConfigError(f"{source}: unknown key; {shown('.'.join(names[:at]))} is a value, not a section")
    return ConfigError(f"{source}: is a section, not a value; say one of its keys")


# --- file and environment -------------------------------------------------------------------------------------------


def read_file(file: Path) -> list[Setting]:
    """The settings of a TOML file, in the file's order. Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            text = opened.read(CONFIG_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}; name a readable TOML file with --config") from None
    if len(text) > CONFIG_MAX_BYTES:
        raise ConfigError(f"{file}: larger than {CONFIG_MAX_BYTES} bytes; is it the right file?")
    try:
        document = tomllib.loads(text.decode())
    except ValueError as error:  # not TOML, not UTF-8, or a number with thousands of digits
        raise ConfigError(f"{file}: not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{file}: nested too deep; is it the right file?") from None
    return list(_flatten(document, "", str(file)))


def _flatten(table: Mapping[str, object], prefix: str, file: str) -> Iterable[Setting]:
    for key, value in table.items():
        path = f"{prefix}{key}"
        source = f"{file}: {path}"
        kind = None if "." in key else kind_of(path)
        if kind is None:
            raise unknown(path, source)
        if not is_section(kind):
            yield Setting(path, value, source, is_text=False)
        elif isinstance(value, dict):
            yield from _flatten(value, f"{path}.", file)
        elif prefix and named(kind_of(prefix[:-1])) is not None:
            raise ConfigError(f"{source}: is a section, not a value; name one, as in [{prefix}default], above its keys")
        else:
            raise ConfigError(f"{source}: is a section, not a value; write [{path}] above its keys")


def refuse_secrets(value: object, setting: Setting) -> None:
    """Refuse a secret in the configuration file, because that file is shown and copied. Raises ConfigError."""
    key = setting.path.rpartition(".")[2]
    environment = f", or say {environment_name(setting.path)}"
    if isinstance(value, Secret):
        raise ConfigError(f"{setting.source}: a secret {NOT_HERE}; name a file of its own in {key}_file{environment}")
    if _has_password(value):
        why = f"holds a password, which {NOT_HERE}; name a file of its own in password_file{environment}"
        raise ConfigError(f"{setting.source}: {why}")
    _refuse_within(value, setting.source, environment)


def _refuse_within(value: object, where: str, environment: str) -> None:
    """Check the structs of a list for secrets."""
    if isinstance(value, tuple):
        for at, item in enumerate(value):
            _refuse_within(item, f"{where}[{at}]", environment)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            found = getattr(value, name)
            if isinstance(found, Secret) and getattr(value, f"{name}_file") is None:
                beside = ", nor in url" if name == "password" else ""
                raise ConfigError(f"{where}.{name}: a secret {NOT_HERE}{beside}; name a file of its own in {name}_file")
            if _has_password(found):
                can = "authorization_file" in value.__struct_fields__
                mend = "name a file of its own in authorization_file" if can else f"use one without{environment}"
                raise ConfigError(f"{where}.{name}: holds a password, which {NOT_HERE}; {mend}")
            if name == "headers":
                _refuse_headers(found, f"{where}.{name}", environment)


def _refuse_headers(headers: Mapping[str, str], where: str, environment: str) -> None:
    """Refuse headers that hold a secret of the broker. A header with a client's value (`${…}`) isn't secret."""
    for name, text in headers.items():
        if name.lower() in SECRET_HEADERS and "${" not in text:
            key = "authorization_file" if name.lower() == "authorization" else "headers_file"
            mend = f"name a file of its own in {key}{environment}"
            raise ConfigError(f"{where}.{name}: a secret {NOT_HERE}; {mend}")


def _has_password(value: object) -> bool:
    return isinstance(value, str) and "://" in value and split_password(value)[1] is not None


def read_environment(environment: Mapping[str, str]) -> list[Setting]:
    """The settings in the environment: `FLOCKMQ_LOG__LEVEL` is `log.level`. Raises ConfigError."""
    settings = []
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and not NOT_SETTINGS.fullmatch(name):
            path = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            kind = kind_of(path)
            if kind is None or is_section(kind):
                raise unknown(path, name, environment_name)
            settings.append(Setting(path, environment[name], name))
    return settings


def environment_name(path: str) -> str:
    return ENVIRONMENT_PREFIX + path.upper().replace(".", "__")
