"""The report's job: what the files of its days hold, in figures. It needs no Redis.

It also tidies up, for it runs when it is quiet: days that are over become few files, and old ones go.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from flockmq_analytics import figures, output
from flockmq_analytics.days import Days
from flockmq_analytics.manifest import Manifest
from flockmq_analytics.report import Report, StreamReading, to_json, to_markdown
from pyspark_flockmq.events import STREAMS, Stream

ROWS_PER_FILE: Final = 5_000_000


@dataclass(frozen=True)
class Job:
    output: Path
    days: Days
    keep_days: int


def run(spark: SparkSession, job: Job, staging: Path, now: datetime) -> Report:
    """`staging` is that of `output.locked`. Raises what Spark raises, OutputError."""
    manifest = output.load(job.output)
    today = now.astimezone(UTC).date()
    manifest = manifest.without_days_before(min(today - timedelta(days=job.keep_days), job.days.first))
    for stream in STREAMS.values():
        for day in manifest.files.get(stream.name, {}):
            if date.fromisoformat(day) < today:
                manifest = _compact(spark, job.output, staging, manifest, stream, day)
    loaded = {stream.name: load(spark, job.output, manifest, stream, job.days.each()) for stream in STREAMS.values()}
    report = Report(
        first_day=str(job.days.first),
        last_day=str(job.days.last),
        made_at=now.astimezone(UTC).isoformat(timespec="seconds"),
        days=figures.by_day(loaded["connections"]),
        hours=figures.by_hour(loaded["connections"]),
        lag=figures.by_shard(loaded["lag"]),
        streams={stream: _reading(events, manifest, stream, job.days) for stream, events in loaded.items()},
    )
    for name, text in (("report.json", to_json(report)), ("report.md", to_markdown(report))):
        staged = staging / name
        staged.write_text(text)
        output.publish(staged, job.output / name)
    output.commit(staging, job.output, manifest.with_report(str(day) for day in job.days.each()))
    output.sweep(job.output, list(STREAMS), manifest, now.timestamp())
    return report


def load(spark: SparkSession, target: Path, manifest: Manifest, stream: Stream, days: list[date]) -> DataFrame:
    """The events of these UTC days; a column that a file lacks is null."""
    files = [
        str(output.data_file(target, stream.name, str(day), file))
        for day in days
        for file in manifest.of_day(stream.name, day)
    ]
    return spark.read.schema(stream.ddl).parquet(*files) if files else spark.createDataFrame([], stream.ddl)


def _compact(
    spark: SparkSession, target: Path, staging: Path, manifest: Manifest, stream: Stream, day: str
) -> Manifest:
    """As few files as its rows need, in the order of time."""
    files = manifest.files[stream.name][day]
    rows = sum(file.rows for file in files)
    wanted = -(-rows // ROWS_PER_FILE)
    if len(files) <= wanted:
        return manifest
    events = load(spark, target, manifest, stream, [date.fromisoformat(day)])
    staged = staging / "compacted" / stream.name
    ordered = events.coalesce(wanted).sortWithinPartitions("at", "entry_id", "position")
    ordered.write.mode("overwrite").parquet(str(staged / f"{output.PARTITION_PREFIX}{day}"))
    (compacted,) = output.publish_partitions(staged, target, stream.name, manifest.number + 1).values()
    if sum(file.rows for file in compacted) != rows:
        raise output.OutputError(f"{stream.name} of {day}: {rows} rows in {len(files)} files were not {rows} in fewer")
    manifest = manifest.with_compacted(stream.name, day, compacted)
    output.commit(staging, target, manifest)
    return manifest


def _reading(events: DataFrame, manifest: Manifest, stream: str, days: Days) -> StreamReading:
    kept = [one for day, one in manifest.malformed.get(stream, {}).items() if date.fromisoformat(day) in days]
    lost = figures.losses(events)
    return StreamReading(
        events=sum(file.rows for day in days.each() for file in manifest.of_day(stream, day)),
        lost=lost.lost,
        shed=lost.shed,
        malformed=sum(one.count for one in kept),
        malformed_example=next((one.example for one in kept), None),
    )
