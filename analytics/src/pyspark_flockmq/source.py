"""The Data Source itself: Spark's calls on one side, the plan, the rim and the decoder on the other.

The IDs to read are fixed once, while Spark plans (`partitions`); what is appended later is not part of this read. An
event outside `from` <= at < `to` is dropped. A malformed one, which has no time to trust, counts by the time of its
entry, so that of two reads of neighbouring spans just one reports it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_flockmq.events import STREAMS, Stream, Value, decode_batch
from pyspark_flockmq.options import SourceOptions, parse_options
from pyspark_flockmq.plan import IdRange, StreamId, ids_of_times, split
from pyspark_flockmq.reading import connect, ends, entries

RECORD_BATCH_MAX_ROWS: Final = 10_000  # reached, it is handed on; a batch of the stream is never split

ARROW_TYPES: Final = {
    "STRING": pa.string(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}

Row = tuple[Value | None, ...]


class FlockmqDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "flockmq"

    def schema(self) -> str:
        return STREAMS[parse_options(self.options).stream].ddl

    def reader(self, schema: StructType) -> "FlockmqReader":
        return FlockmqReader(parse_options(self.options))


@dataclass
class IdPartition(InputPartition):
    ids: IdRange


class FlockmqReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[IdPartition]:
        wanted = ids_of_times(self.options.from_ms, self.options.to_ms)
        with connect(self.options.url, self.options.password_file) as client:
            found = ends(client, STREAMS[self.options.stream].key, wanted)
        # Spark wants at least one partition; an empty one reads nothing.
        ranges = split(found, self.options.partitions) if found else [IdRange(StreamId(0, 1), StreamId(0, 1))]
        return [IdPartition(ids) for ids in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdPartition)
        stream = STREAMS[self.options.stream]
        rows: list[Row] = []
        with connect(self.options.url, self.options.password_file) as client:
            for entry_id, fields in entries(client, stream.key, partition.ids):
                rows.extend(self._rows(stream, entry_id, fields))
                if len(rows) >= RECORD_BATCH_MAX_ROWS:
                    yield record_batch(stream, rows)
                    rows = []
        if rows:
            yield record_batch(stream, rows)

    def _rows(self, stream: Stream, entry_id: StreamId, fields: dict[bytes, bytes]) -> Iterator[Row]:
        from_us = (self.options.from_ms or 0) * 1000
        to_us = None if self.options.to_ms is None else self.options.to_ms * 1000
        events, malformed = decode_batch(stream, fields)
        for position, values in events:
            at_us = values[0]
            assert isinstance(at_us, int)
            if from_us <= at_us and (to_us is None or at_us < to_us):
                yield str(entry_id), position, *values, None
        entry_us = entry_id.ms * 1000
        if malformed and from_us <= entry_us and (to_us is None or entry_us < to_us):
            nothing = (None,) * len(stream.columns)
            for position_or_batch, reason in malformed:
                where = f"entry {entry_id}" + ("" if position_or_batch is None else f", event {position_or_batch}")
                yield str(entry_id), position_or_batch, *nothing, f"{where}: {reason}"


def record_batch(stream: Stream, rows: list[Row]) -> pa.RecordBatch:
    """Rows of `stream.ddl`, in its order, as Arrow columns."""
    names = ["entry_id", "position", *(column.name for column in stream.columns), "malformed"]
    types = ["STRING", "INT", *(column.sql_type for column in stream.columns), "STRING"]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(values, ARROW_TYPES[sql_type]) for values, sql_type in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)
