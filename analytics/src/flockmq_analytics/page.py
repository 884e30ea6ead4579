"""The report as a page: one file that needs no other, with the day's figures, plots and tables; and as text.

Whatever comes from clients and nodes is escaped. The page has no script, and its policy lets none in.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Final
from zoneinfo import ZoneInfo

from flockmq_analytics.summary import Rows, Summary, reason

ROWS_SHOWN: Final = 20
Cell = str | int | float | datetime | None

CSS: Final = """
:root { color-scheme: light; }
body { font: 15px/1.45 system-ui, sans-serif; color: #222; background: #fff; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.made { color: #666; margin-top: .2rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1.2rem 0; }
.figures div { border: 1px solid #ddd; border-radius: .5rem; padding: .6rem .8rem; }
.figures b { display: block; font-size: 1.35rem; } .figures span { color: #555; font-size: .85rem; }
.notes { border-left: 4px solid #d55e00; background: #fdf4ee; padding: .5rem 1rem; }
svg { width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; } th, td { padding: .25rem .7rem; border-bottom: 1px solid #e5e5e5; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
"""  # noqa: E501
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

SHOWN: Final = {
    "Reconnect storms": ("storms", ("from", "to", "connects", "busiest_minute")),
    "Clients that come and go": ("flapping", ("client_id", "connects", "most_in_an_hour", "takeovers")),
    "Refused, by source": ("sources", ("address", "reason_code", "refusals", "client_ids", "first_at", "last_at")),
    "Lag beyond the objective, and what happened in that minute": (
        "spikes",
        ("minute", "shard", "max_ms", "nodes", "connects", "disconnects", "refused"),
    ),
    "Bootstraps": ("bootstraps", ("at", "node", "shard", "bootstraps", "took_ms", "rows")),
    "Lost events": ("losses", ("stream", "node", "lost", "shed", "gaps")),
}
"""Title → table and its columns; the whole tables lie beside the page as Parquet."""


def page(summary: Summary, tables: Mapping[str, Rows], plots: Mapping[str, str], zone: ZoneInfo) -> str:
    title = f"FlockMQ, {summary.day}"
    shown = [
        _section(name, _table(columns, tables[table], zone))
        for name, (table, columns) in SHOWN.items()
        if tables[table]
    ]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="made">{escape(subtitle(summary))}</p>',
        _figures(summary),
        _notes(notes(summary)),
        *(_section(name, svg) for name, svg in plots.items()),
        _section("Lag behind the log, by shard", _lag_table(summary, zone)) if summary.lag else "",
        _section("Nodes", _table(NODE_COLUMNS, node_rows(tables), zone)),
        *shown,
    ]
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body>\n</html>\n"
    )


def subtitle(summary: Summary) -> str:
    so_far = "" if summary.is_over else " so far"
    return f"The day{so_far}, in {summary.time_zone}, of {summary.nodes} nodes; made at {summary.made_at}."


def headline(summary: Summary) -> dict[str, str]:
    """What is told first, as it is shown."""
    return {
        "connected at the peak": _number(summary.peak_connections),
        "distinct clients": _number(summary.clients),
        "of them new": _number(summary.new_clients),
        "gone since the day before": _number(summary.gone_clients),
        "connects": _number(summary.connects),
        "abnormal disconnects": _number(summary.abnormal),
        "takeovers": _number(summary.takeovers),
        "refused": _number(summary.refused),
        "reconnect storms": _number(summary.storms),
        "median connection": duration(summary.session_p50_ms),
        "lag beyond the objective": duration(summary.over_objective_s * 1000),
        "slowest bootstrap": duration(summary.slowest_bootstrap_ms),
    }


def notes(summary: Summary) -> list[str]:
    """What somebody should know before they trust, or act on, the rest."""
    lost = [
        f"{one.lost:,} events of {stream} were lost, {one.shed:,} of them at their nodes, which had no room for them."
        for stream, one in summary.streams.items()
        if one.lost
    ]
    malformed = [
        f"{one.malformed:,} events of {stream} couldn't be read; one of them: {one.malformed_example}."
        for stream, one in summary.streams.items()
        if one.malformed
    ]
    return [*summary.changed, *lost, *malformed]


NODE_COLUMNS: Final = ("node", "peak_connections", "connects", "disconnects", "abnormal", "refused", "takeovers")


def node_rows(tables: Mapping[str, Rows]) -> list[dict[str, Cell]]:
    """Each node's day."""
    nodes: dict[str, dict[str, Cell]] = {}

    def of(name: str | None) -> dict[str, Cell]:
        return nodes.setdefault(name or "unknown", {"node": name or "unknown"} | dict.fromkeys(NODE_COLUMNS[2:], 0))

    for row in tables["hours"]:
        node = of(row["node"])
        for column in NODE_COLUMNS[2:]:
            node[column] = int(str(node[column])) + row[column]
    for row in tables["concurrency"]:
        node = of(row["node"])
        node["peak_connections"] = max(int(str(node.get("peak_connections") or 0)), row["connections"] or 0)
    return [nodes[name] for name in sorted(nodes)]


def text(summary: Summary, tables: Mapping[str, Rows]) -> str:
    """The day in a few lines of Markdown, for a log."""
    figures = [f"- {value} {name}" for name, value in headline(summary).items()]
    lag = [
        {"shard": shard, "samples": one.samples, "p50 ms": one.p50_ms, "p95 ms": one.p95_ms, "p99 ms": one.p99_ms,
         "max ms": one.max_ms, "s beyond the objective": one.over_objective_s}
        for shard, one in summary.lag.items()
    ]  # fmt: skip
    blocks = [
        f"# FlockMQ report, {summary.day}",
        subtitle(summary),
        "\n".join([*figures, *(f"- Note: {_plain(note)}" for note in notes(summary))]),
        "## Connections by node",
        _markdown(NODE_COLUMNS, node_rows(tables)),
        "## Replication lag by shard",
        _markdown(tuple(lag[0]) if lag else (), lag),
    ]
    return "\n\n".join(blocks) + "\n"


def duration(ms: int | None) -> str:
    """In the unit that suits it."""
    if ms is None:
        return "-"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms} ms"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _figures(summary: Summary) -> str:
    items = (
        f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in headline(summary).items()
    )
    return f'<div class="figures">{"".join(items)}</div>'


def _notes(lines: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>' if lines else ""


def _section(title: str, inner: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{inner}"


def _lag_table(summary: Summary, zone: ZoneInfo) -> str:
    columns = "shard", "samples", "p50_ms", "p95_ms", "p99_ms", "max_ms", "over_objective_s"
    rows = [{"shard": shard} | {c: getattr(one, c) for c in columns[1:]} for shard, one in summary.lag.items()]
    return _table(columns, rows, zone)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Cell]], zone: ZoneInfo) -> str:
    numeric = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]
    heads = "".join(
        f'<th class="n">{escape(c.replace("_", " "))}</th>' if n else f"<th>{escape(c.replace('_', ' '))}</th>"
        for c, n in zip(columns, numeric, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="n">{shown}</td>' if n else f"<td>{shown}</td>"
            for shown, n in ((escape(_shown(c, row.get(c), zone)), n) for c, n in zip(columns, numeric, strict=True))
        )
        + "</tr>"
        for row in rows[:ROWS_SHOWN]
    )
    more = f"<p>{len(rows) - ROWS_SHOWN} more are in the table.</p>" if len(rows) > ROWS_SHOWN else ""
    return f'<div class="wide"><table><tr>{heads}</tr>{body}</table></div>{more}'


def _shown(column: str, value: Cell, zone: ZoneInfo) -> str:
    if column == "reason_code":
        return reason(value if isinstance(value, int) else None)
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone(zone):%H:%M:%S}"
    return f"{value:,}" if isinstance(value, int | float) else value


def _markdown(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> str:
    if not rows:
        return "None."
    cells = [[_plain("-" if (value := row.get(c)) is None else str(value)) for c in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [list(columns), ["-" * width for width in widths], *cells]
    return "\n".join(
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )


def _plain(value: str) -> str:
    """Names come from nodes: a pipe or a line break in one must not make a table of its own."""
    return value.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("\r", " ")
