"""The URL of a Redis: one server, or the servers that know the current one. No I/O.

    redis://HOST:PORT/DB    unix:///PATH            one server
    redis+sentinel://HOST:PORT,HOST:PORT/NAME       sentinels, which know the primary of that name
    redis+cluster://HOST:PORT,HOST:PORT             nodes of a cluster, which know the master of each hash slot

`rediss` instead of `redis` means TLS, also to the sentinels.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

SERVERS_MAX: Final = 64
"""The maximum number of addresses in one URL: all of them are asked at once."""

_DEFAULT_PORTS: Final = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_SCHEME: Final = re.compile(r"redis(?P<tls>s?)(?:\+(?P<kind>sentinel|cluster))?")
_SERVER: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:\[\]/@]+))(?::(?P<port>[0-9]{1,5}))?")
_NAME: Final = re.compile(r"/[A-Za-z0-9._-]+")
_DATABASE: Final = re.compile(r"/?|/[0-9]{1,5}")


class RedisServer(NamedTuple):
    """The address of one server. Port 0: `host` is the path of a Unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(NamedTuple):
    """A parsed URL, without the password. `str()` gives a name for messages."""

    kind: Literal["server", "sentinel", "cluster"]
    servers: tuple[RedisServer, ...]
    """The server itself, or the sentinels, or some nodes of the cluster."""
    tls: bool = False
    username: str | None = None
    database: int = 0
    primary: str = ""
    """The name by which the sentinels know it."""

    def __str__(self) -> str:
        servers = ",".join(map(str, self.servers))
        return f"{servers}/{self.primary}" if self.primary else servers


def parse_redis_url(text: str) -> RedisUrl:
    """Raises ValueError, whose text shows what a URL looks like."""
    try:
        parts = urlsplit(text)
    except ValueError:  # an unbalanced bracket
        raise _malformed() from None
    if parts.scheme == "unix" and parts.path and not (parts.query or parts.fragment):
        return RedisUrl("server", (RedisServer(unquote(parts.path), 0),), username=_username(parts.netloc))
    scheme = _SCHEME.fullmatch(parts.scheme)
    if scheme is None or parts.query or parts.fragment:
        raise _malformed()
    match scheme["kind"]:
        case "sentinel":
            kind: Literal["server", "sentinel", "cluster"] = "sentinel"
            path = _NAME
        case "cluster":
            kind, path = "cluster", re.compile("/?")
        case _:
            kind, path = "server", _DATABASE
    if path.fullmatch(parts.path) is None:
        raise _malformed()
    servers = tuple(_server(each, _DEFAULT_PORTS[kind]) for each in parts.netloc.rpartition("@")[2].split(","))
    if len(servers) > (1 if kind == "server" else SERVERS_MAX):
        raise _malformed()
    name = parts.path.strip("/")
    return RedisUrl(
        kind,
        servers,
        tls=bool(scheme["tls"]),
        username=_username(parts.netloc),
        database=int(name or 0) if kind == "server" else 0,
        primary=name if kind == "sentinel" else "",
    )


def _server(text: str, default_port: int) -> RedisServer:
    match = _SERVER.fullmatch(text)
    port = default_port if match is None or match["port"] is None else int(match["port"])
    if match is None or not 0 < port <= 65_535:
        raise _malformed()
    return RedisServer(match["ipv6"] or match["host"], port)


def _username(netloc: str) -> str | None:
    return unquote(netloc.rpartition("@")[0].partition(":")[0]) or None


def _malformed() -> ValueError:
    return ValueError(
        "isn't a Redis URL; for example redis://127.0.0.1:6379/0, rediss://redis:6379, unix:///run/valkey.sock, "
        "redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster or redis+cluster://r1:6379,r2:6379"
    )
