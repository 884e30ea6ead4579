"""Transforms of connections, on a day of a few lines."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession

from flockmq_analytics.transforms import connections

from .frames import at, frame, rows


def event(clock: str, kind: str, client_id: str = "c", **more: object) -> dict[str, object]:
    return {"at": at(clock), "kind": kind, "client_id": client_id, "node": "n", **more}


@pytest.fixture
def day(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        "connections",
        [
            event("0:00:10", "connected", "a"),
            event("0:00:20", "connected", "b", node="m"),
            event("0:01:00", "taken_over", "a"),
            event("0:01:01", "disconnected", "a", reason_code=0x8E, ended_by="server", duration_ms=51_000),
            event("0:59:59", "connected", "a"),
            event("1:00:00", "disconnected", "b", reason_code=0, ended_by="client", duration_ms=3_580_000),
            event("1:30:00", "disconnected", "a", reason_code=0x80),
        ],
    )


@pytest.fixture
def refusals(spark: SparkSession) -> DataFrame:
    events = [("0:00:30", "x", "192.0.2.1"), ("0:00:31", "y", "192.0.2.1"), ("2:00:00", "x", "192.0.2.2")]
    return frame(
        spark,
        "refusals",
        [
            {"at": at(clock), "client_id": client, "node": "n", "address": address, "reason_code": 0x87}
            for clock, client, address in events
        ],
    )


def test_minutes_count_what_happened_in_each(day: DataFrame, refusals: DataFrame) -> None:
    assert rows(connections.minutes(day, refusals).orderBy("minute")) == [
        ("00:00", 2, 0, 0, 0, 2),
        ("00:01", 0, 1, 1, 1, 0),
        ("00:59", 1, 0, 0, 0, 0),
        ("01:00", 0, 1, 0, 0, 0),
        ("01:30", 0, 1, 1, 0, 0),
        ("02:00", 0, 0, 0, 0, 1),
    ]


def test_distinct_clients_of_each_hour_are_known_within_2_percent(spark: SparkSession) -> None:
    nodes, clients = 60, 20_000
    events = spark.range(nodes * clients).selectExpr(
        "TIMESTAMP'2026-11-20 12:00:00' AS at",
        f"CAST(id % {nodes} AS STRING) AS node",
        "'connected' AS kind",
        "CONCAT('device-', id) AS client_id",
        "CAST(NULL AS INT) AS reason_code",
    )
    counted = connections.hours(events, events.limit(0))
    known = [row["clients"] for row in counted.select("clients").collect()]
    assert [each for each in known if abs(each - clients) > 0.02 * clients] == []


def test_the_hour_that_comes_twice_is_two(spark: SparkSession) -> None:
    """When the clocks go back."""
    events = [
        {"at": datetime(2026, 10, 25, hour, 30, tzinfo=UTC), "kind": "connected", "client_id": "c"} for hour in range(3)
    ]
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        (row,) = connections.clients(frame(spark, "connections", events)).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert (row["connects"], row["most_in_an_hour"]) == (3, 1)


def test_hours_count_by_node_and_whom_they_refused_is_no_client(day: DataFrame, refusals: DataFrame) -> None:
    columns = "hour", "node", "connects", "disconnects", "abnormal", "takeovers", "refused", "clients"
    assert rows(connections.hours(day, refusals).orderBy("hour", "node"), *columns) == [
        ("00:00", "m", 1, 0, 0, 0, 0, 1),
        ("00:00", "n", 2, 1, 1, 1, 2, 1),
        ("01:00", "n", 0, 2, 1, 0, 0, 2),
        ("02:00", "n", 0, 0, 0, 0, 1, 0),
    ]


def test_clients_have_their_counts_of_the_day_and_of_their_busiest_hour(day: DataFrame) -> None:
    assert rows(connections.clients(day).orderBy("client_id")) == [("a", 2, 2, 1, 2), ("b", 1, 1, 0, 1)]


def test_new_clients_are_those_nobody_saw_and_gone_ones_those_of_the_day_before(
    spark: SparkSession, day: DataFrame
) -> None:
    known = spark.createDataFrame([("a",), ("old",), ("older",)], "client_id STRING")
    day_before = spark.createDataFrame([("a",), ("old",)], "client_id STRING")
    assert rows(connections.arrivals(connections.clients(day), known, day_before)) == [(2, 1, 1)]


def test_flapping_clients_connected_often_in_one_hour(spark: SparkSession) -> None:
    often, seldom = connections.FLAPPING_CONNECTS_MIN, connections.FLAPPING_CONNECTS_MIN - 1
    made = spark.createDataFrame(
        [("often", 30, 30, 0, often), ("more", 20, 20, 0, often + 1), ("seldom", 900, 900, 0, seldom)],
        "client_id STRING, connects BIGINT, disconnects BIGINT, takeovers BIGINT, most_in_an_hour BIGINT",
    )
    assert rows(connections.flapping(made), "client_id") == [("more",), ("often",)]


def test_lengths_are_counted_by_what_they_reached(spark: SparkSession) -> None:
    lasted = (0, 999, 1_000, 9_999, 10_000, 86_400_000, 2**40)
    events = [event("1:00", "disconnected", duration_ms=ms) for ms in lasted]
    ended = frame(spark, "connections", [*events, event("1:00", "disconnected"), event("1:00", "connected")])
    assert rows(connections.lengths(ended)) == [(0, 2), (1, 2), (10, 1), (86_400, 2)]
    assert rows(connections.length_percentiles(ended)) == [(7, 9_999, 2**40, 2**40, 2**40)]


def test_without_an_end_there_are_no_percentiles(spark: SparkSession) -> None:
    nothing = frame(spark, "connections", [])
    assert rows(connections.length_percentiles(nothing)) == [(0, None, None, None, None)]


def test_reasons_are_told_with_who_ended_it(day: DataFrame) -> None:
    assert rows(connections.reasons(day)) == [(None, 0x80, 1), ("client", 0, 1), ("server", 0x8E, 1)]


def storm_minutes() -> Iterator[tuple[object, int]]:
    for minute in range(60):
        yield at(f"0:{minute}"), {10: 300, 11: 700, 13: 300, 40: 250, 50: 90}.get(minute, 20)


def test_storms_are_spans_far_above_the_days_usual_minute(spark: SparkSession) -> None:
    """A minute's break doesn't end one; 90 connects are not 5 times 20."""
    minutes = spark.createDataFrame(list(storm_minutes()), "minute TIMESTAMP, connects BIGINT")
    assert rows(connections.storms(minutes)) == [("00:10", "00:14", 1300, 700), ("00:40", "00:41", 250, 250)]


def test_a_quiet_day_has_no_storm(spark: SparkSession) -> None:
    minutes = spark.createDataFrame([(at("0:00"), 1), (at("5:00"), 40)], "minute TIMESTAMP, connects BIGINT")
    assert rows(connections.storms(minutes)) == []


def test_refusals_are_told_by_their_source(refusals: DataFrame) -> None:
    assert rows(connections.sources(refusals)) == [
        ("192.0.2.1", 0x87, 2, 2, "00:00", "00:00"),
        ("192.0.2.2", 0x87, 1, 1, "02:00", "02:00"),
    ]
