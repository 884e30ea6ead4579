"""Whatever a day's events are: what tables add up to is what a naive count of the events has."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession

from flockmq_analytics.transforms import connections, lag, nodes

from .frames import at, frame

EXAMPLES = 5
"""Each is some twenty of Spark's jobs."""
Event = dict[str, Any]

instants = st.integers(0, 86_399).map(lambda s: at(f"{s // 3600}:{s // 60 % 60}:{s % 60}"))
names = st.sampled_from(("a", "b", "c"))
reason_codes = st.sampled_from((None, 0, 0x04, 0x80, 0x8E))
lengths = st.one_of(st.none(), st.integers(0, 2**40))
happened = st.fixed_dictionaries(
    {
        "at": instants,
        "node": names,
        "kind": st.sampled_from(("connected", "disconnected", "taken_over")),
        "client_id": st.one_of(st.none(), names),
        "reason_code": reason_codes,
        "ended_by": st.sampled_from((None, "client", "server", "network")),
        "duration_ms": lengths,
    }
)
refused = st.fixed_dictionaries(
    {"at": instants, "node": names, "client_id": names, "address": names, "reason_code": reason_codes}
)
lagged = st.fixed_dictionaries(
    {"at": instants, "node": names, "shard": names, "lag_ms": st.integers(0, 2**40), "lag_entries": st.integers(0, 9)}
)
sampled = st.fixed_dictionaries(
    {"at": instants, "node": names, "connections": st.integers(0, 2**40), "durable_sessions": st.just(0)}
)
several: Callable[[st.SearchStrategy[Event]], st.SearchStrategy[list[Event]]] = lambda one: st.lists(one, max_size=60)  # noqa: E731


def sums(made: DataFrame, *columns: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in made.select(*columns).collect():
        found.update(row.asDict())
    return +found


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(several(happened), several(refused))
def test_of_connections_and_refusals(spark: SparkSession, events: list[Event], refusals: list[Event]) -> None:
    day, turned_away = frame(spark, "connections", events), frame(spark, "refusals", refusals)
    kinds = Counter(event["kind"] for event in events)
    ended = [event for event in events if event["kind"] == "disconnected"]
    naive = Counter(
        connects=kinds["connected"],
        disconnects=kinds["disconnected"],
        takeovers=kinds["taken_over"],
        abnormal=sum((event["reason_code"] or 0) >= 0x80 for event in ended),
        refused=len(refusals),
    )
    assert sums(connections.minutes(day, turned_away), *naive) == +naive
    assert sums(connections.hours(day, turned_away), *naive) == +naive
    known = [event for event in events if event["client_id"] is not None]
    of_clients = Counter(str(event["kind"]) for event in known)
    clients = connections.clients(day)
    assert sums(clients, "connects", "disconnects", "takeovers") == +Counter(
        connects=of_clients["connected"], disconnects=of_clients["disconnected"], takeovers=of_clients["taken_over"]
    )
    assert {row.client_id for row in clients.collect()} == {event["client_id"] for event in known}
    nobody = spark.createDataFrame([], "client_id STRING")
    arrived = connections.arrivals(clients, nobody, nobody).first()
    assert arrived == Row(
        clients=len({e["client_id"] for e in known}), new=len({e["client_id"] for e in known}), gone=0
    )
    assert sums(connections.reasons(day), "disconnects")["disconnects"] == len(ended)
    lasted = [event for event in ended if event["duration_ms"] is not None]
    assert sums(connections.lengths(day), "sessions")["sessions"] == len(lasted)
    assert sums(connections.length_percentiles(day), "sessions")["sessions"] == len(lasted)
    assert sums(connections.sources(turned_away), "refusals")["refusals"] == len(refusals)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(several(lagged), several(sampled), st.integers(0, 2**40))
def test_of_samples(spark: SparkSession, samples: list[Event], of_nodes: list[Event], objective_ms: int) -> None:
    lags = frame(spark, "lag", samples)
    naive = Counter(samples=len(samples), over=sum(one["lag_ms"] > objective_ms for one in samples))
    assert sums(lag.hours(lags, objective_ms), *naive) == +naive
    assert sums(lag.shards(lags, objective_ms), *naive) == +naive
    worst = max((one["lag_ms"] for one in samples), default=0)
    assert max((row.max_ms for row in lag.shards(lags, objective_ms).collect()), default=0) == worst
    last: dict[tuple[Any, str], Event] = {}
    for one in of_nodes:
        instant = one["at"]
        key = instant.replace(second=0), one["node"]
        if key not in last or last[key]["at"] <= instant:
            last[key] = one
    if len({(one["at"], one["node"]) for one in of_nodes}) == len(of_nodes):  # else the last one is any of them
        concurrent = sums(nodes.totals(nodes.concurrency(frame(spark, "nodes", of_nodes))), "connections", "nodes")
        connected = sum(one["connections"] for one in last.values())
        assert concurrent == +Counter(connections=connected, nodes=len(last))
