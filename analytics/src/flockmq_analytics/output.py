"""The output directory: what is in it, and how it changes.

    connections/date=2026-11-20/events.parquet     lag/date=2026-11-20/events.parquet
    report.json  report.md                         the report of the last run

A day's partition is one file, and each file changes by one rename: a reader sees the old one or the new one, whole. New
files are prepared in a staging directory on the same volume, whose name Spark and Hive skip. One run at a time holds
the lock; what a killed run left staged, the next one removes.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

PARTITION_PREFIX: Final = "date="
EVENTS_FILE: Final = "events.parquet"
STAGING: Final = ".staging"
LOCK: Final = ".lock"


class OutputError(RuntimeError):
    """The output directory can't be used; the message says why."""


@contextmanager
def locked(output: Path) -> Iterator[Path]:
    """Hold the directory, made if it isn't there; yields an empty staging directory in it."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = (output / LOCK).open("a")
    except OSError as error:
        raise OutputError(f"the output directory {output} can't be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"another run is writing to {output}; wait for it to end") from None
        staging = output / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def partition_file(output: Path, stream: str, day: date) -> Path:
    return output / stream / f"{PARTITION_PREFIX}{day}" / EVENTS_FILE


def partition_files(output: Path, stream: str, days: list[date]) -> list[Path]:
    """Those of the days' files that are there."""
    return [path for day in days if (path := partition_file(output, stream, day)).exists()]


def publish_partitions(staged: Path, output: Path, stream: str) -> None:
    """Put the one Parquet file of each staged `date=…` directory into its place; other days stay untouched."""
    for directory in sorted(staged.glob(f"{PARTITION_PREFIX}*")):
        (part,) = directory.glob("*.parquet")
        day = date.fromisoformat(directory.name.removeprefix(PARTITION_PREFIX))
        publish(part, partition_file(output, stream, day))


def publish(staged: Path, target: Path) -> None:
    """Move a file into its place, durably, by one rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sync(staged)
    staged.replace(target)
    _sync(target.parent)


def expire(output: Path, stream: str, before: date) -> int:
    """Remove the partitions of days before `before`; returns how many there were."""
    expired = 0
    for directory in (output / stream).glob(f"{PARTITION_PREFIX}*"):
        try:
            day = date.fromisoformat(directory.name.removeprefix(PARTITION_PREFIX))
        except ValueError:
            continue  # not one of ours
        if day < before:
            shutil.rmtree(directory)
            expired += 1
    return expired


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
