"""The output directory: what is in it, and how it changes.

    manifest.json                                  which files count (manifest.py)
    connections/date=2026-11-20/00000017-0.parquet refusals, lag, nodes alike
    reports/date=2026-11-20/                       a day's report: tables, summary.json, report.html, report.md
    reports/latest                                 a link to that of the last day that is over, or else today's

A file is whole before anything names it, and the manifest changes by one rename: a reader that has read it finds what
it names, for GRACE_S at least after a newer one replaced it. New files are prepared in a staging directory on the same
volume, whose name Spark and Hive skip. One run at a time holds the lock. What a killed run left, the next ones remove.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from flockmq_analytics.manifest import DataFile, Manifest
from flockmq_analytics.summary import Summary

PARTITION_PREFIX: Final = "date="
MANIFEST: Final = "manifest.json"
REPORTS: Final = "reports"
LATEST: Final = "latest"
SUMMARY: Final = "summary.json"
SUCCESS: Final = "_SUCCESS"
STAGING: Final = ".staging"
LOCK: Final = ".lock"
LOCK_TRY_S: Final = 0.5
GRACE_S: Final = 3600.0


class OutputError(RuntimeError):
    """The output directory can't be used; the message says why."""


@contextmanager
def locked(output: Path, wait_s: float = 0.0) -> Iterator[Path]:
    """Hold the directory, made if it isn't there; yields an empty staging directory in it. While another run holds it
    wait up to `wait_s`, then raise OutputError."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = (output / LOCK).open("a")
    except OSError as error:
        raise OutputError(f"the output directory {output} can't be written: {error.strerror}") from None
    with lock:
        until_s = time.monotonic() + wait_s
        while not _has_locked(lock.fileno()):
            if time.monotonic() >= until_s:
                raise OutputError(f"another run is writing to {output}; wait for it to end")
            time.sleep(LOCK_TRY_S)
        staging = output / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _has_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def load(output: Path) -> Manifest:
    """Raises OutputError if it can't be read: a guess would lose events, or have them twice."""
    try:
        manifest = msgspec.json.decode((output / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError:
        return Manifest()
    except (OSError, msgspec.DecodeError) as error:
        raise OutputError(f"{output / MANIFEST} can't be read: {error}") from None
    if manifest.version != 1:
        raise OutputError(f"{output / MANIFEST} is of version {manifest.version}, which a newer release wrote")
    return manifest


def commit(staging: Path, output: Path, manifest: Manifest) -> None:
    """From here on the manifest's files count."""
    staged = staging / MANIFEST
    staged.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    publish(staged, output / MANIFEST)


def data_file(output: Path, stream: str, day: str, file: DataFile) -> Path:
    return output / stream / f"{PARTITION_PREFIX}{day}" / file.name


def publish_partitions(staged: Path, output: Path, stream: str, number: int) -> dict[str, list[DataFile]]:
    """Move the Parquet files of each staged `date=…` directory to their places; returns them by day. They don't count
    before a manifest names them."""
    published: dict[str, list[DataFile]] = {}
    for directory in sorted(staged.glob(f"{PARTITION_PREFIX}*")):
        day = directory.name.removeprefix(PARTITION_PREFIX)
        for count, part in enumerate(sorted(directory.glob("*.parquet"))):
            file = DataFile(f"{number:08}-{count}.parquet", pq.read_metadata(part).num_rows)
            publish(part, data_file(output, stream, day, file))
            published.setdefault(day, []).append(file)
    return published


def publish(staged: Path, target: Path) -> None:
    """Move a file into its place, durably, by one rename."""
    if not target.parent.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        _sync(target.parent.parent)
    _sync(staged)
    staged.replace(target)
    _sync(target.parent)


def sweep(output: Path, streams: Iterator[str] | list[str], manifest: Manifest, now_s: float) -> int:
    """Remove the files that don't count, once no reader can be at them; returns how many there were."""
    removed = 0
    for stream in streams:
        counting = manifest.files.get(stream, {})
        for path in sorted((output / stream).glob(f"{PARTITION_PREFIX}*/*.parquet")):
            names = {file.name for file in counting.get(path.parent.name.removeprefix(PARTITION_PREFIX), ())}
            if path.name not in names and now_s - path.stat().st_mtime > GRACE_S:
                path.unlink()
                removed += 1
        for directory in (output / stream).glob(f"{PARTITION_PREFIX}*"):
            if not any(directory.iterdir()):
                directory.rmdir()
    return removed


def report(output: Path, day: date, offset: int = 0) -> Path:
    """The folder of the report of a day, or of one so many days later."""
    return output / REPORTS / f"{PARTITION_PREFIX}{day + timedelta(days=offset)}"


def write_report(folder: Path, summary: Summary, text: str, page: str) -> None:
    """Beside the tables that are in it. The folder is whole when it has SUCCESS."""
    (folder / SUMMARY).write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=1))
    (folder / "report.md").write_text(text)
    (folder / "report.html").write_text(page)
    (folder / SUCCESS).touch()


def publish_report(staged: Path, output: Path, day: date) -> None:
    """In place of the one that was there. If a run is killed between the two renames, the next one makes it again."""
    target = report(output, day)
    target.parent.mkdir(exist_ok=True)
    for path in [*staged.iterdir(), staged]:
        _sync(path)
    if target.exists():
        target.replace(staged.with_name(f"{staged.name}-before"))
    staged.replace(target)
    _sync(target.parent)


def reports_before(output: Path, day: date) -> list[Path]:
    """The folders of all earlier days that are whole, the last one first."""
    found = (output / REPORTS).glob(f"{PARTITION_PREFIX}*")
    return sorted(
        (folder for folder in found if (folder / SUCCESS).exists() and folder.name < report(output, day).name),
        reverse=True,
    )


def summaries(output: Path, day: date, days: int) -> list[Summary]:
    """Those of so many days before, as far as they are there and can be read, the last one first."""
    oldest = report(output, day, -days).name
    found: list[Summary] = []
    for folder in reports_before(output, day):
        if folder.name >= oldest:
            with contextlib.suppress(OSError, msgspec.DecodeError):  # of another release
                found.append(msgspec.json.decode((folder / SUMMARY).read_bytes(), type=Summary))
    return found


def point_latest(output: Path, day: str) -> None:
    if day and (output / REPORTS / f"{PARTITION_PREFIX}{day}").is_dir():
        fresh = output / REPORTS / f".{LATEST}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(f"{PARTITION_PREFIX}{day}")
        fresh.replace(output / REPORTS / LATEST)


def expire_reports(output: Path, before: date) -> None:
    for folder in (output / REPORTS).glob(f"{PARTITION_PREFIX}*"):
        if folder.name < report(output, before).name:
            shutil.rmtree(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
