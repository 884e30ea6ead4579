"""A day in figures: what the report says first, and how it compares with the days before.

Counts are exact unless they say otherwise. Percentiles are by nearest rank. What can't be known is null: how many were
connected, without samples of nodes; how long sessions were, on a day on which none ended.

Pure.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

import msgspec

from flockmq_analytics.transforms.lag import SAMPLE_S

Rows = Sequence[Mapping[str, Any]]

TREND_DAYS: Final = (7, 28)
NOTABLE_SHARE: Final = 0.2
NOTABLE_MIN: Final = 10
COMPARED: Final = {
    "peak_connections": "connections at the peak",
    "clients": "distinct clients",
    "connects": "connects",
    "abnormal": "abnormal disconnects",
    "refused": "refused connects",
    "over_objective_s": "seconds of lag beyond the objective",
}
"""What is compared with earlier days, and what it is called."""


class ShardLag(msgspec.Struct, frozen=True):
    samples: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int
    over_objective_s: int


class StreamCount(msgspec.Struct, frozen=True):
    """Of one stream: events that are there, and those that nodes saw and that never came (`shed`: for want of room at
    their node). `malformed`: by the day, in UTC, on which they were read."""

    events: int
    lost: int = 0
    shed: int = 0
    malformed: int = 0
    malformed_example: str = ""


class Trend(msgspec.Struct, frozen=True):
    """`days`: how many of the days before there are."""

    days: int
    mean: float
    change: float | None
    """As a share of the mean; null where that is 0."""


class Summary(msgspec.Struct, frozen=True):
    day: str
    time_zone: str
    made_at: str
    is_over: bool
    nodes: int
    peak_connections: int | None
    peak_at: str | None
    mean_imbalance: float | None
    """Of each minute with clients: the share of the node that has the most, over an even share; 1 is even."""
    connects: int
    disconnects: int
    abnormal: int
    takeovers: int
    refused: int
    clients: int
    new_clients: int
    gone_clients: int
    flapping_clients: int
    storms: int
    session_p50_ms: int | None
    session_p90_ms: int | None
    session_p99_ms: int | None
    objective_ms: int
    over_objective_s: int
    """Summed over nodes and shards: samples beyond the objective, each for the seconds between two."""
    bootstraps: int
    slowest_bootstrap_ms: int | None
    lag: dict[str, ShardLag]
    streams: dict[str, StreamCount]
    trends: dict[str, dict[str, Trend]] = {}
    """By figure and number of days."""
    changed: list[str] = []
    """What is notably unlike the days before, in words."""


def summarize(
    tables: Mapping[str, Rows],
    streams: Mapping[str, StreamCount],
    earlier: Sequence[Summary],
    *,
    day: str,
    time_zone: str,
    made_at: str,
    is_over: bool,
    objective_ms: int,
) -> Summary:
    """`earlier`: of the days before, the last one first."""
    minutes, arrivals, ended = tables["minutes"], tables["arrivals"][0], tables["length_percentiles"][0]
    peak = max(tables["totals"], key=lambda row: row["connections"], default=None)
    shares = [row["most"] * row["nodes"] / row["connections"] for row in tables["totals"] if row["connections"]]
    lag = {
        row["shard"]: ShardLag(
            row["samples"], row["p50_ms"], row["p95_ms"], row["p99_ms"], row["max_ms"], row["over"] * SAMPLE_S
        )
        for row in tables["lag_shards"]
    }
    counts = {name: sum(row[name] for row in minutes) for name in _COUNTS}
    names = {row["node"] for table in ("hours", "concurrency", "lag_hours") for row in tables[table]}
    lost = tables["losses"]
    made = Summary(
        day=day,
        time_zone=time_zone,
        made_at=made_at,
        is_over=is_over,
        nodes=len(names - {None}),
        peak_connections=None if peak is None else peak["connections"],
        peak_at=None if peak is None else peak["minute"].isoformat(timespec="minutes"),
        mean_imbalance=round(fmean(shares), 3) if shares else None,
        **counts,
        clients=arrivals["clients"],
        new_clients=arrivals["new"],
        gone_clients=arrivals["gone"],
        flapping_clients=len(tables["flapping"]),
        storms=len(tables["storms"]),
        session_p50_ms=ended["p50_ms"],
        session_p90_ms=ended["p90_ms"],
        session_p99_ms=ended["p99_ms"],
        objective_ms=objective_ms,
        over_objective_s=sum(one.over_objective_s for one in lag.values()),
        bootstraps=sum(row["bootstraps"] for row in tables["bootstraps"]),
        slowest_bootstrap_ms=max((row["took_ms"] for row in tables["bootstraps"]), default=None),
        lag=lag,
        streams={
            stream: msgspec.structs.replace(
                count,
                lost=sum(row["lost"] for row in lost if row["stream"] == stream),
                shed=sum(row["shed"] for row in lost if row["stream"] == stream),
            )
            for stream, count in streams.items()
        },
    )
    return compare(made, earlier)


def compare(made: Summary, earlier: Sequence[Summary]) -> Summary:
    """With trends, and what is notable of them. A day that isn't over is compared with none."""
    if not made.is_over:
        return made
    trends: dict[str, dict[str, Trend]] = {}
    changed = []
    for figure, called in COMPARED.items():
        now = getattr(made, figure)
        for days in TREND_DAYS:
            before = [value for one in earlier[:days] if (value := getattr(one, figure)) is not None]
            if now is None or not before:
                continue
            mean = fmean(before)
            trend = Trend(len(before), round(mean, 1), round(now / mean - 1, 3) if mean else None)
            trends.setdefault(figure, {})[str(days)] = trend
            if days == TREND_DAYS[0] and abs(now - mean) >= max(NOTABLE_MIN, NOTABLE_SHARE * mean):
                changed.append(_said(called, now, mean, len(before)))
    return msgspec.structs.replace(made, trends=trends, changed=changed)


