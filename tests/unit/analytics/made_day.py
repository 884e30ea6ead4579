"""The tables of a day, as they are read back: small, and every one with a row."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from flockmq_analytics.summary import Rows, StreamCount, Summary, summarize

BERLIN = ZoneInfo("Europe/Berlin")
MIDNIGHT = datetime(2026, 11, 20, tzinfo=BERLIN)
HOSTILE = "<script>alert(1)</script>|$x^$\n"


def at(minutes: int) -> datetime:
    return MIDNIGHT + timedelta(minutes=minutes)


def tables(**changed: Rows) -> dict[str, Rows]:
    counts = {"connects": 60, "disconnects": 40, "abnormal": 10, "takeovers": 2, "refused": 1}
    lag: dict[str, Any] = {"samples": 360, "p50_ms": 1, "p95_ms": 20, "p99_ms": 300, "max_ms": 4000, "over": 3}
    nodes = [("core-0", 10, 100), ("core-1", 10, 300), ("core-0", 11, 90), ("core-1", 11, 90)]
    made: dict[str, Rows] = {
        "minutes": [{"minute": at(10), **counts}, {"minute": at(13), **counts}],
        "hours": [{"hour": at(0), "node": node, "clients": 9, **counts} for node in ("core-0", "core-1")],
        "arrivals": [{"clients": 50, "new": 5, "gone": 3}],
        "flapping": [{"client_id": HOSTILE, "connects": 44, "most_in_an_hour": 30, "takeovers": 2}],
        "lengths": [{"from_s": 0, "sessions": 7}, {"from_s": 3600, "sessions": 9}],
        "length_percentiles": [{"sessions": 16, "p50_ms": 61_000, "p90_ms": 7_200_000, "p99_ms": 8_000_000}],
        "reasons": [{"ended_by": None, "reason_code": None, "disconnects": 1}],
        "storms": [{"from": at(10), "to": at(14), "connects": 120, "busiest_minute": 60}],
        "sources": [
            {"address": HOSTILE, "reason_code": 0x87, "refusals": 9, "client_ids": 3}
            | {"first_at": at(1), "last_at": at(2)}
        ],
        "concurrency": [{"minute": at(m), "node": node, "connections": n, "sessions": n} for node, m, n in nodes],
        "totals": [
            {"minute": at(10), "connections": 400, "most": 300, "nodes": 2},
            {"minute": at(11), "connections": 180, "most": 90, "nodes": 2},
        ],
        "lag_hours": [{"hour": at(0), "node": "core-0", "shard": "route", **lag}],
        "lag_shards": [{"shard": "route", **lag}],
        "bootstraps": [
            {"at": at(5), "node": "core-1", "shard": "route", "bootstraps": 2, "took_ms": 840, "rows": 9},
            {"at": at(9), "node": "core-1", "shard": "auth", "bootstraps": 1, "took_ms": 90, "rows": 9},
        ],
        "spikes": [
            {"minute": at(5), "shard": "route", "max_ms": 4000, "nodes": 1}
            | {"connects": 3, "disconnects": 2, "refused": 0}
        ],
        "losses": [
            {"stream": "lag", "node": "core-0", "lost": 7, "shed": 2, "gaps": 1},
            {"stream": "lag", "node": "core-1", "lost": 3, "shed": 0, "gaps": 1},
        ],
    }  # fmt: skip
    return made | changed


NOTHING: dict[str, Rows] = dict.fromkeys(tables(), ()) | {
    "arrivals": [{"clients": 0, "new": 0, "gone": 0}],
    "length_percentiles": [{"sessions": 0, "p50_ms": None, "p90_ms": None, "p99_ms": None, "max_ms": None}],
}


def summary(made: dict[str, Rows] | None = None, earlier: list[Summary] | None = None, **changed: Any) -> Summary:
    said: dict[str, Any] = {
        "day": "2026-11-20",
        "time_zone": "Europe/Berlin",
        "made_at": "2026-11-21T02:17:00+01:00",
        "is_over": True,
        "objective_ms": 1000,
    }
    streams = {"lag": StreamCount(90), "nodes": StreamCount(50, malformed=2, malformed_example="entry 5-0: bad")}
    return summarize(tables() if made is None else made, streams, earlier or [], **(said | changed))
