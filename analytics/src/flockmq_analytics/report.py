"""The report: its figures, and how they read as Markdown and as JSON.

`connects`, `disconnects` and `abnormal` (disconnects with a reason code of 0x80 or more) are counts; `clients` are
distinct client ids with an event in that hour, or day. Percentiles are by nearest rank: the smallest sample that at
least that share of all samples doesn't exceed. How many clients were connected at once isn't told: a node that was
killed writes no disconnects, so the events can't say; the nodes' metric of open connections does.

Pure: `figures.py` computes what is put in here.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

MARKDOWN_ROWS_MAX: Final = 500  # rows of one table; the JSON has all


@dataclass(frozen=True)
class DayFigures:
    day: str
    connects: int
    disconnects: int
    abnormal: int
    clients: int


@dataclass(frozen=True)
class HourFigures:
    hour: str
    node: str
    connects: int
    disconnects: int
    abnormal: int
    clients: int


@dataclass(frozen=True)
class Percentiles:
    p50: int
    p90: int
    p99: int
    max: int


@dataclass(frozen=True)
class LagFigures:
    shard: str
    samples: int
    lag_entries: Percentiles
    lag_ms: Percentiles


@dataclass(frozen=True)
class Losses:
    lost: int
    shed: int


@dataclass(frozen=True)
class StreamReading:
    """What became of one stream: events in the days' files, and what was noticed by the ingests of these days."""

    events: int
    lost: int  # that nodes saw between these and that never came: their numbers are missing
    shed: int  # those of the lost that their node had no room for
    malformed: int
    malformed_example: str | None


@dataclass(frozen=True)
class Report:
    first_day: str
    last_day: str
    made_at: str
    days: list[DayFigures] = field(default_factory=list)
    hours: list[HourFigures] = field(default_factory=list)
    lag: list[LagFigures] = field(default_factory=list)
    streams: dict[str, StreamReading] = field(default_factory=dict)


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=2) + "\n"


def to_markdown(report: Report) -> str:
    span = report.first_day if report.first_day == report.last_day else f"{report.first_day} to {report.last_day}"
    blocks = [
        f"# FlockMQ report, {span} (UTC)",
        f"Made at {report.made_at}.",
        "## Connections by day",
        _table(
            ("day", "connects", "disconnects", "abnormal", "clients"),
            [(row.day, row.connects, row.disconnects, row.abnormal, row.clients) for row in report.days],
        ),
        "## Connections by hour and node",
        _table(
            ("hour", "node", "connects", "disconnects", "abnormal", "clients"),
            [(r.hour, r.node, r.connects, r.disconnects, r.abnormal, r.clients) for r in report.hours],
        ),
        "## Replication lag by shard",
        _table(
            ("shard", "samples", *(f"{p} {unit}" for unit in ("entries", "ms") for p in ("p50", "p90", "p99", "max"))),
            [(r.shard, r.samples, *_values(r.lag_entries), *_values(r.lag_ms)) for r in report.lag],
        ),
        "## What was read",
        "\n".join(line for name, reading in report.streams.items() for line in _reading(name, reading)),
    ]
    return "\n\n".join(blocks) + "\n"


def _values(percentiles: Percentiles) -> tuple[int, int, int, int]:
    return percentiles.p50, percentiles.p90, percentiles.p99, percentiles.max


def _reading(name: str, reading: StreamReading) -> Iterable[str]:
    yield f"- {name}: {reading.events} events in the files, {reading.malformed} malformed ones."
    if reading.lost:
        yield f"  - {reading.lost} events were lost, {reading.shed} of them at their nodes, which had no room for them."
    if reading.malformed_example:
        yield f"  - One of the malformed: {reading.malformed_example}."


def _table(header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    if not rows:
        return "None."
    shown = [tuple(_cell(value) for value in row) for row in rows[:MARKDOWN_ROWS_MAX]]
    widths = [max(map(len, column)) for column in zip(header, *shown, strict=True)]
    numeric = [isinstance(value, int) for value in rows[0]]
    lines = [
        _line(header, widths, numeric),
        "|" + "|".join("-" * (w + 1) + (":" if n else "-") for w, n in zip(widths, numeric, strict=True)) + "|",
        *(_line(row, widths, numeric) for row in shown),
    ]
    if len(rows) > len(shown):
        lines += ["", f"{len(rows) - len(shown)} more rows are in report.json."]
    return "\n".join(lines)


def _cell(value: str | int) -> str:
    """Names come from nodes: a pipe or a line break in one must not make a table of its own."""
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = (f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(cells, widths, numeric, strict=True))
    return "| " + " | ".join(padded) + " |"
