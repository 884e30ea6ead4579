"""Transforms of samples of nodes."""

from pyspark.sql import SparkSession

from flockmq_analytics.transforms import nodes

from .frames import at, frame, rows


def sample(clock: str, node: str, connections: int, **more: object) -> dict[str, object]:
    name = {"at": at(clock), "node": node, "incarnation": f"{node}@1"}
    return {**name, "connections": connections, "durable_sessions": 1, **more}


def test_a_minutes_clients_are_those_of_each_nodes_last_sample(spark: SparkSession) -> None:
    samples = [sample("0:00:10", "a", 5), sample("0:00:50", "a", 7), sample("0:00:20", "b", 3), sample("0:01", "a", 9)]
    made = nodes.concurrency(frame(spark, "nodes", samples))
    assert rows(made.orderBy("minute", "node")) == [("00:00", "a", 7, 8), ("00:00", "b", 3, 4), ("00:01", "a", 9, 10)]
    assert rows(nodes.totals(made)) == [("00:00", 10, 7, 2), ("00:01", 9, 9, 1)]


def test_hours_add_up_what_counters_grew_by_in_one_incarnation(spark: SparkSession) -> None:
    samples = [
        sample("0:10", "a", 0, messages_in=100, loop_late_ms=3),
        sample("0:20", "a", 0, messages_in=150, loop_late_ms=9),
        sample("1:00", "a", 0, messages_in=160),
        sample("1:10", "a", 0, messages_in=5, incarnation="a@2"),
        sample("1:20", "a", 0, messages_in=12, incarnation="a@2"),
    ]
    made = nodes.hours(frame(spark, "nodes", samples)).orderBy("hour")
    assert rows(made, "hour", "node", "messages_in", "bytes_out", "loop_late_ms") == [
        ("00:00", "a", 50, 0, 9),
        ("01:00", "a", 17, 0, None),
    ]
