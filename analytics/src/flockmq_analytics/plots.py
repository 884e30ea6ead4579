"""The report's plots, as SVG: made of a day's tables, readable without colours alone, and the same for the same rows.

Plots by time show the whole day, however little of it has figures. Text stays text, in the page's own font. Names come
from clients and nodes: matplotlib escapes them, and reads no markup in them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from io import BytesIO
from typing import Any, Final
from zoneinfo import ZoneInfo

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from flockmq_analytics.days import span
from flockmq_analytics.summary import Rows, Summary, reason

STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "flockmq",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
}
# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000")
NODES_MAX: Final = 12
"""Of more nodes the smallest are drawn as one."""
OTHERS: Final = "others"
BUCKET_MINUTES: Final = 5
MINUTE: Final = timedelta(minutes=1)
COUNTS: Final = StrMethodFormatter("{x:,.0f}")
WIDTH_IN, HEIGHT_IN = 9.6, 3.0

Span = tuple[datetime, datetime]
"""When the day begins and ends, in its time zone."""


def plots(summary: Summary, tables: Mapping[str, Rows], earlier: Sequence[Summary], zone: ZoneInfo) -> dict[str, str]:
    """Title → SVG element; a plot without figures isn't there."""
    made: dict[str, str] = {}
    start, end = (instant.astimezone(zone) for instant in span(date.fromisoformat(summary.day), zone))
    day = start, end
    if tables["concurrency"]:
        made["Clients connected, by node"] = _drawn(_concurrency, tables, day)
    if tables["minutes"]:
        made["Connects, disconnects and refusals a minute"] = _drawn(_minutes, tables, day)
    if tables["lengths"]:
        made["How long connections lasted"] = _drawn(_lengths, tables)
    if tables["reasons"]:
        made["Why connections ended"] = _drawn(_reasons, tables)
    if tables["lag_hours"]:
        made["Lag behind the log, 99th percentile of an hour"] = _drawn(_lag, tables, day, summary.objective_ms)
    if earlier:
        made["The days before"] = _drawn(_days, tables, [*reversed(earlier), summary])
    return made


def _drawn(draw: Any, tables: Mapping[str, Rows], *more: object) -> str:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.add_subplot()
        axes.set_prop_cycle(color=COLOURS)
        draw(axes, tables, *more)
        if draw is not _reasons:
            axes.yaxis.set_major_formatter(COUNTS)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    """The element alone: it stands in a page, scales with it, and names nothing outside."""
    buffer = BytesIO()
    FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue().decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    opening, _, rest = text[text.index("<svg") :].partition(">")
    return re.sub(r' (width|height)="[^"]*"', "", opening) + ">" + rest


def _concurrency(axes: Any, tables: Mapping[str, Rows], day: Span) -> None:
    """Stacked: the upper edge is all clients. Of BUCKET_MINUTES each node's last; without a sample a node has none."""
    last = {(_bucket(row["minute"]), row["node"]): row for row in tables["concurrency"]}
    rows = [{**row, "minute": bucket} for (bucket, _), row in last.items()]
    most: dict[str, int] = {}
    for row in rows:
        most[row["node"]] = max(most.get(row["node"], 0), row["connections"] or 0)
    shown = sorted(sorted(most, key=lambda node: (-most[node], node))[:NODES_MAX])
    minutes = sorted({row["minute"] for row in rows})
    place = {minute: n for n, minute in enumerate(minutes)}
    names = [*shown, *([OTHERS] if len(most) > len(shown) else [])]
    series = {name: [0] * len(minutes) for name in names}
    for row in rows:
        name = row["node"] if row["node"] in shown else OTHERS
        series[name][place[row["minute"]]] += row["connections"] or 0
    ends = [*minutes, minutes[-1] + BUCKET_MINUTES * MINUTE]  # the last one lasts, too
    stacked = [[*values, values[-1]] for values in series.values()]
    axes.stackplot(ends, stacked, labels=names, step="post", linewidth=0)
    _whole_numbers(axes)
    _legend(axes)
    _times(axes, day)


