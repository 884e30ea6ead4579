"""Transforms of samples of the lag."""

from pyspark.sql import SparkSession

from flockmq_analytics.transforms import lag

from .frames import at, frame, rows


def sample(clock: str, ms: int, node: str = "n", **more: object) -> dict[str, object]:
    return {"at": at(clock), "node": node, "incarnation": f"{node}@1", "shard": "route", "lag_ms": ms, **more}


def test_hours_have_percentiles_by_nearest_rank(spark: SparkSession) -> None:
    samples = [sample("0:30", ms, lag_entries=ms // 10) for ms in range(1, 101)]
    made = lag.hours(frame(spark, "lag", [*samples, sample("1:00", 7, "m")]), objective_ms=90)
    assert rows(made.orderBy("hour")) == [
        ("00:00", "n", "route", 100, 50, 95, 99, 100, 5, 9, 9, 10, 10),
        ("01:00", "m", "route", 1, 7, 7, 7, 7, None, None, None, None, 0),
    ]
    assert rows(lag.shards(frame(spark, "lag", samples), 100)) == [("route", 100, 50, 95, 99, 100, 5, 9, 9, 10, 0)]


def test_a_bootstrap_is_what_the_count_grew_by_in_one_incarnation(spark: SparkSession) -> None:
    counts = (("0:00", 1, "n@1"), ("0:10", 1, "n@1"), ("0:20", 3, "n@1"), ("0:30", 0, "n@2"), ("0:40", 1, "n@2"))
    samples = [
        sample(clock, 0, incarnation=incarnation, bootstraps=count, bootstrap_ms=70, bootstrap_rows=9)
        for clock, count, incarnation in counts
    ]
    first = {"at": at("0:50"), "node": "n", "shard": "route", "lag_ms": 0}
    assert rows(lag.bootstraps(frame(spark, "lag", [*samples, first]))) == [
        ("00:20", "n", "route", 2, 70, 9),
        ("00:40", "n", "route", 1, 70, 9),
    ]


def test_spikes_come_with_what_happened_in_their_minute(spark: SparkSession) -> None:
    samples = [sample("0:05:01", 500), sample("0:05:30", 900, "m"), sample("0:06", 100), sample("0:07", 101)]
    minutes = spark.createDataFrame(
        [(at("0:05"), 40, 2, 0)], "minute TIMESTAMP, connects BIGINT, disconnects BIGINT, refused BIGINT"
    )
    assert rows(lag.spikes(frame(spark, "lag", samples), minutes, 100)) == [
        ("00:05", "route", 900, 2, 40, 2, 0),
        ("00:07", "route", 101, 1, 0, 0, 0),
    ]
