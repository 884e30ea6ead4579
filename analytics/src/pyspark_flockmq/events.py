"""The event streams: their Redis keys, their columns, and how a batch is decoded.

A stream entry is one batch: its only field, `events`, holds a msgpack array of events, and an event is an array with
one value a column. What doesn't fit is never fatal: it becomes a `Malformed` beside the events of the batch that do.

Pure: no Redis, no Spark session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgpack  # type: ignore[import-untyped]

BATCH_FIELD: Final = b"events"
AT_MAX_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last instant that Spark and Python both print
CLIENT_ID_MAX_BYTES: Final = 65_535  # [MQTT-1.5.4]: a UTF-8 string's length is two bytes
NAME_MAX_BYTES: Final = 253  # a DNS name, which a node's name is at most
KINDS: Final = frozenset({"connected", "disconnected"})

Value = int | str


class Column(NamedTuple):
    """A column of a stream: its name, its Spark SQL type, and the check that turns a decoded value into its value.

    The check raises ValueError, with the reason, for a value that doesn't belong there.
    """

    name: str
    sql_type: str
    check: Callable[[object], Value]


@dataclass(frozen=True)
class Stream:
    """One event stream; the first column is always `at`, kept in microseconds since the epoch."""

    name: str
    key: str
    columns: tuple[Column, ...]

    @property
    def ddl(self) -> str:
        """The schema that Spark sees: where the event stood, its columns, and why it couldn't be decoded."""
        columns = ", ".join(f"{column.name} {column.sql_type}" for column in self.columns)
        return f"entry_id STRING, position INT, {columns}, malformed STRING"


class Event(NamedTuple):
    position: int
    values: tuple[Value, ...]


class Malformed(NamedTuple):
    position: int | None  # None: the whole batch
    reason: str


def decode_batch(stream: Stream, fields: dict[bytes, bytes]) -> tuple[list[Event], list[Malformed]]:
    """Decode one stream entry's fields into its events and what was malformed in it."""
    payload = fields.get(BATCH_FIELD)
    if payload is None:
        return [], [Malformed(None, "the entry has no field 'events'")]
    try:
        # raw: text is checked column by column, so that one bad string doesn't cost the batch.
        batch = msgpack.unpackb(payload, raw=True, strict_map_key=False)
    except Exception as error:  # msgpack raises its own, ValueError, TypeError or RecursionError by what it meets
        return [], [Malformed(None, f"the batch isn't msgpack ({type(error).__name__})")]
    if not isinstance(batch, list):
        return [], [Malformed(None, f"the batch is a {type(batch).__name__}, not an array")]
    events: list[Event] = []
    malformed: list[Malformed] = []
    for position, event in enumerate(batch):
        try:
            events.append(Event(position, _decode_event(stream, event)))
        except ValueError as error:
            malformed.append(Malformed(position, str(error)))
    return events, malformed


def _decode_event(stream: Stream, event: object) -> tuple[Value, ...]:
    if not isinstance(event, list):
        raise ValueError(f"the event is a {type(event).__name__}, not an array")
    if len(event) != len(stream.columns):
        raise ValueError(f"the event has {len(event)} values, not {len(stream.columns)}")
    values = []
    for column, value in zip(stream.columns, event, strict=True):
        try:
            values.append(column.check(value))
        except ValueError as error:
            raise ValueError(f"{column.name} {error}") from None
    return tuple(values)


def _integer(maximum: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        if type(value) is not int:  # a bool is an int to isinstance
            raise ValueError("isn't an integer")
        if not 0 <= value <= maximum:
            raise ValueError(f"isn't in 0..{maximum}")
        return value

    return check


def _text(max_bytes: int) -> Callable[[object], str]:
    def check(value: object) -> str:
        if type(value) is not bytes:
            raise ValueError("isn't text")
        if len(value) > max_bytes:
            raise ValueError(f"is longer than {max_bytes} bytes")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValueError("isn't UTF-8") from None

    return check


_milliseconds = _integer(AT_MAX_MS)
_name = _text(NAME_MAX_BYTES)


def _at(value: object) -> int:
    return _milliseconds(value) * 1000


def _kind(value: object) -> str:
    kind = _name(value)
    if kind not in KINDS:
        raise ValueError("is neither 'connected' nor 'disconnected'")
    return kind


_AT: Final = Column("at", "TIMESTAMP", _at)
_NODE: Final = Column("node", "STRING", _name)
_COUNT: Final = _integer(2**63 - 1)
_BYTE: Final = _integer(255)

STREAMS: Final = {
    stream.name: stream
    for stream in (
        Stream(
            "connections",
            "flockmq:events:connections",
            (
                _AT,
                _NODE,
                Column("kind", "STRING", _kind),
                Column("client_id", "STRING", _text(CLIENT_ID_MAX_BYTES)),
                Column("reason_code", "INT", _BYTE),
                Column("protocol_version", "INT", _BYTE),
            ),
        ),
        Stream(
            "lag",
            "flockmq:events:lag",
            (
                _AT,
                _NODE,
                Column("shard", "STRING", _name),
                Column("lag_entries", "BIGINT", _COUNT),
                Column("lag_ms", "BIGINT", _COUNT),
            ),
        ),
    )
}
