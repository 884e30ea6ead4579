"""The report's job: of each day that has events which its report doesn't know, tables, figures and a page. It needs no
Redis.

It also tidies up, for it runs when it is quiet: days that are over become few files, and old ones go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from flockmq_analytics import output, tables
from flockmq_analytics.days import due, latest, span, utc_days
from flockmq_analytics.manifest import Malformed, Manifest
from flockmq_analytics.page import page, text
from flockmq_analytics.storage import OutputError, Storage
from flockmq_analytics.summary import TREND_DAYS, Rows, StreamCount, Summary, summarize
from pyspark_flockmq.events import STREAMS, Stream

ROWS_PER_FILE: Final = 5_000_000
NOT_READ_BACK: Final = frozenset({"clients"})
"""Tables as long as there are clients; all others are of minutes, hours, nodes, or the first of a list."""


@dataclass(frozen=True)
class Job:
    """`days`: those to report on; None: those that have new events, up to today."""

    output: Storage
    days: Sequence[date] | None
    zone: ZoneInfo
    keep_days: int
    objective_ms: int


@dataclass(frozen=True)
class Reported:
    summary: Summary
    text: str


def run(spark: SparkSession, job: Job, staging: str, now: datetime) -> list[Reported]:
    """`staging` is that of the lock. Raises what Spark raises, OutputError."""
    spark.conf.set("spark.sql.session.timeZone", job.zone.key)
    manifest = output.load(job.output)
    today = now.astimezone(job.zone).date()
    oldest = min([today - timedelta(days=job.keep_days), *(job.days or [])])
    manifest = manifest.without_days_before(oldest)
    for stream in STREAMS.values():
        for day in manifest.files.get(stream.name, {}):
            if date.fromisoformat(day) < now.astimezone(UTC).date():
                manifest = _compact(spark, job.output, staging, manifest, stream, day)
    days = due(manifest.changed, manifest.reported, job.zone, today) if job.days is None else job.days
    reported = [_report(spark, job, staging, manifest, day, now) for day in days]
    manifest = manifest.with_report(str(day) for day in days)
    output.commit(staging, job.output, manifest)
    output.point_latest(job.output, latest(manifest.reported, today))
    output.expire_reports(job.output, oldest)
    output.sweep(job.output, STREAMS, manifest, now.timestamp())
    return reported


def load(spark: SparkSession, target: Storage, manifest: Manifest, stream: Stream, days: Sequence[date]) -> DataFrame:
    """The events of these UTC days; a column that a file lacks is null."""
    files = [
        target.url(output.data_file(stream.name, str(day), file))
        for day in days
        for file in manifest.of_day(stream.name, day)
    ]
    return spark.read.schema(stream.ddl).parquet(*files) if files else spark.createDataFrame([], stream.ddl)


def _report(spark: SparkSession, job: Job, staging: str, manifest: Manifest, day: date, now: datetime) -> Reported:
    start, end = span(day, job.zone)
    around = utc_days(start - tables.AROUND, end + tables.AROUND)
    earlier = output.reports_before(job.output, day)
    client_files = {folder: job.output.url(f"{folder}/clients.parquet") for folder in earlier}
    before = client_files.get(output.report(day, -1))
    events = tables.DayEvents(
        {stream.name: load(spark, job.output, manifest, stream, around) for stream in STREAMS.values()},
        known=_client_ids(spark, [*client_files.values()]),
        day_before=_client_ids(spark, [before] if before else []),
        start=start,
        end=end,
        objective_ms=job.objective_ms,
    )
    folder = f"{staging}/report-{day}"
    tables.write(spark, events, job.output, folder)
    read_back = [name for name in tables.TABLES if name not in NOT_READ_BACK]
    made = {name: _rows(job.output, f"{folder}/{name}.parquet", job.zone) for name in read_back}
    days = utc_days(start, end)
    before_it = output.summaries(job.output, day, max(TREND_DAYS))
    summary = summarize(
        made,
        {stream: _count(manifest, stream, days, events.of(stream).count()) for stream in STREAMS},
        before_it,
        day=str(day),
        time_zone=job.zone.key,
        made_at=now.astimezone(job.zone).isoformat(timespec="seconds"),
        is_over=end <= now,
        objective_ms=job.objective_ms,
    )
    # Here, for matplotlib keeps its cache where the session says, and an ingest doesn't need it.
    from flockmq_analytics.plots import plots

    said = text(summary, made)
    drawn = plots(summary, made, before_it, job.zone)
    output.write_report(job.output, folder, summary, said, page(summary, made, drawn, job.zone))
    output.publish_report(job.output, folder, day)
    return Reported(summary, said)


def _client_ids(spark: SparkSession, files: Sequence[str]) -> DataFrame:
    return (
        spark.read.schema("client_id STRING").parquet(*files)
        if files
        else spark.createDataFrame([], "client_id STRING")
    )


def _rows(target: Storage, name: str, zone: ZoneInfo) -> Rows:
    """Times are in the time zone."""
    with target.open(name) as source:
        rows: list[dict[str, object]] = pq.ParquetFile(source).read().to_pylist()
    return [
        {name: value.astimezone(zone) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _count(manifest: Manifest, stream: str, days: Sequence[date], events: int) -> StreamCount:
    by_day: Mapping[str, Malformed] = manifest.malformed.get(stream, {})
    kept = [by_day[str(day)] for day in days if str(day) in by_day]
    example = next((one.example for one in kept), "")
    return StreamCount(events, malformed=sum(one.count for one in kept), malformed_example=example)


def _compact(
    spark: SparkSession, target: Storage, staging: str, manifest: Manifest, stream: Stream, day: str
) -> Manifest:
    """As few files as its rows need, in the order of time."""
    files = manifest.files[stream.name][day]
    rows = sum(file.rows for file in files)
    wanted = -(-rows // ROWS_PER_FILE)
    if len(files) <= wanted:
        return manifest
    events = load(spark, target, manifest, stream, [date.fromisoformat(day)])
    staged = f"{staging}/compacted-{stream.name}"
    ordered = events.coalesce(wanted).sortWithinPartitions("at", "entry_id", "position")
    ordered.write.mode("overwrite").parquet(target.url(f"{staged}/{output.PARTITION_PREFIX}{day}"))
    (compacted,) = output.publish_partitions(staged, target, stream.name, manifest.number + 1).values()
    if sum(file.rows for file in compacted) != rows:
        raise OutputError(f"{stream.name} of {day}: the {rows} rows of {len(files)} files became others")
    manifest = manifest.with_compacted(stream.name, day, compacted)
    output.commit(staging, target, manifest)
    return manifest
