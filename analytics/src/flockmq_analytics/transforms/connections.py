"""Transforms of connections and refusals: who came, how long they stayed, why they left, and who was turned away."""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

ABNORMAL_REASON_MIN: Final = 0x80
SKETCH_LG_K: Final = 15
"""2**15 buckets, 32 KiB at most: exact up to some hundred clients; 2 % are 3.5 standard errors (1.04 / 2**7.5)."""
LENGTH_BOUNDS_S: Final = (0, 1, 10, 60, 600, 3_600, 14_400, 86_400)
STORM_CONNECTS_MIN: Final = 60
STORM_TIMES_MEDIAN: Final = 5
FLAPPING_CONNECTS_MIN: Final = 10
DAY_HOURS_MAX: Final = 25
"""When the clocks go back."""
TOP: Final = 100

_CONNECTED: Final = "connected"
_DISCONNECTED: Final = "disconnected"
_TAKEN_OVER: Final = "taken_over"
_REFUSED: Final = "refused"


def minutes(connections: DataFrame, refusals: DataFrame) -> DataFrame:
    """minute TIMESTAMP, and counts: connects, disconnects, abnormal, takeovers, refused BIGINT. Quiet minutes have no
    row. `abnormal` are the disconnects with a reason code of 0x80 or more."""
    events = _both(connections, refusals)
    return events.groupBy(F.date_trunc("minute", "at").alias("minute")).agg(*_counts())


def hours(connections: DataFrame, refusals: DataFrame) -> DataFrame:
    """hour TIMESTAMP, node STRING, the counts of `minutes`, clients BIGINT (distinct ids, within 2 %), and
    clients_sketch BINARY, of which hours and nodes can be united (hll_union_agg)."""
    sketch = F.hll_sketch_agg(F.when(F.col("kind") != _REFUSED, F.col("client_id")), SKETCH_LG_K)
    counted = (
        _both(connections, refusals)
        .groupBy(F.date_trunc("hour", "at").alias("hour"), "node")
        .agg(*_counts(), sketch.alias("clients_sketch"))
    )
    clients = F.hll_sketch_estimate("clients_sketch").alias("clients")
    return counted.select("hour", "node", *_NAMES, clients, "clients_sketch")


def clients(connections: DataFrame) -> DataFrame:
    """Of one day. client_id STRING, connects, disconnects, takeovers BIGINT, and most_in_an_hour BIGINT: its connects
    in the hour in which it had the most."""
    # In one step: a fleet has as many pairs of a client and an hour as it has events.
    hour = (F.unix_timestamp(F.date_trunc("hour", "at")) / 3600).cast("int") % DAY_HOURS_MAX
    kind = F.col("kind")
    hours = [f"hour_{number}" for number in range(DAY_HOURS_MAX)]
    counted = (
        connections.where(F.col("client_id").isNotNull())
        .select("client_id", "kind", F.when(kind == _CONNECTED, hour).alias("hour"))
        .groupBy("client_id")
        .agg(
            F.count("hour").alias("connects"),
            F.count_if(kind == _DISCONNECTED).alias("disconnects"),
            F.count_if(kind == _TAKEN_OVER).alias("takeovers"),
            *(F.count_if(F.col("hour") == number).alias(name) for number, name in enumerate(hours)),
        )
    )
    most = F.greatest(*hours).alias("most_in_an_hour")
    return counted.select("client_id", "connects", "disconnects", "takeovers", most)


def arrivals(clients: DataFrame, known: DataFrame, day_before: DataFrame) -> DataFrame:
    """One row: clients, new, gone BIGINT. New are those that aren't among `known` (client_id), of all days that are
    kept; gone are those of the day before that didn't come."""
    unknown = clients.join(known.select("client_id").distinct(), "client_id", "left_anti")
    missing = day_before.select("client_id").join(clients, "client_id", "left_anti")
    counts = (
        frame.agg(F.count("*").alias(name))
        for name, frame in (("clients", clients), ("new", unknown), ("gone", missing))
    )
    first, second, third = counts
    return first.crossJoin(second).crossJoin(third)


def flapping(clients: DataFrame) -> DataFrame:
    """The rows of `clients` with FLAPPING_CONNECTS_MIN connects in one hour, the TOP of them, the worst first."""
    worst = F.desc("most_in_an_hour"), F.desc("connects"), "client_id"
    return clients.where(F.col("most_in_an_hour") >= FLAPPING_CONNECTS_MIN).orderBy(*worst).limit(TOP)