def reason(code: int | None) -> str:
    """A reason code, as MQTT writes it, and its name."""
    if code is None:
        return "unknown"
    return f"0x{code:02X} {REASONS[code]}" if code in REASONS else f"0x{code:02X}"


def _said(called: str, now: int, mean: float, days: int) -> str:
    way = "more" if now > mean else "fewer"
    share = f"{abs(now / mean - 1):.0%} {way} than" if mean else "after"
    return f"{now:,} {called}: {share} {mean:,.0f}, the mean of {days} day{'s' if days > 1 else ''} before."


REASONS: Final = {
    0x00: "normal",
    0x04: "with will",
    0x80: "unspecified error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x83: "implementation specific",
    0x84: "unsupported version",
    0x85: "client id not valid",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "server unavailable",
    0x89: "server busy",
    0x8A: "banned",
    0x8B: "server shutting down",
    0x8C: "bad authentication method",
    0x8D: "keep alive timeout",
    0x8E: "session taken over",
    0x8F: "topic filter invalid",
    0x90: "topic name invalid",
    0x93: "receive maximum exceeded",
    0x94: "topic alias invalid",
    0x95: "packet too large",
    0x96: "message rate too high",
    0x97: "quota exceeded",
    0x98: "administrative action",
    0x99: "payload format invalid",
    0x9A: "retain not supported",
    0x9B: "QoS not supported",
    0x9C: "use another server",
    0x9D: "server moved",
    0x9E: "shared subscriptions not supported",
    0x9F: "connection rate exceeded",
    0xA0: "maximum connect time",
    0xA1: "subscription identifiers not supported",
    0xA2: "wildcard subscriptions not supported",
}
"""Of CONNACK and DISCONNECT (MQTT 5.0, sections 3.2.2.2 and 3.14.2.1)."""

_COUNTS: Final = ("connects", "disconnects", "abnormal", "takeovers", "refused")
