"""Transforms of the samples of each node's lag behind the log, which it takes every SAMPLE_S seconds."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from flockmq_analytics.transforms.connections import TOP, percentiles

SAMPLE_S: Final = 10
SHARES: Final = (50, 95, 99)


def hours(lag: DataFrame, objective_ms: int) -> DataFrame:
    """hour TIMESTAMP, node, shard STRING, samples BIGINT; of the lag p50_ms, p95_ms, p99_ms, max_ms and p50_entries,
    p95_entries, p99_entries, max_entries BIGINT; over BIGINT: the samples that lagged by more than the objective."""
    return lag.groupBy(F.date_trunc("hour", "at").alias("hour"), "node", "shard").agg(*_figures(objective_ms))


def shards(lag: DataFrame, objective_ms: int) -> DataFrame:
    """As `hours`, of the whole day and all nodes: shard STRING, samples, …"""
    return lag.groupBy("shard").agg(*_figures(objective_ms)).orderBy("shard")


def bootstraps(lag: DataFrame) -> DataFrame:
    """at TIMESTAMP, node, shard STRING, bootstraps, took_ms, rows BIGINT, in order: how many were done between the
    sample before and this one of the same incarnation, and how long the last of them took."""
    in_order = Window.partitionBy("node", "incarnation", "shard").orderBy("at")
    done = F.col("bootstraps") - F.lag("bootstraps").over(in_order)
    return (
        lag.where(F.col("bootstraps").isNotNull())
        .select(
            "at", "node", "shard", done.alias("bootstraps"), F.col("bootstrap_ms").alias("took_ms"),
            F.col("bootstrap_rows").alias("rows"),
        )
        .where("bootstraps > 0")
        .orderBy("at", "node", "shard")
    )  # fmt: skip


def spikes(lag: DataFrame, minutes: DataFrame, objective_ms: int) -> DataFrame:
    """minute TIMESTAMP, shard STRING, max_ms, nodes BIGINT, and what happened in the minute: connects, disconnects,
    refused BIGINT. The TOP minutes beyond the objective, the worst first; `nodes` is how many lagged so."""
    beyond = (
        lag.where(F.col("lag_ms") > objective_ms)
        .groupBy(F.date_trunc("minute", "at").alias("minute"), "shard")
        .agg(F.max("lag_ms").alias("max_ms"), F.count_distinct("node").alias("nodes"))
        .orderBy(F.desc("max_ms"), "minute", "shard")
        .limit(TOP)
    )
    around = ("connects", "disconnects", "refused")
    joined = beyond.join(minutes.select("minute", *around), "minute", "left").fillna(0, list(around))
    return joined.orderBy(F.desc("max_ms"), "minute", "shard")


def _figures(objective_ms: int) -> list[Column]:
    return [
        F.count("*").alias("samples"),
        *percentiles("lag_ms", "ms", SHARES),
        *percentiles("lag_entries", "entries", SHARES),
        F.count_if(F.col("lag_ms") > objective_ms).alias("over"),
    ]
