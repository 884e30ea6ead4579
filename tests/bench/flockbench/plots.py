"""Pictures of the results: SVG, drawn by hand so that they read on a light page and on a dark one.

One line a figure, one dot a broker on a logarithmic scale; FlockMQ stands out, the best peer is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from flockbench.report import Columns, Row, three_digits
from flockbench.results import Results
from flockbench.shapes import Shape

WIDTH: Final = 900
LEFT: Final = 300
RIGHT: Final = 40
TOP: Final = 76
ROW_HEIGHT: Final = 44
STYLE: Final = """\
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 16px; font-weight: 600; }
.quiet { fill: #57606a; }
.line { stroke: #d0d7de; }
.peer { fill: #8c959f; }
.best { fill: #57606a; }
.interpreted { fill: #79c0a8; }
.compiled { fill: #0b7a5b; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet { fill: #9198a1; }
  .line { stroke: #30363d; }
  .peer { fill: #6e7681; }
  .best { fill: #b1bac4; }
  .interpreted { fill: #2f8f74; }
  .compiled { fill: #3fd6a4; }
}"""

PICTURES: Final = {
    "bench-throughput.svg": ("Messages delivered a second", "msg/s"),
    "bench-latency.svg": ("One message in flight, publish to delivery", "µs"),
}
"""File → its title, and the unit of the figures that it shows."""


def pictures(results: Results, shapes: Sequence[Shape], columns: Columns) -> dict[str, str]:
    """The SVG files by name; a picture without a figure isn't drawn."""
    drawn = {}
    for name, (title, unit) in PICTURES.items():
        rows = [
            (shape, metric)
            for shape in shapes
            for metric in shape.metrics
            if metric.unit == unit and metric.key != "cpu_us" and results.best(shape, metric, columns.peers)
        ]
        if rows:
            drawn[name] = dots(f"{title} ({unit}), logarithmic", results, rows, columns)
    return drawn


def dots(title: str, results: Results, rows: Sequence[Row], columns: Columns) -> str:
    values = {(row, key): cell.median for row in rows for key in columns.all if (cell := results.cell(*row, key))}
    low = math.floor(math.log10(min(values.values())))
    high = max(low + 1, math.ceil(math.log10(max(values.values()))))
    height = TOP + ROW_HEIGHT * len(rows) + 24

    def across(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<style>\n{STYLE}\n</style>",
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
        *_legend(),
    ]
    for power in range(low, high + 1):
        x = across(10.0**power)
        parts.append(f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 20}"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{height - 6}" text-anchor="middle">{_tick(power)}</text>')
    for place, row in enumerate(rows):
        y = TOP + ROW_HEIGHT * place + ROW_HEIGHT / 2
        parts.append(f'<text x="{LEFT - 14}" y="{y + 4:.1f}" text-anchor="end">{escape(row[1].title)}</text>')
        parts.append(f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts += _row(results, row, columns, {key: across(v) for (r, key), v in values.items() if r == row}, y)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _row(results: Results, row: Row, columns: Columns, places: dict[str, float], y: float) -> list[str]:
    """Peers first, so that FlockMQ's dots lie above them; names above the line for the best peer, below for ours."""
    best = results.best(*row, columns.peers)
    parts = []
    for key in sorted(places, key=lambda key: (key in columns.ours, key == best)):
        cell = results.cell(*row, key)
        assert cell is not None
        kind = key if key in columns.ours else "best" if key == best else "peer"
        told = f"{columns.titles[key]}: {three_digits(cell.median)} {row[1].unit}"
        radius = 6 if key in columns.ours else 5 if key == best else 3.5
        parts.append(
            f'<circle class="{kind}" cx="{places[key]:.1f}" cy="{y:.1f}" r="{radius}">'
            f"<title>{escape(told)}</title></circle>"
        )
        if key == best:
            name = f"{columns.titles[key]} {three_digits(cell.median)}"
            parts.append(_label(name, places[key], y - 9, "quiet"))
    mine = next((key for key in ("compiled", "interpreted") if key in places), None)
    if mine is not None:
        cell = results.cell(*row, mine)
        assert cell is not None
        parts.append(_label(f"{'≥ ' if cell.load_bound else ''}{three_digits(cell.median)}", places[mine], y + 19, ""))
    return parts


def _label(text: str, x: float, y: float, kind: str) -> str:
    anchor = "end" if x > WIDTH - 110 else "middle"
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend() -> list[str]:
    parts, x = [], 16
    for kind, name in (
        ("compiled", "FlockMQ compiled"),
        ("interpreted", "FlockMQ interpreted"),
        ("best", "best peer"),
        ("peer", "other peers"),
    ):
        parts.append(f'<circle class="{kind}" cx="{x + 6}" cy="46" r="5"/>')
        parts.append(f'<text class="quiet" x="{x + 16}" y="50">{name}</text>')
        x += 40 + 7 * len(name)
    return parts


def _tick(power: int) -> str:
    for limit, unit in ((6, "M"), (3, "k")):
        if power >= limit:
            return f"{10 ** (power - limit):,} {unit}"
    return f"{10.0**power:g}"
