"""The streams in Redis: their ends, their entries page by page, and what is safe elsewhere.

It reads, and tells cores which entries are safe; they trim the streams. Memory is bounded by one page of entries. What
is read up to an entry is read at a server that has this entry, so a replica that became the primary, and lacks it, is
no end of the stream.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from pyspark_flockmq.errors import NotReplicated, RedisUnavailable
from pyspark_flockmq.plan import FIRST_ID, IdRange, StreamId
from pyspark_flockmq.servers import Client, Primaries

PAGE_ENTRIES: Final = 64
REPLICAS_WAIT_S: Final = 10.0
"""For how long replicas are waited for that lack what their primary has. They tell it once a second."""
REPLICAS_LOOK_S: Final = 0.1
COMMITTED_KEY: Final = "flockmq:events:committed"
"""A hash: by stream, the ID up to which cores may trim it."""

Entry = tuple[StreamId, dict[bytes, bytes]]


def last_ids(redis: Primaries, keys: Sequence[str]) -> dict[str, StreamId | None]:
    """By key, the ID of the entry that was appended last, trimmed or not; None: there is no such stream."""
    found: dict[str, StreamId | None] = {}
    for group in redis.config.by_server([*keys]):
        found |= redis.call(group[0], partial(_last_ids, keys=group))
    return found


def replicated_last_ids(redis: Primaries, keys: Sequence[str], min_replicas: int) -> dict[str, StreamId | None]:
    """The like, once all connected replicas have these entries, and at least `min_replicas` of them: whichever becomes
    the primary then, appends behind them. Raises NotReplicated where they don't in time, RedisUnavailable where the
    server is a replica itself."""
    found: dict[str, StreamId | None] = {}
    for group in redis.config.by_server([*keys]):
        found |= redis.call(group[0], partial(_replicated_last_ids, keys=group, min_replicas=min_replicas))
    return found


def release(redis: Primaries, ids: Mapping[str, str]) -> str:
    """Let cores trim each stream up to its ID. Returns why that isn't possible now; "" if it is done."""
    items = [part for item in ids.items() for part in item]
    try:
        if items:
            redis.call(COMMITTED_KEY, lambda client: client.hset(COMMITTED_KEY, items=items))
    except RedisUnavailable as error:
        return str(error)
    return ""


def ends(redis: Primaries, key: str, ids: IdRange) -> IdRange | None:
    """The first and the last entry that stand in `ids` now; None: there is none."""

    def look(client: Client) -> IdRange | None:
        first = _page(client.xrange(key, str(ids.start), str(ids.end), count=1))
        last = _page(client.xrevrange(key, str(ids.end), str(ids.start), count=1))
        return IdRange(first[0][0], last[0][0]) if first and last else None

    return redis.call(key, look)


def entries(redis: Primaries, key: str, ids: IdRange) -> Iterator[Entry]:
    """Those in `ids`, whose end is an entry that there was. Raises RedisUnavailable."""
    start = ids.start
    while page := redis.call(key, partial(_page_of, key=key, ids=IdRange(start, ids.end))):
        yield from page
        if len(page) < PAGE_ENTRIES:
            return
        start = page[-1][0].next()


def _page_of(client: Client, key: str, ids: IdRange) -> list[Entry]:
    page = _page(client.xrange(key, str(ids.start), str(ids.end), count=PAGE_ENTRIES))
    if len(page) < PAGE_ENTRIES and (_last_id(client, key) or FIRST_ID) < ids.end:
        raise RedisUnavailable(f"this Redis doesn't have entry {ids.end} of {key}, which another one had; try again")
    return page


def _replicated_last_ids(client: Client, keys: Sequence[str], min_replicas: int) -> dict[str, StreamId | None]:
    found = _last_ids(client, keys)
    about = client.info("replication")
    if about["role"] != "master":
        raise RedisUnavailable("this Redis is a replica: name its primary, or the sentinels that know it")
    offset, until_s = about["master_repl_offset"], time.monotonic() + REPLICAS_WAIT_S
    while True:
        replicas = [each for name, each in about.items() if _is_replica(name, each)]
        behind = [each for each in replicas if each["offset"] < offset]
        if not behind and len(replicas) >= min_replicas:
            return found
        if time.monotonic() >= until_s:
            names = ", ".join(f"{each['ip']}:{each['port']}" for each in behind)
            count = f"{len(replicas)} of {min_replicas} replicas are connected"
            why = f"the replicas {names} lack what it has" if behind else count
            raise NotReplicated(f"this Redis could lose its newest events in a failover: {why}; try again")
        time.sleep(REPLICAS_LOOK_S)
        about = client.info("replication")


def _is_replica(name: str, each: Any) -> bool:
    """Of INFO's fields, one about a replica that follows the primary; one that takes its first copy doesn't yet."""
    return name.removeprefix("slave").isdecimal() and each["state"] == "online"


def _last_ids(client: Client, keys: Sequence[str]) -> dict[str, StreamId | None]:
    return {key: _last_id(client, key) for key in keys}


def _last_id(client: Client, key: str) -> StreamId | None:
    if not client.exists(key):
        return None
    last = StreamId.parse(cast("Mapping[str, bytes]", client.xinfo_stream(key))["last-generated-id"])
    return last if last > FIRST_ID else None


def _page(answer: object) -> list[Entry]:
    # The client's types allow for replies that aren't decoded, or decoded to text; this connection gives bytes.
    page = cast("list[tuple[bytes, dict[bytes, bytes]]]", answer)
    return [(StreamId.parse(entry_id), fields) for entry_id, fields in page]
