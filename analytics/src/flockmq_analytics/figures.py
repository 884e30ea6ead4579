"""Computes the report's figures from the events, in Spark. What each figure means is said in `report.py`."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from flockmq_analytics.report import DayFigures, HourFigures, LagFigures, Percentiles

ABNORMAL_REASON_MIN: Final = 0x80
PERCENTILES: Final = {"p50": "0.50", "p90": "0.90", "p99": "0.99", "max": "1.0"}
LAGS: Final = ("lag_entries", "lag_ms")


def by_day(connections: DataFrame) -> list[DayFigures]:
    day = F.date_format("at", "yyyy-MM-dd").alias("day")
    rows = connections.groupBy(day).agg(*_counts()).orderBy("day").collect()
    return [DayFigures(**row.asDict()) for row in rows]


def by_hour(connections: DataFrame) -> list[HourFigures]:
    hour = F.date_format(F.date_trunc("hour", "at"), "yyyy-MM-dd'T'HH:mm'Z'").alias("hour")
    rows = connections.groupBy(hour, "node").agg(*_counts()).orderBy("hour", "node").collect()
    return [HourFigures(**row.asDict()) for row in rows]


def by_shard(lag: DataFrame) -> list[LagFigures]:
    percentiles = [
        F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})").cast("bigint").alias(f"{column}_{name}")
        for column in LAGS
        for name, share in PERCENTILES.items()
    ]
    rows = lag.groupBy("shard").agg(F.count("*").alias("samples"), *percentiles).orderBy("shard").collect()
    return [
        LagFigures(
            row["shard"],
            row["samples"],
            *(Percentiles(**{name: row[f"{column}_{name}"] for name in PERCENTILES}) for column in LAGS),
        )
        for row in rows
    ]


def _counts() -> list[Column]:
    kind = F.col("kind")
    abnormal = (kind == "disconnected") & (F.col("reason_code") >= ABNORMAL_REASON_MIN)
    return [
        F.count_if(kind == "connected").alias("connects"),
        F.count_if(kind == "disconnected").alias("disconnects"),
        F.count_if(abnormal).alias("abnormal"),
        F.count_distinct("client_id").alias("clients"),
    ]
