"""Reads a span of a stream: Spark's calls on one side, the plan, the rim and the decoder on the other.

The IDs to read are fixed once, while Spark plans (`partitions`); what is appended later is not part of this read. An
event outside `from` <= at < `to` is dropped. A malformed one, which has no time to trust, counts by the time of its
entry, so that of two reads of neighbouring spans just one reports it.

All columns are decoded, whichever are asked for: the API of PySpark 4.3 doesn't say which are (its `PythonScanBuilder`
takes filters, no columns).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pyspark_flockmq.events import STREAMS, Batch, Stream, decode_batch
from pyspark_flockmq.filters import narrowed
from pyspark_flockmq.options import SourceOptions
from pyspark_flockmq.plan import IdRange, StreamId, ids_of_times, overlap, split
from pyspark_flockmq.reading import ends, entries
from pyspark_flockmq.servers import Primaries

RECORD_BATCH_MIN_ROWS: Final = 20_000  # reached, it is handed on; a batch of the stream is never split

_POSITION: Final = pa.int32()


@dataclass
class IdPartition(InputPartition):
    ids: IdRange
    is_empty: bool = False


class FlockmqReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[IdPartition]:
        return self.partitions_of(self.options.ids)

    def partitions_of(self, ids: IdRange) -> Sequence[IdPartition]:
        options = self.options
        wanted = overlap(ids_of_times(options.from_ms, options.to_ms), ids)
        found = None
        if wanted is not None:
            with Primaries(options.redis) as redis:
                found = ends(redis, STREAMS[options.stream].key, wanted)
        # Spark wants at least one partition; an empty one reads nothing.
        ranges = split(found, options.partitions) if found else [IdRange(StreamId(0, 1), StreamId(0, 1))]
        return [IdPartition(ids, found is None) for ids in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdPartition)
        stream = STREAMS[self.options.stream]
        waiting: list[Any] = []
        rows = 0
        if partition.is_empty:
            return
        with Primaries(self.options.redis) as redis:
            for entry_id, fields in entries(redis, stream.key, partition.ids):
                for table in self._tables(stream, entry_id, decode_batch(stream, fields)):
                    waiting.append(table)
                    rows += table.num_rows
                if rows >= RECORD_BATCH_MIN_ROWS:
                    yield from _combined(waiting)
                    waiting, rows = [], 0
        yield from _combined(waiting)

    def _tables(self, stream: Stream, entry_id: StreamId, batch: Batch) -> Iterator[Any]:
        if len(batch.positions):
            yield self._within(event_table(stream, entry_id, batch))
        options = self.options
        in_time = (options.from_ms or 0) <= entry_id.ms and (options.to_ms is None or entry_id.ms < options.to_ms)
        if batch.malformed and in_time:
            yield malformed_table(stream, entry_id, batch)

    def _within(self, table: Any) -> Any:
        """The events of the span of times."""
        from_ms, to_ms = self.options.from_ms, self.options.to_ms
        if from_ms is None and to_ms is None:
            return table
        at = table.column("at").cast(pa.int64())
        mask = pc.greater_equal(at, (from_ms or 0) * 1000)
        if to_ms is not None:
            mask = pc.and_(mask, pc.less(at, to_ms * 1000))
        return table.filter(mask)


class FilteringReader(FlockmqReader):
    """A class of its own: Spark looks at whether there is this method, and refuses it unless it is told otherwise."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self.options = narrowed(self.options, filters)
        return filters


def arrow_schema(stream: Stream) -> Any:
    """That of the frame, as Arrow says it."""
    columns = [(name, type.arrow) for name, type in stream.columns]
    return pa.schema([("entry_id", pa.string()), ("position", _POSITION), *columns, ("malformed", pa.string())])


def event_table(stream: Stream, entry_id: StreamId, batch: Batch) -> Any:
    length = len(batch.positions)
    where = [pa.repeat(str(entry_id), length), pa.array(batch.positions, _POSITION)]
    return pa.table([*where, *batch.arrays, pa.nulls(length, pa.string())], schema=arrow_schema(stream))


def malformed_table(stream: Stream, entry_id: StreamId, batch: Batch) -> Any:
    length = len(batch.malformed)
    positions = [position for position, _ in batch.malformed]
    texts = [
        f"entry {entry_id}" + ("" if position is None else f", event {position}") + f": {reason}"
        for position, reason in batch.malformed
    ]
    nothing = [pa.nulls(length, type.arrow) for _, type in stream.columns]
    where = [pa.repeat(str(entry_id), length), pa.array(positions, _POSITION)]
    return pa.table([*where, *nothing, pa.array(texts)], schema=arrow_schema(stream))


def _combined(tables: Sequence[Any]) -> Iterator[pa.RecordBatch]:
    if tables:
        yield from pa.concat_tables(tables).combine_chunks().to_batches()
