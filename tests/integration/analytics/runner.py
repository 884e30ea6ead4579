"""Runs an ingest and the report's job in this process, and reads what came of them."""

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from flockmq_analytics import ingest, job, output
from flockmq_analytics.storage import Storage
from flockmq_analytics.summary import Summary

IN_S3 = pytest.param("bucket", marks=pytest.mark.s3)
"""As `where`."""
NOW = datetime(2026, 11, 20, 23, 17, tzinfo=UTC)


class Runner:
    """Ingests into one output, and runs the job there."""

    def __init__(self, spark: SparkSession, url: str, password_file: str, where: str) -> None:
        self.spark = spark
        self.output: Storage = output.storage(spark, where)
        self.source = ingest.Source({"url": url, "password_file": password_file})

    def ingest(self, now: datetime = NOW) -> None:
        with self.output.locked() as staging:
            ingest.run(self.spark, self.source, self.output, staging, now)

    def __call__(self, *days: date, now: datetime = NOW, keep_days: int = 90) -> list[Summary]:
        self.ingest(now)
        with self.output.locked() as staging:
            task = job.Job(self.output, days or None, ZoneInfo("UTC"), keep_days, objective_ms=200)
            return [one.summary for one in job.run(self.spark, task, staging, now)]

    def table(self, day: date, name: str) -> list[dict[str, Any]]:
        return self.parquet(f"{output.report(day)}/{name}.parquet")

    def files(self, stream: str, day: date) -> list[str]:
        found = output.load(self.output).of_day(stream, day)
        return [output.data_file(stream, str(day), file) for file in found]

    def rows(self, stream: str, day: date) -> list[dict[str, Any]]:
        return [row for file in self.files(stream, day) for row in self.parquet(file)]

    def parquet(self, name: str) -> list[dict[str, Any]]:
        with self.output.open(name) as source:
            return pq.ParquetFile(source).read().to_pylist()  # type: ignore[no-any-return]