def lengths(connections: DataFrame) -> DataFrame:
    """from_s BIGINT, sessions BIGINT: how many connections that ended lasted that long, up to the next row's."""
    seconds = F.col("duration_ms") / 1000
    bound = F.coalesce(*(F.when(seconds >= lower, F.lit(lower)) for lower in reversed(LENGTH_BOUNDS_S)))
    ended = connections.where((F.col("kind") == _DISCONNECTED) & F.col("duration_ms").isNotNull())
    return ended.groupBy(bound.cast("bigint").alias("from_s")).agg(F.count("*").alias("sessions")).orderBy("from_s")


def length_percentiles(connections: DataFrame) -> DataFrame:
    """One row: sessions BIGINT, p50_ms, p90_ms, p99_ms, max_ms BIGINT; null where none ended."""
    ended = connections.where((F.col("kind") == _DISCONNECTED) & F.col("duration_ms").isNotNull())
    return ended.agg(F.count("*").alias("sessions"), *percentiles("duration_ms", "ms", (50, 90, 99)))


def reasons(connections: DataFrame) -> DataFrame:
    """ended_by STRING (null: by a node of the first release), reason_code INT, disconnects BIGINT, the most first."""
    ended = connections.where(F.col("kind") == _DISCONNECTED).groupBy("ended_by", "reason_code")
    return ended.agg(F.count("*").alias("disconnects")).orderBy(F.desc("disconnects"), "ended_by", "reason_code")


def storms(minutes: DataFrame) -> DataFrame:
    """from, to TIMESTAMP, connects, busiest_minute BIGINT, in order: spans of minutes with STORM_CONNECTS_MIN connects
    and STORM_TIMES_MEDIAN times the day's median of minutes with any. A minute's break doesn't end one."""
    busy = minutes.where(F.col("connects") > 0)
    usual = busy.agg(F.percentile_approx("connects", 0.5, F.lit(10_000)).alias("usual"))
    stormy = busy.crossJoin(F.broadcast(usual)).where(
        (F.col("connects") >= STORM_CONNECTS_MIN) & (F.col("connects") >= STORM_TIMES_MEDIAN * F.col("usual"))
    )
    # At most a day's minutes: one partition is enough.
    in_order = Window.partitionBy(F.lit(0)).orderBy("minute")
    apart = F.col("minute") - F.lag("minute").over(in_order) > F.expr("INTERVAL 2 MINUTES")
    numbered = stormy.withColumn("storm", F.sum(F.coalesce(apart, F.lit(True)).cast("int")).over(in_order))
    return (
        numbered.groupBy("storm")
        .agg(
            F.min("minute").alias("from"),
            (F.max("minute") + F.expr("INTERVAL 1 MINUTE")).alias("to"),
            F.sum("connects").alias("connects"),
            F.max("connects").alias("busiest_minute"),
        )
        .drop("storm")
        .orderBy("from")
    )


def sources(refusals: DataFrame) -> DataFrame:
    """address STRING, reason_code INT, refusals, client_ids BIGINT (within 2 %), first_at, last_at TIMESTAMP: the TOP,
    the most first."""
    ids = F.hll_sketch_estimate(F.hll_sketch_agg("client_id", SKETCH_LG_K))
    return (
        refusals.groupBy("address", "reason_code")
        .agg(
            F.count("*").alias("refusals"),
            ids.alias("client_ids"),
            F.min("at").alias("first_at"),
            F.max("at").alias("last_at"),
        )
        .orderBy(F.desc("refusals"), "address", "reason_code")
        .limit(TOP)
    )


def percentiles(column: str, unit: str, shares: tuple[int, ...]) -> list[Column]:
    """`p50_UNIT` and so on, and `max_UNIT`: by nearest rank, exact up to 10,000 values, then within 0.01 %."""
    return [
        *(F.percentile_approx(column, share / 100, F.lit(10_000)).alias(f"p{share}_{unit}") for share in shares),
        F.max(column).alias(f"max_{unit}"),
    ]


_NAMES: Final = ("connects", "disconnects", "abnormal", "takeovers", "refused")


def _both(connections: DataFrame, refusals: DataFrame) -> DataFrame:
    columns = "at", "node", "kind", "client_id", "reason_code"
    refused = refusals.withColumn("kind", F.lit(_REFUSED))
    return connections.select(*columns).unionByName(refused.select(*columns))


def _counts() -> list[Column]:
    kind = F.col("kind")
    abnormal = (kind == _DISCONNECTED) & (F.col("reason_code") >= ABNORMAL_REASON_MIN)
    conditions = kind == _CONNECTED, kind == _DISCONNECTED, abnormal, kind == _TAKEN_OVER, kind == _REFUSED
    return [F.count_if(condition).alias(name) for name, condition in zip(_NAMES, conditions, strict=True)]
