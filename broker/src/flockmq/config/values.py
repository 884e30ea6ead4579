"""The types of configuration values, and their parsers.

Invariants: a parsed value is within its bounds. Secrets never appear in `repr`, logs or errors. In a struct with `url`
and `password`, the URL contains no password.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from msgspec import Meta

from flockmq.bounds import SECRET_MAX_BYTES
from flockmq.errors import ConfigError
from flockmq.quotas import INFINITE
from flockmq.redis.url import parse_redis_url


class Address(NamedTuple):
    """A host and a port. For a listener, port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Secret:
    """A value that is never shown; only `reveal()` returns it. A key `name` of this type may come with a
    `name_file`."""

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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Kind(Enum):
    """The unit or format of a number or text. The value is the description for error texts."""

    DURATION = 'in seconds, or for example "15s", "2h"'
    SIZE = 'in bytes, or for example "64KB", "1MB"'
    RATE = 'a second, or for example "100/s"'
    BYTE_RATE = 'bytes a second, or for example "1MB/s"'
    REDIS_URL = "redis://, rediss:// or unix://"
    ANY_REDIS_URL = "redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
    HTTP_URL = "http:// or https://"


Bytes = Annotated[int, Meta(ge=1, le=256 * 1024 * 1024), Kind.SIZE]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Seconds = Annotated[float, Meta(ge=0.0, le=86_400.0), Kind.DURATION]
Rate = Annotated[float, Meta(ge=0.0, le=1e9), Kind.RATE]
"""Things per second; 0 means no limit."""
ByteRate = Annotated[float, Meta(ge=0.0, le=1e12), Kind.BYTE_RATE]
RedisUrl = Annotated[str, Kind.REDIS_URL]
"""One server."""
AnyRedisUrl = Annotated[str, Kind.ANY_REDIS_URL]
"""One server, Sentinels, or a Redis Cluster."""
HttpUrl = Annotated[str, Kind.HTTP_URL]
Quota = Annotated[int, "quota"]
"""A count, or INFINITE."""
QuotaBytes = Annotated[int, Kind.SIZE, "quota"]

# --- parsing --------------------------------------------------------------------------------------------------------

_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]\s]+)):([0-9]{1,5})")
_UNITS: Final[Mapping[Kind, Mapping[str, float]]] = {
    Kind.DURATION: {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400},
    Kind.SIZE: {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3},
    Kind.RATE: {"/s": 1},
    Kind.BYTE_RATE: {"b/s": 1, "kb/s": 1024, "mb/s": 1024**2, "gb/s": 1024**3, "kb": 1024, "mb": 1024**2},
}
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-z/]*)")


def parse_address(text: object) -> Address:
    """`HOST:PORT`, IPv6 in brackets. Raises ValueError."""
    match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    host = "" if match is None else match[1] or match[2]
    if match is None or int(match[3]) > 65_535 or not _is_host(host):
        raise ValueError("isn't HOST:PORT; for example 127.0.0.1:1883 or [::1]:1883")
    return Address(host, int(match[3]))


