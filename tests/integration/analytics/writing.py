"""Events as nodes write them: batches of this release, and of the first one."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import redis

from pyspark_flockmq.events import STREAMS


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
