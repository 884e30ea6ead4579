"""Events as nodes write them: batches of this release, and of the first one."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import redis

from pyspark_flockmq.events import STREAMS

NOON_MS = 1_795_176_000_000
"""2026-11-20T12:00:00Z"""


def add_first(client: redis.Redis, stream: str, entry_ms: int, events: Sequence[object]) -> None:
    """A batch of the first release."""
    batch = {b"events": msgspec.msgpack.encode(events)}
    client.xadd(STREAMS[stream].key, batch, id=f"{entry_ms}-*")  # type: ignore[arg-type]


def add(
    client: redis.Redis,
    stream: str,
    entry_ms: int,
    events: Iterable[Mapping[str, object]],
    *,
    node: str = "n",
    first: int = 0,
    shed: int = 0,
) -> None:
    rows = list(events)
    names = {name: None for row in rows for name in row}
    columns = {name: [row.get(name) for row in rows] for name in names}
    batch = {"v": 2, "node": node, "incarnation": f"{node}@1", "first": first, "shed": shed, "columns": columns}
    fields = {b"events": msgspec.msgpack.encode(batch)}
    client.xadd(STREAMS[stream].key, fields, id=f"{entry_ms}-*")  # type: ignore[arg-type]


def add_an_hour(client: redis.Redis) -> None:
    """Of two nodes, from NOON_MS on: clients that come and go, and samples."""
    numbers = {"a": 0, "b": 0}
    for minute in range(60):
        at_ms = NOON_MS + minute * 60_000
        for entry_ms, node in enumerate(numbers, at_ms):
            kind = ("connected", "disconnected")[minute % 2]
            came = [
                {"at": at_ms, "kind": kind, "client_id": f"{node}{number}", "reason_code": 0x80, "duration_ms": number}
                for number in range(minute % 7)
            ]
            if came:
                add(client, "connections", entry_ms, came, node=node, first=numbers[node])
            numbers[node] += len(came)
            lag = {"at": at_ms, "shard": "route", "lag_ms": minute * 40, "lag_entries": minute}
            add(client, "lag", entry_ms, [lag], node=node, first=minute)
            sample = {"at": at_ms, "connections": minute, "durable_sessions": 1}
            add(client, "nodes", entry_ms, [sample], node=node, first=minute)
    add(client, "refusals", NOON_MS, [{"at": NOON_MS, "client_id": "x", "address": "192.0.2.1", "reason_code": 0x87}])
