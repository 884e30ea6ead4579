"""`spark.read.format("flockmq")` on a real Valkey."""

import msgspec
import pytest
import redis
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from flockmq_analytics.cli import explain
from pyspark_flockmq.events import STREAMS
from pyspark_flockmq.reading import PAGE_ENTRIES

from .conftest import PASSWORD

NOON_MS = 1_795_176_000_000  # 2026-11-20T12:00:00Z
LAG = STREAMS["lag"]


def add(client: redis.Redis, entry_ms: int, events: list[list[object]]) -> None:
    client.xadd(LAG.key, {"events": msgspec.msgpack.encode(events)}, id=f"{entry_ms}-*")


def read(spark: SparkSession, url: str, password_file: str, **options: str) -> DataFrame:
    reader = spark.read.format("flockmq").option("url", url).option("password_file", password_file)
    return reader.options(stream="lag", **options).load()


def test_entries_become_rows_of_the_streams_schema(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    add(client, NOON_MS + 5, [[NOON_MS, "node-1", "route", 7, 30], [NOON_MS + 1, "node-2", "auth", 0, 0]])
    frame = read(spark, url, password_file)
    assert frame.dtypes[:5] == [
        ("entry_id", "string"),
        ("position", "int"),
        ("at", "timestamp"),
        ("node", "string"),
        ("incarnation", "string"),
    ]
    assert frame.dtypes[-1] == ("malformed", "string")
    columns = ["entry_id", "position", "node", "shard", "lag_entries", "lag_ms", "incarnation", "malformed"]
    at_ms = F.unix_millis("at").alias("at_ms")
    assert [tuple(row) for row in frame.select(at_ms, *columns).orderBy("position").collect()] == [
        (NOON_MS, f"{NOON_MS + 5}-0", 0, "node-1", "route", 7, 30, None, None),
        (NOON_MS + 1, f"{NOON_MS + 5}-0", 1, "node-2", "auth", 0, 0, None, None),
    ]


def test_a_span_of_ids_is_read_behind_its_start_up_to_its_end(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    for number in range(5):
        add(client, NOON_MS + number, [[NOON_MS, "n", "route", number, 0]])
    frame = read(spark, url, password_file, after=f"{NOON_MS}-0", until=f"{NOON_MS + 3}-0")
    assert sorted(row["lag_entries"] for row in frame.collect()) == [1, 2, 3]


def test_partitions_read_every_entry_once(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    entries = 5 * PAGE_ENTRIES + 3  # several pages in a partition, the last one not full
    for number in range(entries):
        add(client, NOON_MS + number // 2, [[NOON_MS, "n", "route", number, 0]])
    frame = read(spark, url, password_file, partitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.select(F.spark_partition_id()).distinct().count() == 4
    assert sorted(row["lag_entries"] for row in frame.collect()) == list(range(entries))


def test_from_and_to_bound_the_time_of_the_event_not_of_its_batch(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    hour = 3_600_000
    add(client, NOON_MS - 1, [[NOON_MS - 1, "n", "route", 1, 0], [NOON_MS, "n", "clock of the node is ahead", 2, 0]])
    add(client, NOON_MS + hour + 9, [[NOON_MS + hour - 1, "n", "route", 3, 0], [NOON_MS + hour, "n", "route", 4, 0]])
    span = {"from": "2026-11-20T12:00:00", "to": "2026-11-20T13:00:00Z"}
    assert sorted(row["lag_entries"] for row in read(spark, url, password_file, **span).collect()) == [2, 3]


def test_malformed_entries_are_rows_that_say_why(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    client.xadd(LAG.key, {"other": "field"}, id=f"{NOON_MS}-1")
    add(client, NOON_MS + 1, [[NOON_MS, "n", "route", -1, 0], [NOON_MS, "n", "route", 5, 0]])
    rows = read(spark, url, password_file).orderBy("entry_id", "position").collect()
    assert [(row["lag_entries"], row["malformed"]) for row in rows] == [
        (None, f"entry {NOON_MS}-1: the entry has no field 'events'"),
        (None, f"entry {NOON_MS + 1}-0, event 0: lag_entries isn't in 0..9223372036854775807"),
        (5, None),
    ]


def test_an_absent_stream_is_an_empty_frame(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    assert read(spark, url, password_file).collect() == []


def test_the_password_is_in_no_plan(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    add(client, NOON_MS, [[NOON_MS, "n", "route", 1, 0]])
    frame = read(spark, url, password_file)
    frame.explain(extended=True)
    frame.collect()
    out, err = capfd.readouterr()
    assert "flockmq" in out
    assert PASSWORD not in out + err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"url": "redis://127.0.0.1:1/0"}, 3, "Redis at 127.0.0.1:1 can't be reached"),
        ({"password_file": "/nonexistent"}, 2, "the password file /nonexistent can't be read"),
        ({"colour": "red"}, 2, "option 'colour' is unknown"),
    ],
)
def test_what_spark_raises_still_tells_what_was_wrong(
    spark: SparkSession, url: str, password_file: str, options: dict[str, str], code: int, message: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, options.pop("url", url), options.pop("password_file", password_file), **options).collect()
    exit_code, line = explain(raised.value)
    assert exit_code == code
    assert line.startswith(message)


def test_filters_bound_what_is_read_and_change_no_row(
    spark: SparkSession, client: redis.Redis, url: str, password_file: str
) -> None:
    """Of one entry one partition is read."""
    hour_ms = 3_600_000
    for hour in range(60):
        add(client, NOON_MS + hour * hour_ms, [[NOON_MS + hour * hour_ms, "n", "route", hour, 0]])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed, plain = (read(spark, url, password_file, pushdown=flag) for flag in ("true", "false"))
        for condition in (
            F.col("at") >= F.timestamp_millis(F.lit(NOON_MS + 58 * hour_ms)),
            (F.col("at") > F.timestamp_millis(F.lit(NOON_MS))) & (F.col("lag_entries") < 3),
            F.col("entry_id") == f"{NOON_MS + 5 * hour_ms}-0",
            F.col("entry_id") > f"{NOON_MS + 50 * hour_ms}-0",
        ):
            rows = pushed.where(condition).orderBy("at").collect()
            assert rows == plain.where(condition).orderBy("at").collect()
            assert rows
        assert pushed.where(F.col("entry_id") == f"{NOON_MS}-0").rdd.getNumPartitions() == 1
        assert plain.where(F.col("entry_id") == f"{NOON_MS}-0").rdd.getNumPartitions() == 8
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
