"""The rim to Redis: a connection, the ends of a stream, and its entries page by page.

It reads, and tells cores which entries are safe elsewhere; they trim the streams. Memory is bounded by one page of
entries.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from pyspark_flockmq.errors import OptionError, RedisUnavailable
from pyspark_flockmq.plan import FIRST_ID, IdRange, StreamId

CONNECT_TIMEOUT_S: Final = 5
ANSWER_TIMEOUT_S: Final = 30
RETRIES: Final = 3
PASSWORD_FILE_MAX_BYTES: Final = 4096
PAGE_ENTRIES: Final = 64
COMMITTED_KEY: Final = "flockmq:events:committed"
"""A hash: by stream, the ID up to which cores may trim it."""

Entry = tuple[StreamId, dict[bytes, bytes]]


@contextmanager
def connect(url: str, password_file: str | None) -> "Iterator[redis.Redis]":
    """A connection to Redis; in its block, each failure to reach Redis is a RedisUnavailable that names the address."""
    parts = urlsplit(url)
    address = f"{parts.hostname}:{parts.port or 6379}"
    client = redis.Redis.from_url(
        url,
        password=read_password(password_file) if password_file else None,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        retry=Retry(ExponentialBackoff(cap=1, base=0.1), RETRIES),
    )
    try:
        yield client
    except redis.AuthenticationError as error:
        hint = f"check {password_file}" if password_file else "name a password file"
        raise RedisUnavailable(f"Redis at {address} refused the password ({error}); {hint}") from None
    except redis.ResponseError as error:
        hint = "; name a password file" if str(error).startswith("NOAUTH") else ""
        raise RedisUnavailable(f"Redis at {address} refused a command: {error}{hint}") from None
    except redis.RedisError as error:
        raise RedisUnavailable(f"Redis at {address} can't be reached: {error}") from None
    finally:
        client.close()


def read_password(path: str) -> str:
    """The file's text without the line end; raises OptionError when it can't be read or is empty."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(PASSWORD_FILE_MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it isn't UTF-8"
        raise OptionError(f"the password file {path} can't be read: {reason}") from None
    password = text.rstrip("\r\n")
    if not password:
        raise OptionError(f"the password file {path} is empty")
    return password


def last_id(client: "redis.Redis", key: str) -> StreamId | None:
    """The ID of the entry that was appended last, trimmed or not; None: there is no such stream."""
    if not client.exists(key):
        return None
    last = StreamId.parse(client.xinfo_stream(key)["last-generated-id"])
    return last if last > FIRST_ID else None


def primary_of(client: "redis.Redis", url: str) -> str:
    """The URL of the primary that this server replicates; its own if it is the primary."""
    about = client.info("replication")
    if about.get("role") != "slave":
        return url
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{about['master_host']}:{about['master_port']}").geturl()


def release(client: "redis.Redis", ids: Mapping[str, str]) -> str:
    """Let cores trim each stream up to its ID. Returns why Redis refuses that; "" if it doesn't."""
    try:
        if ids:
            client.hset(COMMITTED_KEY, items=[part for item in ids.items() for part in item])
    except redis.ResponseError as error:
        return str(error)
    return ""


def ends(client: "redis.Redis", key: str, ids: IdRange) -> IdRange | None:
    """The first and the last entry that stand in `ids` now; None: there is none."""
    first = _page(client.xrange(key, str(ids.start), str(ids.end), count=1))
    last = _page(client.xrevrange(key, str(ids.end), str(ids.start), count=1))
    return IdRange(first[0][0], last[0][0]) if first and last else None


def check_has(client: "redis.Redis", key: str, last: StreamId) -> None:
    """Raise RedisUnavailable if the server hasn't come as far: it is a replica that is behind, or it lost data."""
    if (last_id(client, key) or FIRST_ID) < last:
        raise RedisUnavailable(f"this Redis doesn't have entry {last} of {key}, which another one had; try again")


def entries(client: "redis.Redis", key: str, ids: IdRange) -> Iterator[Entry]:
    start = ids.start
    while page := _page(client.xrange(key, str(start), str(ids.end), count=PAGE_ENTRIES)):
        yield from page
        if len(page) < PAGE_ENTRIES:
            return
        start = page[-1][0].next()


def _page(answer: object) -> list[Entry]:
    # The client's types allow for replies that aren't decoded, or decoded to text; this connection gives bytes.
    page = cast("list[tuple[bytes, dict[bytes, bytes]]]", answer)
    return [(StreamId.parse(entry_id), fields) for entry_id, fields in page]
