"""What is missing between the numbers of events."""

from pyspark.sql import SparkSession

from flockmq_analytics.transforms import losses

from .frames import at, frame, rows


def batch(node: str, first: int, count: int, shed: int = 0) -> list[dict[str, object]]:
    of = {"at": at("1:00"), "node": node, "incarnation": f"{node}@1", "entry_id": f"{node}-{first}", "shed": shed}
    return [{**of, "position": n, "number": first + n} for n in range(count)]


def test_what_is_missing_is_counted_and_whose_fault_it_is(spark: SparkSession) -> None:
    events = [
        *batch("a", 0, 2),
        *batch("a", 2, 3),
        *batch("a", 9, 1, shed=3),  # 5 to 8 are missing; 3 of them had no room
        *batch("a", 11, 2, shed=3),
        *batch("b", 40, 2, shed=7),  # the first that is known of it
        *batch("b", 42, 1, shed=7),
        {"at": at("1:00"), "node": "first"},
    ]
    gaps = losses.gaps(frame(spark, "lag", events))
    assert sorted(rows(gaps, "node", "lost", "shed")) == [("a", 1, 0), ("a", 4, 3)]
    assert rows(losses.by_node(gaps, "lag")) == [("lag", "a", 5, 3, 2)]


def test_a_batch_that_came_late_leaves_no_gap(spark: SparkSession) -> None:
    events = [*batch("a", 5, 2), *batch("a", 0, 5)]
    assert rows(losses.gaps(frame(spark, "lag", events))) == []