def _is_host(text: str) -> bool:
    """Whether it is a valid host name: no space, no empty label, no label of more than 63 characters."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return " " not in text


def _optional_address(text: object) -> Address | None:
    return None if text == "" else parse_address(text)


def _path(value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("isn't the path of a file or folder")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError("begins with the home of a user who isn't known here") from None


def _optional_path(value: object) -> Path | None:
    return None if value == "" else _path(value)


def _secret(value: object) -> Secret:
    if not isinstance(value, str) or not value:
        raise ValueError("isn't a text with at least one character")
    return Secret(value)


def _network(value: object) -> Network:
    try:
        if isinstance(value, str):
            return ipaddress.ip_network(value)
    except ValueError:
        pass
    raise ValueError("isn't a network or an address; for example 10.0.0.0/8, 192.0.2.7 or 2001:db8::/32")


def amount(value: object, kind: Kind) -> object:
    """Convert a text with units ("1h30m", "1MB", "100/s") to a number. Anything else is returned unchanged."""
    if not isinstance(value, str):
        return value
    text, total, at = value.strip().lower(), 0.0, 0
    for match in _AMOUNT.finditer(text):
        unit = _UNITS[kind].get(match[2])
        if match.start() != at or unit is None:
            return value
        total, at = total + float(match[1]) * unit, match.end()
    if at == 0 or at != len(text):
        return value
    return int(total) if total.is_integer() else total


def _redis_url(value: object) -> str:
    parts = _url_parts(value)
    tcp = parts is not None and parts.scheme in ("redis", "rediss") and parts.hostname and parts.port != 0
    tcp = tcp and re.fullmatch("/?|/[0-9]{1,5}", parts.path)
    if not tcp and not (parts is not None and parts.scheme == "unix" and parts.path):
        raise ValueError("isn't a Redis URL; for example redis://127.0.0.1:6379/0 or unix:///run/valkey.sock")
    return str(value)


def _any_redis_url(value: object) -> str:
    if not isinstance(value, str) or not all(_is_host(server.host) for server in parse_redis_url(value).servers):
        raise ValueError("isn't a Redis URL; for example redis://127.0.0.1:6379/0")
    return value


def _http_url(value: object) -> str:
    if fault := http_url_fault(value):
        raise ValueError(f"isn't an HTTP URL: {fault}; for example https://auth.example.com/mqtt")
    return str(value)


def _quota(value: object) -> int:
    return _at_most(int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value) else value, "100000")


def _quota_bytes(value: object) -> int:
    return _at_most(amount(value, Kind.SIZE), '"256MB"')


def _at_most(value: object, example: str) -> int:
    if value == "infinity":
        return INFINITE
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < INFINITE:
        raise ValueError(f'must be a number of at least 1, for example {example}, or "infinity"')
    return value


def http_url_fault(value: object) -> str:
    """What is wrong with the URL, or "" if it is valid. The text has no part of the URL, which may hold a secret."""
    if not isinstance(value, str) or not value.lower().startswith(("http://", "https://")):
        return "it doesn't begin with http:// or https://"
    parts = _url_parts(value)
    if parts is None:
        return "its host or its port can't be used"
    if "${" in (parts.hostname or ""):
        return "a client would choose its host"
    return "" if parts.hostname else "it names no host"


def _url_parts(value: object) -> Any:
    """The result of `urlsplit`, with host and port checked; None if it isn't a URL."""
    try:
        parts = urlsplit(value) if isinstance(value, str) else None
        is_whole = parts is None or ((parts.port is None or parts.port >= 0) and _is_host(parts.hostname or ""))
        return parts if is_whole else None
    except ValueError:
        return None


PARSERS: Final[Mapping[object, Callable[[object], object]]] = {
    Address: parse_address,
    Address | None: _optional_address,
    Path: _path,
    Path | None: _optional_path,
    Secret: _secret,
    Secret | None: _secret,
    Network: _network,
    RedisUrl: _redis_url,
    RedisUrl | None: _redis_url,
    AnyRedisUrl: _any_redis_url,
    AnyRedisUrl | None: _any_redis_url,
    HttpUrl: _http_url,
    HttpUrl | None: _http_url,
    Quota | None: _quota,
    QuotaBytes | None: _quota_bytes,
}
"""Types with a parser of their own; msgspec converts all others."""
HIDDEN: Final = frozenset(
    (Secret, Secret | None, RedisUrl, RedisUrl | None, AnyRedisUrl, AnyRedisUrl | None, HttpUrl, HttpUrl | None)
)
"""Types whose values aren't shown in errors: secrets, and URLs that may contain one."""


def read_secret(file: Path, where: str) -> Secret:
    """Read a secret from a file. `where` is the key that names the file. Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            text = opened.read(SECRET_MAX_BYTES + 1).decode().strip()
    except OSError as error:
        raise ConfigError(f"{where}: {str(file)!r} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: {str(file)!r} isn't UTF-8 text") from None
    if not 0 < len(text) <= SECRET_MAX_BYTES:
        raise ConfigError(f"{where}: {str(file)!r} must hold 1 to {SECRET_MAX_BYTES} characters")
    return Secret(text)


def split_password(url: str) -> tuple[str, Secret | None]:
    """The URL without its password, and the password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url, None
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    shown = urlunsplit(parts._replace(netloc=f"{name}@{host}" if name else host))
    return shown, Secret(unquote(parts.password)) if parts.password else None
