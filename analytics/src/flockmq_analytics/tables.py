"""The tables of a day's report: which there are, and how they are made of its events.

Each is one Parquet file in the day's folder. A table that is made of another one reads that file, so events are read as
seldom as can be.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flockmq_analytics.storage import Storage
from flockmq_analytics.transforms import connections, lag, losses, nodes

AROUND: Final = timedelta(hours=1)
"""Events before and after a day that are read to see what changed at its ends."""


@dataclass(frozen=True)
class DayEvents:
    """The events of a day, and those of an hour around it. `known` and `day_before`: client_id, of all earlier days and
    of the last of them."""

    streams: dict[str, DataFrame]
    known: DataFrame
    day_before: DataFrame
    start: datetime
    end: datetime
    objective_ms: int

    def of(self, stream: str) -> DataFrame:
        return self.only(self.streams[stream])

    def only(self, rows: DataFrame) -> DataFrame:
        """Those of the day itself."""
        return rows.where((F.col("at") >= F.lit(self.start)) & (F.col("at") < F.lit(self.end)))


Tables = Callable[[str], DataFrame]
"""A table of this day that was made before."""

TABLES: Final[dict[str, Callable[[DayEvents, Tables], DataFrame]]] = {
    "minutes": lambda day, _: connections.minutes(day.of("connections"), day.of("refusals")).orderBy("minute"),
    "hours": lambda day, _: connections.hours(day.of("connections"), day.of("refusals")).orderBy("hour", "node"),
    "clients": lambda day, _: connections.clients(day.of("connections")),
    "arrivals": lambda day, made: connections.arrivals(made("clients"), day.known, day.day_before),
    "flapping": lambda _, made: connections.flapping(made("clients")),
    "lengths": lambda day, _: connections.lengths(day.of("connections")),
    "length_percentiles": lambda day, _: connections.length_percentiles(day.of("connections")),
    "reasons": lambda day, _: connections.reasons(day.of("connections")),
    "storms": lambda _, made: connections.storms(made("minutes")),
    "sources": lambda day, _: connections.sources(day.of("refusals")),
    "concurrency": lambda day, _: nodes.concurrency(day.of("nodes")).orderBy("minute", "node"),
    "totals": lambda _, made: nodes.totals(made("concurrency")),
    "node_hours": lambda day, _: day.only(
        nodes.hours(day.streams["nodes"]).withColumnRenamed("hour", "at")
    ).withColumnRenamed("at", "hour").orderBy("hour", "node"),
    "lag_hours": lambda day, _: lag.hours(day.of("lag"), day.objective_ms).orderBy("hour", "shard", "node"),
    "lag_shards": lambda day, _: lag.shards(day.of("lag"), day.objective_ms),
    "bootstraps": lambda day, _: day.only(lag.bootstraps(day.streams["lag"])),
    "spikes": lambda day, made: lag.spikes(day.of("lag"), made("minutes"), day.objective_ms),
    "losses": lambda day, _: _losses(day),
}  # fmt: skip
"""By name, in the order in which they are made. `transforms/` says what their columns are."""


def write(spark: SparkSession, day: DayEvents, output: Storage, folder: str) -> None:
    """Make all tables, as NAME.parquet in a staged folder."""

    def made(name: str) -> DataFrame:
        return spark.read.parquet(output.url(f"{folder}/{name}.parquet"))

    for name, make in TABLES.items():
        parts = f"{folder}/_{name}"
        make(day, made).coalesce(1).write.parquet(output.url(parts))
        (part,) = (found.name for found in output.found(parts) if found.name.endswith(".parquet"))
        output.publish(part, f"{folder}/{name}.parquet")
        output.remove_folder(parts)


def _losses(day: DayEvents) -> DataFrame:
    per_stream = [losses.by_node(day.only(losses.gaps(events)), stream) for stream, events in day.streams.items()]
    both = per_stream[0]
    for more in per_stream[1:]:
        both = both.unionByName(more)
    return both.orderBy("stream", "node")
