"""Markdown of the results, and the marked block of a file that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flockbench.errors import BenchError
from flockbench.goals import Verdict
from flockbench.results import Cell, Results
from flockbench.shapes import Metric, Shape

MARKER: Final = "<!-- bench -->"
"""A line of its own before the block and one after it."""
IDLE_MACHINE_LOAD: Final = 0.5
"""The load average from which on figures are said to be disturbed."""
README_ROWS: Final = (
    ("one", "rate"),
    ("mixed", "rate"),
    ("fan-out", "rate"),
    ("single", "rate"),
    ("qos-1", "rate"),
    ("qos-2", "rate"),
    ("latency-0", "p50_us"),
    ("latency-1", "p99_us"),
    ("connects", "rate"),
    ("idle", "kib"),
)


@dataclass(frozen=True)
class Setting:
    """Under what the results were measured: `versions` by title, `missing` by key, the load average before the run."""

    machine: str
    date: str
    rounds: int
    seconds: float
    minutes: float
    versions: dict[str, str]
    missing: dict[str, str]
    load_before: float


@dataclass(frozen=True)
class Columns:
    """Keys of the brokers that ran, FlockMQ's variants and the peers, and all their titles."""

    ours: Sequence[str]
    peers: Sequence[str]
    titles: dict[str, str]

    @property
    def all(self) -> list[str]:
        return [*self.ours, *self.peers]


Row = tuple[Shape, Metric]


def full(
    results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting, verdicts: Sequence[Verdict]
) -> str:
    """What docs/bench.md holds: goals, figures with the ratio to each row's best peer, and all that was noticed."""
    rows = [(shape, metric) for shape in shapes for metric in shape.metrics]
    beside = [row for row in rows if any(results.cell(*row, peer) for peer in columns.peers)]
    alone = [row for row in rows if row not in beside]
    sections = [
        measured(setting),
        "### Goals\n\nCompiled, on one core.\n\n```\n" + "\n".join(verdict.line for verdict in verdicts) + "\n```"
        if verdicts
        else "",
        "### Beside the peers\n\n" + figures(results, beside, columns) if beside else "",
        "### By itself\n\n" + figures(results, alone, Columns(columns.ours, [], columns.titles)) if alone else "",
        notes(results, shapes, columns, setting),
    ]
    return "\n\n".join(section for section in sections if section)


def short(results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting) -> str:
    """What the README holds: the main rows, FlockMQ and the best peer of each."""
    rows = [(shape, metric) for shape in shapes for metric in shape.metrics if (shape.key, metric.key) in README_ROWS]
    head = ["", *(columns.titles[key] for key in columns.ours), "best peer", "", "ratio"]
    body = []
    for shape, metric in rows:
        best = results.best(shape, metric, columns.peers)
        cells = [figure(results.cell(shape, metric, key)) for key in columns.ours]
        theirs = ["—", "—"] if best is None else [columns.titles[best], figure(results.cell(shape, metric, best))]
        body.append([row_title(metric), *cells, *theirs, against(results, (shape, metric), columns)])
    return "\n\n".join([table(head, body), measured(setting)])


def measured(setting: Setting) -> str:
    versions = ", ".join(f"{title} {version}" for title, version in setting.versions.items())
    return (
        f"Measured {setting.date} on {setting.machine}, in one run of {setting.minutes:.0f} minutes: the broker on one "
        f"core, the load on the other, loopback. A figure is the median of {setting.rounds} rounds of "
        f"{setting.seconds:g} s; ¹ of one round, where the peer had done less than a third of the row's best peer or "
        f"the shape is measured once. {versions}."
    )


def figures(results: Results, rows: Sequence[Row], columns: Columns) -> str:
    """One row a figure; the last column says how many times better than the best peer the compiled broker is."""
    ratio = ["vs best peer"] if columns.peers else []
    head = ["", *(columns.titles[broker] for broker in columns.all), *ratio]
    body = []
    for row in rows:
        best = results.best(*row, columns.peers)
        cells = []
        for broker in columns.all:
            text = figure(results.cell(*row, broker))
            cells.append(f"**{text}**" if broker == best else text)
        body.append([row_title(row[1]), *cells, *([against(results, row, columns)] if ratio else [])])
    return table(head, body)


def against(results: Results, row: Row, columns: Columns) -> str:
    best = results.best(*row, columns.peers)
    ratio = None if best is None or not columns.ours else results.ratio(*row, columns.ours[-1], best)
    return "—" if ratio is None else f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def notes(results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting) -> str:
    titles = {shape.key: shape.metrics[0].title for shape in shapes}
    lines = ["Bold: the best peer of the row. Last column: FlockMQ compiled beside it, above 1 where FlockMQ is ahead."]
    lines += [f"{columns.titles[broker]} is missing: {why}." for broker, why in setting.missing.items()]
    lines += [
        f"{columns.titles[broker]}, “{titles[shape]}”: {why}."
        for (shape, broker), why in results.failures.items()
        if shape in titles
    ]
    lines += results.notes
    lines += [
        f"{columns.titles[broker]}, “{titles[shape.key]}”: {cell.lost:,} messages lost, {cell.repeated:,} repeated."
        for shape, broker, cell in results.flawed(columns.all, shapes)
    ]
    rows = [(shape, metric) for shape in shapes for metric in shape.metrics]
    cells = [cell for row in rows for broker in columns.all if (cell := results.cell(*row, broker))]
    if any(cell.load_bound for cell in cells):
        lines.append("≥: the load's core was busy too, so the broker may be faster; see its CPU a message.")
    if setting.load_before >= IDLE_MACHINE_LOAD:
        lines.append(
            f"Other work ran here (load average {setting.load_before:.1f} before): figures are low, ratios rough."
        )
    spreads = sorted(cell.spread for cell in cells if cell.rounds > 1)
    if spreads:
        middle = spreads[len(spreads) // 2]
        lines.append(
            f"The rounds of a cell lie {middle:.0%} of their median apart in the middle, {spreads[-1]:.0%} at most."
        )
    return "\n".join(f"- {line}" for line in lines)


def replace_block(path: Path, text: str) -> None:
    """Put `text` between the two marker lines of the file. Raises BenchError as `find_block` does."""
    first, last = find_block(path)
    lines = path.read_text().splitlines()
    lines[first + 1 : last] = text.splitlines()
    path.write_text("\n".join(lines) + "\n")


def find_block(path: Path) -> tuple[int, int]:
    """Indexes of the two marker lines. Raises BenchError when there aren't exactly two, or there is no such file."""
    lines = path.read_text().splitlines() if path.exists() else []
    places = [number for number, line in enumerate(lines) if line.strip() == MARKER]
    if len(places) != 2:
        raise BenchError(f"{path.name}: the figures go between two lines `{MARKER}`, but it has {len(places)}")
    return places[0], places[1]


def row_title(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})"


def figure(cell: Cell | None) -> str:
    if cell is None:
        return "—"
    return ("≥ " if cell.load_bound else "") + three_digits(cell.median) + ("¹" if cell.rounds == 1 else "")


def three_digits(value: float) -> str:
    if value >= 999_500:
        return f"{value / 1e6:.3g} M"
    if value >= 9_995:
        return f"{value / 1e3:.3g} k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
