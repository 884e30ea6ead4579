"""The event streams: their Redis keys, their columns, and how a batch is decoded.

A stream entry is one batch: its only field, `events`, holds msgpack. Today's batch is a map with a list for each
column, by name; one of the first release is an array of events, each an array of values. Nodes of several releases
write into one stream, so a column or a field that isn't known here is ignored, and one that is missing is null.

What doesn't fit is never fatal: it becomes a `Malformed` beside the events of the batch that do.

`incarnation` and `number` say which of its node's events one is: numbers count from 0 without a gap, whatever became of
the events; `shed` is how many of the earlier ones the node had no room for. Events of the first release have neither.

Pure: no Redis, no Spark session.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

BATCH_FIELD: Final = b"events"
AT_MAX_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last instant that Spark and Python both print

_decode: Final = msgspec.msgpack.Decoder().decode

Value = int | str | bool | None


@dataclass(frozen=True)
class Type:
    """A type as Spark and as Arrow call it. `most`: of an integer from 0 on; None: it is `python`."""

    sql: str
    arrow: Any
    python: type
    most: int | None = None

    def is_one(self, value: object) -> bool:
        # a bool is an int to isinstance
        return type(value) is self.python and (
            self.most is None or (isinstance(value, int) and 0 <= value <= self.most)
        )

    @property
    def wrong(self) -> str:
        """What is said of a value that isn't one."""
        return f"isn't {self.python.__name__}" if self.most is None else f"isn't in 0..{self.most}"


TEXT: Final = Type("STRING", pa.string(), str)
FLAG: Final = Type("BOOLEAN", pa.bool_(), bool)
BYTE: Final = Type("INT", pa.int32(), int, 255)
COUNT: Final = Type("BIGINT", pa.int64(), int, 2**63 - 1)
TIME: Final = Type("TIMESTAMP", pa.timestamp("us", tz="UTC"), int, AT_MAX_MS)

Column = tuple[str, Type]

_COMMON: Final[tuple[Column, ...]] = (
    ("at", TIME),
    ("node", TEXT),
    ("incarnation", TEXT),
    ("number", COUNT),
    ("shed", COUNT),
)


@dataclass(frozen=True)
class Stream:
    """One event stream. `first`: the columns of the first release's events, in their order; () if it had none."""

    name: str
    own: tuple[Column, ...]
    first: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"flockmq:events:{self.name}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*_COMMON, *self.own)

    @property
    def ddl(self) -> str:
        """The schema of its events: where each stood, and its columns. All but `entry_id`, `position`, `at` may be
        null."""
        columns = ", ".join(f"{name} {type.sql}" for name, type in self.columns)
        return f"entry_id STRING, position INT, {columns}"


class Malformed(NamedTuple):
    position: int | None  # None: the whole batch
    reason: str


class Batch(NamedTuple):
    """The events of one entry: one Arrow array a column of the stream, and the position of each event."""

    positions: Sequence[int]
    arrays: Sequence[Any]
    malformed: Sequence[Malformed]


def decode_batch(stream: Stream, fields: Mapping[bytes, bytes]) -> Batch:
    """Decode one stream entry's fields into its events and what was malformed in it."""
    payload = fields.get(BATCH_FIELD)
    if payload is None:
        return _nothing("the entry has no field 'events'")
    try:
        batch = _decode(payload)
    except Exception as error:  # by what it meets: msgspec's own, ValueError, TypeError, RecursionError
        return _nothing(f"the batch isn't msgpack ({error})")
    if isinstance(batch, list):
        return _decode_first(stream, batch)
    if not isinstance(batch, dict) or not isinstance(columns := batch.get("columns"), dict):
        return _nothing("the batch has no columns")
    length = _length(columns)
    if length is None:
        return _nothing("the batch's columns aren't lists of one length")
    return _checked(stream, length, {**columns, **_common(batch, length)}, range(length))


def _decode_first(stream: Stream, events: list[object]) -> Batch:
    """A batch of the first release."""
    malformed = [
        Malformed(position, f"the event is a {type(event).__name__}, not an array")
        for position, event in enumerate(events)
        if not isinstance(event, list)
    ]
    kept = [(position, event) for position, event in enumerate(events) if isinstance(event, list)]
    width = len(stream.first)
    rows = [(*event[:width], *(None,) * (width - len(event))) for _, event in kept]
    columns = dict(zip(stream.first, zip(*rows, strict=True), strict=True)) if rows else {}
    decoded = _checked(stream, len(rows), columns, [position for position, _ in kept])
    return decoded._replace(malformed=sorted([*malformed, *decoded.malformed], key=lambda one: one.position or 0))


