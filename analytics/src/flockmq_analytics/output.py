"""The output: what is in it, and how it changes.

    manifest.json                                  which files count (manifest.py)
    connections/date=2026-11-20/00000017-….parquet refusals, lag, nodes alike
    reports/date=2026-11-20/                       a day's report: tables, summary.json, report.html, report.md
    reports/latest                                 leads to that of the last day that is over, or else today's

A file is whole before anything names it, and the manifest changes at once: a reader that has read it finds what it
names, for GRACE_S at least after a newer one replaced it. New files are prepared in a staging folder, whose name Spark
and Hive skip. One run at a time holds the lock. What a killed run left, the next ones remove.
"""

import contextlib
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from flockmq_analytics.local_storage import LocalStorage
from flockmq_analytics.manifest import DataFile, Manifest
from flockmq_analytics.s3_storage import SCHEME, S3Storage
from flockmq_analytics.storage import OutputError, Storage
from flockmq_analytics.summary import Summary

PARTITION_PREFIX: Final = "date="
PARQUET: Final = ".parquet"
MANIFEST: Final = "manifest.json"
REPORTS: Final = "reports"
LATEST: Final = "latest"
SUMMARY: Final = "summary.json"
SUCCESS: Final = "_SUCCESS"
GRACE_S: Final = 3600.0


def storage(spark: SparkSession, where: str) -> Storage:
    """Of a directory, or of s3a://BUCKET/PREFIX. Raises OutputError."""
    return S3Storage(spark, where) if where.startswith(SCHEME) else LocalStorage(Path(where))


def load(output: Storage) -> Manifest:
    """Raises OutputError if it can't be read: a guess would lose events, or have them twice."""
    try:
        manifest = msgspec.json.decode(output.read(MANIFEST), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, msgspec.DecodeError) as error:
        raise OutputError(f"{output.url(MANIFEST)} can't be read: {error}") from None
    if manifest.version != 1:
        raise OutputError(f"{output.url(MANIFEST)} is of version {manifest.version}, which a newer release wrote")
    return manifest


def commit(staging: str, output: Storage, manifest: Manifest) -> None:
    """From here on the manifest's files count."""
    output.replace(staging, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def data_file(stream: str, day: str, file: DataFile) -> str:
    return f"{stream}/{PARTITION_PREFIX}{day}/{file.name}"


def publish_partitions(staged: str, output: Storage, stream: str, number: int) -> dict[str, list[DataFile]]:
    """Give the Parquet files of each staged `date=…` folder their names; returns them by day. They don't count before
    a manifest names them. No two runs use a name: not even where one of them has lost its lock."""
    run = staged.split("/")[1]
    published: dict[str, list[DataFile]] = {}
    for found in output.found(staged):
        folder, _, part = found.name.removeprefix(f"{staged}/").partition("/")
        if not (folder.startswith(PARTITION_PREFIX) and part.endswith(PARQUET)):
            continue
        of_day = published.setdefault(folder.removeprefix(PARTITION_PREFIX), [])
        with output.open(found.name) as source:
            file = DataFile(f"{number:08}-{len(of_day)}-{run}{PARQUET}", pq.read_metadata(source).num_rows)
        output.publish(found.name, f"{stream}/{folder}/{file.name}")
        of_day.append(file)
    return published


def sweep(output: Storage, streams: Iterable[str], manifest: Manifest, now_s: float) -> int:
    """Remove the files that don't count, once no reader can be at them; returns how many there were."""
    removed = 0
    for stream in streams:
        counting = {
            data_file(stream, day, file) for day, files in manifest.files.get(stream, {}).items() for file in files
        }
        idle = [
            name
            for name, changed_s in output.found(stream)
            if name.endswith(PARQUET) and name not in counting and now_s - changed_s > GRACE_S
        ]
        output.remove(idle)
        removed += len(idle)
    return removed


def report(day: date, offset: int = 0) -> str:
    """The folder of the report of a day, or of one so many days later."""
    return f"{REPORTS}/{PARTITION_PREFIX}{day + timedelta(days=offset)}"


def write_report(output: Storage, folder: str, summary: Summary, text: str, page: str) -> None:
    """Beside the tables that are in it. The folder is whole when it has SUCCESS."""
    output.write(f"{folder}/{SUMMARY}", msgspec.json.format(msgspec.json.encode(summary), indent=1))
    output.write(f"{folder}/report.md", text.encode())
    output.write(f"{folder}/report.html", page.encode())
    output.write(f"{folder}/{SUCCESS}", b"")


def publish_report(output: Storage, staged: str, day: date) -> None:
    """In place of the one that was there. If a run is killed amid it, the next one makes it again."""
    output.publish_folder(staged, report(day), SUCCESS)


def reports_before(output: Storage, day: date) -> list[str]:
    """The folders of all earlier days that are whole, the last one first."""
    paths = [PurePosixPath(found.name) for found in output.found(REPORTS)]
    whole = (str(path.parent) for path in paths if path.name == SUCCESS)
    return sorted((folder for folder in whole if folder < report(day)), reverse=True)


def summaries(output: Storage, day: date, days: int) -> list[Summary]:
    """Those of so many days before, as far as they are there and can be read, the last one first."""
    oldest = report(day, -days)
    found: list[Summary] = []
    for folder in reports_before(output, day):
        if folder >= oldest:
            with contextlib.suppress(OSError, msgspec.DecodeError):  # of another release
                found.append(msgspec.json.decode(output.read(f"{folder}/{SUMMARY}"), type=Summary))
    return found


def point_latest(output: Storage, day: str) -> None:
    if day and output.found(f"{REPORTS}/{PARTITION_PREFIX}{day}"):
        output.point(f"{REPORTS}/{LATEST}", f"{PARTITION_PREFIX}{day}")


def expire_reports(output: Storage, before: date) -> None:
    folders = {str(PurePosixPath(found.name).parent) for found in output.found(REPORTS)}
    for folder in folders:
        if f"{REPORTS}/{PARTITION_PREFIX}" <= folder < report(before):
            output.remove_folder(folder)
