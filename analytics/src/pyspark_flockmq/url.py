"""The URL of a Redis: one server, or the servers that know the current one. Pure.

    redis://HOST:PORT/DB    unix:///PATH            one server
    redis+sentinel://HOST:PORT,HOST:PORT/NAME       sentinels, which know the primary of that name
    redis+cluster://HOST:PORT,HOST:PORT             nodes of a cluster, which know the master of each hash slot

`rediss` instead of `redis` means TLS, also to the sentinels. A URL means here what it means to a node of FlockMQ, but
for a password, which is refused: it has a file of its own.
"""

import re
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from pyspark_flockmq.errors import OptionError

Kind = Literal["server", "sentinel", "cluster"]

SERVERS_MAX: Final = 64
"""The maximum number of addresses in one URL: all of them are asked at once."""

_DEFAULT_PORTS: Final[dict[Kind, int]] = {"server": 6379, "sentinel": 26379, "cluster": 6379}
_SCHEMES: Final[dict[str, Kind]] = {"": "server", "+sentinel": "sentinel", "+cluster": "cluster"}
_PATHS: Final[dict[Kind, str]] = {"server": "/?|/[0-9]{1,5}", "sentinel": "/[A-Za-z0-9._-]+", "cluster": "/?"}
_SERVER: Final = re.compile(r"(?:\[(?P<ipv6>[0-9a-fA-F:.%]+)\]|(?P<host>[^\s:\[\]/@]+))(?::(?P<port>[0-9]{1,5}))?")


class RedisServer(NamedTuple):
    """The address of one server. Port 0: `host` is the path of a Unix socket."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(NamedTuple):
    """A parsed URL. `str()` gives a name for messages."""

    kind: Kind
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
    """Raises OptionError, which shows what a URL looks like, and never repeats a password."""
    try:
        parts = urlsplit(text)
    except ValueError:  # an unbalanced bracket
        raise _malformed() from None
    user, _, servers = parts.netloc.rpartition("@")
    if ":" in user or "password" in parse_qs(parts.query):
        raise OptionError("the Redis URL carries a password; put it into a file and name the file instead")
    username = unquote(user) or None
    if parts.query or parts.fragment:
        raise _malformed()
    if parts.scheme == "unix" and parts.path:
        return RedisUrl("server", (RedisServer(unquote(parts.path), 0),), username=username)
    scheme = re.fullmatch(r"redis(s?)((?:\+(?:sentinel|cluster))?)", parts.scheme)
    if scheme is None:
        raise _malformed()
    kind = _SCHEMES[scheme[2]]
    if re.fullmatch(_PATHS[kind], parts.path) is None:
        raise _malformed()
    found = tuple(_server(each, _DEFAULT_PORTS[kind]) for each in servers.split(","))
    if len(found) > (1 if kind == "server" else SERVERS_MAX):
        raise _malformed()
    name = parts.path.strip("/")
    return RedisUrl(
        kind,
        found,
        tls=bool(scheme[1]),
        username=username,
        database=int(name or 0) if kind == "server" else 0,
        primary=name if kind == "sentinel" else "",
    )


def _server(text: str, default_port: int) -> RedisServer:
    match = _SERVER.fullmatch(text)
    port = default_port if match is None or match["port"] is None else int(match["port"])
    if match is None or not 0 < port <= 65_535:
        raise _malformed()
    return RedisServer(match["ipv6"] or match["host"], port)


def _malformed() -> OptionError:
    return OptionError(
        "the Redis URL must look like redis://host:6379/0, rediss://host:6379/0 (TLS), unix:///run/valkey.sock, "
        "redis+sentinel://s1:26379,s2:26379,s3:26379/mymaster or redis+cluster://r1:6379,r2:6379"
    )
