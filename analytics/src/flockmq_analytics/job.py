"""The job: read both streams, merge them into the days' partitions, report on what the files then hold.

Events are known by where they stood: (entry_id, position). A day's partition becomes the union, by that identity, of
what it held and what the stream holds now. So a rerun changes nothing, a batch that came late is added by the next run,
and a stream that was trimmed, or lost, since the last run takes nothing away.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from flockmq_analytics import figures, output
from flockmq_analytics.days import Days
from flockmq_analytics.report import Report, StreamReading, to_json, to_markdown
from pyspark_flockmq.events import STREAMS, Stream
from pyspark_flockmq.reading import connect, state

PARTITIONS_PER_CORE: Final = 4  # nights are quieter than days: more partitions than cores even that out
IDENTITY: Final = ["entry_id", "position"]


@dataclass(frozen=True)
class Job:
    redis_url: str
    password_file: str | None
    output: Path
    days: Days
    keep_days: int


def run(spark: SparkSession, job: Job, staging: Path, now: datetime) -> Report:
    """`staging` is that of `output.locked`. Raises what Spark raises, OutputError, RedisUnavailable."""
    readings = {stream.name: _update(spark, job, stream, staging) for stream in STREAMS.values()}
    loaded = {stream.name: _load(spark, job, stream) for stream in STREAMS.values()}
    report = Report(
        first_day=str(job.days.first),
        last_day=str(job.days.last),
        made_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        days=figures.by_day(loaded["connections"]),
        hours=figures.by_hour(loaded["connections"]),
        lag=figures.by_shard(loaded["lag"]),
        streams=readings,
    )
    for name, text in (("report.json", to_json(report)), ("report.md", to_markdown(report))):
        staged = staging / name
        staged.write_text(text)
        output.publish(staged, job.output / name)
    oldest_kept = min(now.astimezone(UTC).date() - timedelta(days=job.keep_days), job.days.first)
    for stream in STREAMS:
        output.expire(job.output, stream, oldest_kept)
    return report


def _update(spark: SparkSession, job: Job, stream: Stream, staging: Path) -> StreamReading:
    """Bring the days' partitions of one stream up to date."""
    with connect(job.redis_url, job.password_file) as client:
        before = state(client, stream.key)
    observed = Observation()
    malformed = F.col("malformed")
    events = (
        _read(spark, job, stream)
        .observe(observed, F.count(malformed).alias("count"), F.min(malformed).alias("example"))
        .where(malformed.isNull())
        .drop("malformed")
        .unionByName(_load(spark, job, stream))
        .dropDuplicates(IDENTITY)
        .withColumn("date", F.to_date("at"))
    )
    staged = staging / stream.name
    # One task, and so one file, a day.
    by_day = events.repartition(len(job.days.each()), "date").sortWithinPartitions("date", "at", *IDENTITY)
    by_day.write.partitionBy("date").parquet(str(staged))
    output.publish_partitions(staged, job.output, stream.name)
    oldest = datetime.fromtimestamp(before.first.ms / 1000, UTC) if before.first else None
    kept = _load(spark, job, stream)
    lost = figures.losses(kept)
    return StreamReading(
        events=kept.count(),
        lost=lost.lost,
        shed=lost.shed,
        malformed=observed.get["count"],
        malformed_example=observed.get["example"],
        oldest_entry=oldest.isoformat(timespec="seconds") if oldest else None,
        trimmed=before.trimmed and (oldest is None or oldest > job.days.start),
    )


def _read(spark: SparkSession, job: Job, stream: Stream) -> DataFrame:
    options = {
        "url": job.redis_url,
        "stream": stream.name,
        "from": job.days.start.isoformat(),
        "to": job.days.end.isoformat(),
        "partitions": str(PARTITIONS_PER_CORE * spark.sparkContext.defaultParallelism),
    }
    if job.password_file:
        options["password_file"] = job.password_file
    return spark.read.format("flockmq").options(**options).load()


def _load(spark: SparkSession, job: Job, stream: Stream) -> DataFrame:
    """The events that the days' files hold."""
    files = output.partition_files(job.output, stream.name, job.days.each())
    if not files:
        return spark.createDataFrame([], stream.ddl)
    return spark.read.schema(stream.ddl).parquet(*map(str, files))
