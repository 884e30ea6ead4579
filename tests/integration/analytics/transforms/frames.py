"""Frames of events from a few lines: what isn't said is null."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from pyspark_flockmq.events import STREAMS

MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)


def at(clock: str) -> datetime:
    """H:M or H:M:S of the day."""
    hours, minutes, seconds = (*map(float, clock.split(":")), 0.0)[:3]
    return MIDNIGHT + timedelta(hours=hours, minutes=minutes, seconds=seconds)


def frame(spark: SparkSession, stream: str, events: Iterable[Mapping[str, object]]) -> DataFrame:
    names = ["entry_id", "position", *(name for name, _ in STREAMS[stream].columns)]
    made = [_row(names, number, event) for number, event in enumerate(events)]
    return spark.createDataFrame(made, STREAMS[stream].ddl)


def _row(names: list[str], number: int, event: Mapping[str, object]) -> tuple[object, ...]:
    values = {"entry_id": f"1-{number}", "position": 0} | dict(event)
    assert values.keys() <= set(names), "an event has its stream's columns"
    return tuple(values.get(name) for name in names)


def rows(result: DataFrame, *columns: str) -> list[tuple[object, ...]]:
    """As Python has them, times as H:M; of these columns, or of all."""
    return [
        tuple(f"{value.astimezone(UTC):%H:%M}" if isinstance(value, datetime) else value for value in row)
        for row in (result.select(*columns) if columns else result).collect()
    ]
