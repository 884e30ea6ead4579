"""Drains the event streams into Parquet: everything behind the last ingest's offsets, each event exactly once.

The end of each stream is fixed first; what is appended later is the next run's. The files are written, then the
manifest that names them together with the new offsets. Then Redis is told what is safe, so that cores may trim it:
never before, and again by the next run if this one is killed in between.

All is read from the primary, up to an end that all connected replicas have, too. So a failover costs and doubles
nothing, before, amid and after a run: the next primary has the same entries up to there, and appends behind them. A
run waits for the next primary, and goes on with the entry at which it was. (If a replica becomes the primary that
wasn't connected, it appends behind them by its clock: it must not be as far behind as a failover takes.)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from flockmq_analytics import output
from flockmq_analytics.manifest import Added, Malformed, Manifest
from flockmq_analytics.storage import Storage
from pyspark_flockmq.events import STREAMS, Stream
from pyspark_flockmq.options import redis_config
from pyspark_flockmq.plan import StreamId
from pyspark_flockmq.reading import release, replicated_last_ids
from pyspark_flockmq.servers import Primaries

MALFORMED_EXAMPLE_CHARS: Final = 200


@dataclass(frozen=True)
class Source:
    """Where events come from. `redis`: `url` and other options of the Data Source; `min_replicas`: how many replicas
    must have an entry, as for nodes. `releases`: cores may trim what is ingested, so this is the cluster's one
    output."""

    redis: Mapping[str, str]
    min_replicas: int = 0
    releases: bool = False

    def connect(self) -> Primaries:
        """Raises OptionError."""
        return Primaries(redis_config(self.redis))


@dataclass(frozen=True)
class Ingested:
    events: Mapping[str, int]
    """By stream."""
    malformed: int
    warnings: list[str]

    def __str__(self) -> str:
        counts = ", ".join(f"{stream} {events}" for stream, events in self.events.items())
        malformed = f"; {self.malformed} malformed" if self.malformed else ""
        return f"ingested {sum(self.events.values())} events ({counts}){malformed}"


def run(spark: SparkSession, source: Source, target: Storage, staging: str, now: datetime) -> Ingested:
    """`staging` is that of the lock. Raises what Spark raises, OutputError, RedisUnavailable."""
    manifest = output.load(target)
    with source.connect() as redis:
        last_ids = replicated_last_ids(redis, [stream.key for stream in STREAMS.values()], source.min_replicas)
    warnings: list[str] = []
    added: dict[str, Added] = {}
    for stream in STREAMS.values():
        last, offset = last_ids[stream.key], manifest.offsets.get(stream.name)
        if last is None or str(last) == offset:
            continue
        if offset is not None and last < StreamId.parse(offset):
            # Redis lost data, and its clock went back: what it has may be here already, and is counted as lost if not.
            warnings.append(f"{stream.key} ends at {last}, before {offset} that was ingested; it is read from there on")
            continue
        added[stream.name] = _drain(spark, source, target, staging, stream, manifest, last, now)
    if added:
        manifest = manifest.with_ingest(added)
        output.commit(staging, target, manifest)
    if source.releases:
        warnings.extend(_release(source, manifest))
    output.sweep(target, STREAMS, manifest, now.timestamp())
    events = {stream: sum(file.rows for files in one.files.values() for file in files) for stream, one in added.items()}
    return Ingested(events, sum(one.malformed.count for one in added.values()), warnings)


def _drain(
    spark: SparkSession,
    source: Source,
    target: Storage,
    staging: str,
    stream: Stream,
    manifest: Manifest,
    last: StreamId,
    now: datetime,
) -> Added:
    observed = Observation()
    malformed = F.col("malformed")
    events = read(spark, source, stream, manifest.offsets.get(stream.name), last).observe(
        observed, F.count(malformed).alias("count"), F.min(malformed).alias("example")
    )
    staged = f"{staging}/{stream.name}"
    by_date(events.where(malformed.isNull()).drop("malformed")).write.partitionBy("date").parquet(target.url(staged))
    files = output.publish_partitions(staged, target, stream.name, manifest.number + 1)
    example = str(observed.get["example"] or "")[:MALFORMED_EXAMPLE_CHARS]
    return Added(str(last), files, Malformed(observed.get["count"], example), str(now.astimezone(UTC).date()))


def by_date(events: DataFrame) -> DataFrame:
    """With the UTC day of each event, as `date`."""
    return events.withColumn("date", F.to_date("at"))


def read(spark: SparkSession, source: Source, stream: Stream, after: str | None, until: StreamId) -> DataFrame:
    options = {
        **source.redis,
        "stream": stream.name,
        "until": str(until),
        "partitions": str(spark.sparkContext.defaultParallelism),
    }
    if after:
        options["after"] = after
    return spark.read.format("flockmq").options(**options).load()


def _release(source: Source, manifest: Manifest) -> Iterator[str]:
    """Tell cores what they may trim. Where that isn't possible, the streams' bound still holds."""
    with source.connect() as redis:
        why = release(redis, manifest.offsets)
    if why:
        yield f"cores aren't told what they may trim: {why}"
