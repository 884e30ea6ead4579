"""What nodes saw and nobody has: the numbers that are missing between their events."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def gaps(events: DataFrame) -> DataFrame:
    """at TIMESTAMP, node, incarnation STRING, lost, shed BIGINT: `lost` events before `at`, of which the node itself
    had no room for `shed`. What came before the first batch of an incarnation here isn't known to be missing."""
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
    of_node = Window.partitionBy("node", "incarnation").orderBy("first", "entry_id")
    earlier = of_node.rowsBetween(Window.unboundedPreceding, -1)
    lost = F.col("first") - F.max(F.col("last") + 1).over(earlier)
    shed = F.least(lost, F.col("shed_so_far") - F.max("shed_so_far").over(earlier))
    return batches.select(
        "at", "node", "incarnation", lost.alias("lost"), F.greatest(shed, F.lit(0)).alias("shed")
    ).where("lost > 0")


def by_node(gaps: DataFrame, stream: str) -> DataFrame:
    """stream, node STRING, lost, shed, gaps BIGINT."""
    counted = gaps.groupBy("node").agg(
        F.sum("lost").alias("lost"), F.sum("shed").alias("shed"), F.count("*").alias("gaps")
    )
    return counted.select(F.lit(stream).alias("stream"), "node", "lost", "shed", "gaps")
