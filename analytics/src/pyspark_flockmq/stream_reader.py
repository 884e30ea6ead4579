"""Reads the events of a stream as they come, batch by batch: `spark.readStream.format("flockmq")`.

An offset is the ID of the last entry that is read, by the name of the stream: {"lag": "1795176000000-0"}. A batch ends
at an entry that all connected replicas of Redis have, as an ingest does. So a failover, between batches or amid one,
costs and doubles nothing. A query that goes on from its checkpoint reads the same entries for the same offsets.

It holds nothing back in Redis: cores trim what the cluster's ingest has stored, and the oldest entries of a stream that
is full. A query that is slower misses them; the events' `number` tells how many.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from pyspark_flockmq.batch_reader import FlockmqReader
from pyspark_flockmq.errors import NotReplicated, RedisUnavailable
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.options import SourceOptions
from pyspark_flockmq.plan import FIRST_ID, IdRange, StreamId
from pyspark_flockmq.reading import last_ids, replicated_last_ids
from pyspark_flockmq.servers import Primaries

Offset = dict[str, Any]
"""As Spark keeps it in its checkpoint, in JSON."""


class FlockmqStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._reader = FlockmqReader(options)
        self._available: StreamId | None = None
        """Where a query ends that reads what is available now; None: it goes on."""

    def initialOffset(self) -> Offset:
        """Before the first entry that the option `after` leaves."""
        start = self._options.ids.start
        return self._offset(StreamId(start.ms, start.seq - 1) if start.seq else FIRST_ID)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available = self._last()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """`start`, while there is nothing behind it that all replicas have; also where Redis lost what was read, and
        isn't as far yet."""
        end = self._last() if self._available is None else self._available
        return self._offset(max(end, self._id(start)))

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        after, until = self._id(start), self._id(end)
        if after == until:
            return []
        with Primaries(self._options.redis) as redis:
            (last,) = last_ids(redis, [STREAMS[self._options.stream].key]).values()
        if last is None or last < until:
            raise RedisUnavailable(f"this Redis has no entry {until} of {self._options.stream}, which another one had")
        return self._reader.partitions_of(IdRange(after.next(), until))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reader.read(partition)

    def _last(self) -> StreamId:
        """Up to the option `until`."""
        with Primaries(self._options.redis) as redis:
            try:
                (last,) = replicated_last_ids(redis, [STREAMS[self._options.stream].key], 0).values()
            except NotReplicated:
                last = None
        return min(last or FIRST_ID, self._options.ids.end)

    def _offset(self, last: StreamId) -> Offset:
        return {self._options.stream: str(last)}

    def _id(self, offset: Offset) -> StreamId:
        return StreamId.parse(offset[self._options.stream])