def _bucket(minute: datetime) -> datetime:
    return minute - timedelta(minutes=minute.minute % BUCKET_MINUTES)


def _minutes(axes: Any, tables: Mapping[str, Rows], day: Span) -> None:
    rows = {row["minute"]: row for row in tables["minutes"]}
    first, last = min(rows) - MINUTE, max(rows) + MINUTE
    minutes = [first + n * MINUTE for n in range(int((last - first) / MINUTE) + 1)]
    for name, dashes in (("connects", "-"), ("disconnects", "--"), ("refused", ":")):
        values = [rows[minute][name] if minute in rows else 0 for minute in minutes]
        if any(values):
            axes.plot(minutes, values, dashes, label=name, linewidth=1.2)
    for row in tables["storms"]:
        axes.axvspan(row["from"], row["to"], color="#d55e00", alpha=0.15, linewidth=0)
    axes.set_yscale("symlog", linthresh=10)  # beside a storm the rest of the day would be a line at 0
    axes.set_ylim(bottom=0)
    _legend(axes)
    _times(axes, day)


def _lengths(axes: Any, tables: Mapping[str, Rows]) -> None:
    rows = tables["lengths"]
    bars = axes.bar([_length(row["from_s"]) for row in rows], [row["sessions"] for row in rows], color=COLOURS[0])
    axes.bar_label(bars, fmt="{:,.0f}", fontsize=8)
    axes.set_ylabel("connections")
    axes.grid(visible=False, axis="x")


def _reasons(axes: Any, tables: Mapping[str, Rows]) -> None:
    rows = list(tables["reasons"])[:10][::-1]
    names = [f"{row['ended_by'] or 'unknown'}, {reason(row['reason_code'])}" for row in rows]
    bars = axes.barh(names, [row["disconnects"] for row in rows], color=COLOURS[0])
    axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=3)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(COUNTS)


def _lag(axes: Any, tables: Mapping[str, Rows], day: Span, objective_ms: int) -> None:
    """Of each shard the node that lagged most."""
    worst: dict[str, dict[datetime, int]] = {}
    for row in tables["lag_hours"]:
        hours = worst.setdefault(row["shard"] or "unknown", {})
        hours[row["hour"]] = max(hours.get(row["hour"], 0), row["p99_ms"] or 0)
    for (shard, hours), marker in zip(sorted(worst.items()), _markers(), strict=False):
        axes.plot(list(hours), list(hours.values()), marker=marker, markersize=4, linewidth=1.2, label=shard)
    axes.axhline(objective_ms, color="#d55e00", linestyle="--", linewidth=1, label=f"objective, {objective_ms:,} ms")
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("ms")
    _legend(axes)
    _times(axes, day)


def _days(axes: Any, tables: Mapping[str, Rows], days: Sequence[Summary]) -> None:
    names = [one.day[5:] for one in days]
    axes.plot(names, [one.clients for one in days], marker="o", label="distinct clients")
    axes.plot(names, [one.peak_connections for one in days], marker="s", label="connected at the peak")
    axes.plot(names, [one.refused for one in days], marker="^", linestyle=":", label="refused")
    axes.set_ylim(bottom=0)
    axes.tick_params(axis="x", rotation=60)
    _legend(axes)


def _legend(axes: Any) -> None:
    """Above the plot, where it covers nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0, ncols=7, fontsize=8)


def _times(axes: Any, day: Span) -> None:
    locator = AutoDateLocator(tz=day[0].tzinfo)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=day[0].tzinfo))
    axes.set_xlim(*day)


def _whole_numbers(axes: Any) -> None:
    """From 0 on, also where there is nothing but 0."""
    axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))


def _markers() -> Iterator[str]:
    while True:
        yield from "os^Dvx"


def _length(seconds: int) -> str:
    """What a connection lasted at least, as the name of its bar."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"from {seconds // size} {unit}"
    return f"from {seconds} s" if seconds else "under 1 s"
