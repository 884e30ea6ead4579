"""Transforms of the samples of each node: how many clients it had, and what it moved."""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

COUNTERS: Final = ("messages_in", "messages_out", "messages_dropped", "bytes_in", "bytes_out")
HIGHEST: Final = ("slot_queue_messages", "resend_messages", "store_queue_bytes", "loop_late_ms")


def concurrency(nodes: DataFrame) -> DataFrame:
    """minute TIMESTAMP, node STRING, connections, sessions BIGINT: by its last sample of the minute. A node that wrote
    none, as one that was killed, has no row."""
    return nodes.groupBy(F.date_trunc("minute", "at").alias("minute"), "node").agg(
        F.max_by("connections", "at").alias("connections"),
        (F.max_by("connections", "at") + F.max_by("durable_sessions", "at")).alias("sessions"),
    )


def totals(concurrency: DataFrame) -> DataFrame:
    """minute TIMESTAMP, connections BIGINT, most, nodes BIGINT, in order: of all nodes, and of the one that had the
    most."""
    return (
        concurrency.groupBy("minute")
        .agg(
            F.sum("connections").alias("connections"),
            F.max("connections").alias("most"),
            F.count("*").alias("nodes"),
        )
        .orderBy("minute")
    )


def hours(nodes: DataFrame) -> DataFrame:
    """hour TIMESTAMP, node STRING; what was counted from sample to sample of one incarnation: messages_in,
    messages_out, messages_dropped, bytes_in, bytes_out BIGINT; the highest of the hour: slot_queue_messages,
    resend_messages, store_queue_bytes, loop_late_ms BIGINT."""
    in_order = Window.partitionBy("node", "incarnation").orderBy("at")
    grown = {name: F.greatest(F.col(name) - F.lag(name).over(in_order), F.lit(0)) for name in COUNTERS}
    return (
        nodes.withColumns(grown)
        .groupBy(F.date_trunc("hour", "at").alias("hour"), "node")
        .agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTERS),
            *(F.max(name).alias(name) for name in HIGHEST),
        )
    )