def _checked(stream: Stream, length: int, columns: Mapping[str, Sequence[object]], positions: Sequence[int]) -> Batch:
    """At once if every value fits, and otherwise event by event."""
    arrays = _arrays(stream, length, columns)
    if arrays is not None:
        return Batch(positions, arrays, ())
    reasons = {n: reason for n in range(length) if (reason := _wrong(stream, columns, n))}
    good = [n for n in range(length) if n not in reasons]
    kept = {name: [values[n] for n in good] for name, values in columns.items()}
    arrays = _arrays(stream, len(good), kept)
    assert arrays is not None, "every value was looked at"
    malformed = [Malformed(positions[n], reason) for n, reason in reasons.items()]
    return Batch([positions[n] for n in good], arrays, malformed)


def _arrays(stream: Stream, length: int, columns: Mapping[str, Sequence[object]]) -> list[Any] | None:
    """None: some value doesn't fit."""
    try:
        return [_array(type, length, columns.get(name), name == "at") for name, type in stream.columns]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _array(type: Type, length: int, values: Sequence[object] | None, is_required: bool) -> Any:
    if values is None:
        if is_required and length:
            raise ValueError("it is missing")
        return pa.nulls(length, type.arrow)
    array = pa.array(values)  # of the type that it finds: told one it would take 1.5 as 1
    if is_required and array.null_count:
        raise ValueError("it is null")
    if pa.types.is_null(array.type):
        return array.cast(type.arrow)
    if type.most is None:
        if array.type != type.arrow:
            raise ValueError("it is of another type")
        return array
    if not pa.types.is_integer(array.type):
        raise ValueError("it isn't an integer")
    ends = pc.min_max(array).as_py()
    if not 0 <= ends["min"] <= ends["max"] <= type.most:
        raise ValueError("it is out of range")
    return array.cast(pa.timestamp("ms", tz="UTC")).cast(type.arrow) if type is TIME else array.cast(type.arrow)


def _wrong(stream: Stream, columns: Mapping[str, Sequence[object]], n: int) -> str:
    """What is wrong with the event; "" if nothing is."""
    for name, type in stream.columns:
        values = columns.get(name)
        value = None if values is None else values[n]
        if value is None and name == "at":
            return "it has no time"
        if value is not None and not type.is_one(value):
            return f"{name} {type.wrong}"
    return ""


def _common(batch: Mapping[str, object], length: int) -> dict[str, Sequence[object]]:
    """The header, as columns; what isn't of its type is taken as missing."""
    first = batch.get("first")
    numbers = range(first, first + length) if COUNT.is_one(first) and isinstance(first, int) else None
    said = {name: batch.get(name) for name in ("node", "incarnation")}
    texts = {name: [value] * length for name, value in said.items() if isinstance(value, str)}
    shed = batch.get("shed")
    return {
        **texts,
        **({"number": numbers} if numbers is not None else {}),
        **({"shed": [shed] * length} if COUNT.is_one(shed) else {}),
    }


def _length(columns: Mapping[object, object]) -> int | None:
    lengths = {len(values) if isinstance(values, list) else -1 for values in columns.values()}
    return lengths.pop() if len(lengths) == 1 and -1 not in lengths else None


def _nothing(reason: str) -> Batch:
    return Batch((), (), (Malformed(None, reason),))


_FIRST_CONNECTIONS: Final = ("at", "node", "kind", "client_id", "reason_code", "protocol_version")
_FIRST_LAG: Final = ("at", "node", "shard", "lag_entries", "lag_ms")


def _counts(*names: str) -> tuple[Column, ...]:
    return tuple((name, COUNT) for name in names)


STREAMS: Final = {
    stream.name: stream
    for stream in (
        Stream(
            "connections",
            (
                ("kind", TEXT),  # connected, disconnected, taken_over
                ("client_id", TEXT),
                ("reason_code", BYTE),
                ("ended_by", TEXT),  # client, server, network
                ("protocol_version", BYTE),
                ("listener", TEXT),
                ("address", TEXT),
                *_counts("duration_ms", "bytes_in", "bytes_out", "messages_in", "messages_out"),
            ),
            _FIRST_CONNECTIONS,
        ),
        Stream(
            "refusals",
            (
                ("client_id", TEXT),
                ("reason_code", BYTE),
                ("protocol_version", BYTE),
                ("listener", TEXT),
                ("address", TEXT),
            ),
        ),
        Stream(
            "lag",
            (
                ("shard", TEXT),
                *_counts("lag_entries", "lag_ms", "bootstraps", "bootstrap_ms", "bootstrap_rows"),
                *_counts("unapplied", "replaying"),
            ),
            _FIRST_LAG,
        ),
        Stream(
            "nodes",
            (
                ("role", TEXT),
                ("version", TEXT),
                ("ready", FLAG),
                *_counts("connections", "sessions", "durable_sessions", "subscriptions", "routes"),
                *_counts("connects", "disconnects", "refused", "takeovers", "evictions"),
                *_counts("messages_in", "messages_out", "messages_dropped", "bytes_in", "bytes_out"),
                *_counts("slot_queue_messages", "resend_messages", "store_queue_bytes", "loop_late_ms"),
            ),
        ),
    )
}
"""Columns are appended, never renamed; the files of earlier days lack the later ones, which are null there."""
