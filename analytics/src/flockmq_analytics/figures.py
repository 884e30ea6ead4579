"""Computes the report's figures from the events, in Spark. What each figure means is said in `report.py`."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from flockmq_analytics.report import DayFigures, HourFigures, LagFigures, Losses, Percentiles

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


def losses(events: DataFrame) -> Losses:
    """Of all nodes together."""
    row = gaps(events).agg(F.sum("lost").alias("lost"), F.sum("shed").alias("shed")).first()
    return Losses(0, 0) if row is None or row["lost"] is None else Losses(row["lost"], row["shed"])


def gaps(events: DataFrame) -> DataFrame:
    """What is missing between the batches of an incarnation.

    (at TIMESTAMP, node STRING, incarnation STRING, lost BIGINT, shed BIGINT): `lost` events before `at`, of which the
    node itself shed `shed`. What came before the first batch here isn't known to be missing.
    """
    batches = (
        events.where("incarnation IS NOT NULL AND number IS NOT NULL")
        .groupBy("node", "incarnation", "entry_id")
        .agg(
            F.min("at").alias("at"),
            F.min(F.col("number") - F.col("position")).alias("first"),
            F.max("number").alias("last"),
            F.max(F.coalesce("shed", F.lit(0))).alias("shed_so_far"),
        )
    )
    earlier = (
        Window.partitionBy("node", "incarnation")
        .orderBy("first", "entry_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    end = F.max(F.col("last") + 1).over(earlier)
    lost = F.col("first") - end
    shed = F.col("shed_so_far") - F.max("shed_so_far").over(earlier)
    return (
        batches.select("at", "node", "incarnation", lost.alias("lost"), F.least(lost, shed).alias("shed"))
        .where("lost > 0")
        .withColumn("shed", F.greatest("shed", F.lit(0)))
    )


def _counts() -> list[Column]:
    kind = F.col("kind")
    abnormal = (kind == "disconnected") & (F.col("reason_code") >= ABNORMAL_REASON_MIN)
    return [
        F.count_if(kind == "connected").alias("connects"),
        F.count_if(kind == "disconnected").alias("disconnects"),
        F.count_if(abnormal).alias("abnormal"),
        F.count_distinct("client_id").alias("clients"),
    ]
