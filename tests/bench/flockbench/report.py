"""Markdown of the results, and the marked block of a file that it replaces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flockbench.bars import Verdict
from flockbench.errors import BenchError
from flockbench.results import Cell, Results
from flockbench.shapes import Metric, Shape

MARKER: Final = "<!-- bench -->"
"""A line of its own before the block and one after it."""
IDLE_MACHINE_LOAD: Final = 0.5
"""The load average from which on figures are said to be disturbed."""


@dataclass(frozen=True)
class Setting:
    """Under what the results were measured: `versions` by title, `missing` by key, the load average before the run."""

    machine: str
    date: str
    rounds: int
    seconds: float
    versions: dict[str, str]
    missing: dict[str, str]
    load_before: float


@dataclass(frozen=True)
class Columns:
    """Keys of the brokers that ran: FlockMQ's variants, the peers, and the relay when it ran; and all their titles."""

    ours: Sequence[str]
    peers: Sequence[str]
    relay: Sequence[str]
    titles: dict[str, str]


Row = tuple[Shape, Metric]


def full(results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting, bars: Sequence[Verdict]) -> str:
    """What docs/bench.md holds: figures, ratios, what was noticed, versions, bars."""
    figures = _figures(results, shapes, [*columns.ours, *columns.peers, *columns.relay], columns.titles)
    sections = [
        _measured(setting),
        figures,
        _ratios(results, shapes, columns),
        _notes(results, shapes, columns, setting),
        "```\n" + "\n".join(verdict.line for verdict in bars) + "\n```",
    ]
    return "\n\n".join(section for section in sections if section)


def short(results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting) -> str:
    """What the README holds: figures of the first metric of each shape, and the ratios of its first variant."""
    first = [Shape(shape.key, shape.arguments, shape.metrics[:1], shape.idle) for shape in shapes]
    figures = _figures(results, first, [*columns.ours, *columns.peers], columns.titles)
    return "\n\n".join([figures, _ratios(results, first, columns), _measured(setting)])


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


def _measured(setting: Setting) -> str:
    versions = ", ".join(f"{title} {version}" for title, version in setting.versions.items())
    return (
        f"Measured {setting.date} on {setting.machine}: the broker on one core, the client on another, loopback, 64 B "
        f"payloads; medians of {setting.rounds} rounds of {setting.seconds:g} s. {versions}."
    )


def _rows(shapes: Iterable[Shape]) -> list[Row]:
    return [(shape, metric) for shape in shapes for metric in shape.metrics]


def _figures(results: Results, shapes: Sequence[Shape], brokers: Sequence[str], titles: dict[str, str]) -> str:
    head = ["", *(titles[broker] for broker in brokers)]
    body = [
        [_row_title(metric), *(_figure(results.cell(shape, metric, broker)) for broker in brokers)]
        for shape, metric in _rows(shapes)
    ]
    return _table(head, body)


def _ratios(results: Results, shapes: Sequence[Shape], columns: Columns) -> str:
    pairs = [(ours, peer) for ours in columns.ours for peer in columns.peers]
    if not pairs:
        return ""
    head = ["", *(f"{ours} / {columns.titles[peer]}" for ours, peer in pairs)]
    body = [
        [metric.title, *(_ratio(results.ratio(shape, metric, ours, peer)) for ours, peer in pairs)]
        for shape, metric in _rows(shapes)
    ]
    return "Ratios, above 1 where FlockMQ is ahead:\n\n" + _table(head, body)


def _notes(results: Results, shapes: Sequence[Shape], columns: Columns, setting: Setting) -> str:
    brokers = [*columns.ours, *columns.peers, *columns.relay]
    titles = {shape.key: shape.metrics[0].title for shape in shapes}
    lines = [f"{columns.titles[broker]} is missing: {why}." for broker, why in setting.missing.items()]
    lines += [
        f"{columns.titles[broker]} failed “{titles[shape]}”: {why}."
        for (shape, broker), why in results.failures.items()
    ]
    lines += [
        f"{columns.titles[broker]}, “{titles[shape.key]}”: {cell.lost:,} messages lost, {cell.repeated:,} repeated."
        for shape, broker, cell in results.flawed(brokers, shapes)
    ]
    cells = [results.cell(*row, broker) for row in _rows(shapes) for broker in brokers]
    if any(cell and cell.client_bound for cell in cells):
        lines.append("≥: the client's core was busy too, so the broker may be faster than this.")
    if setting.load_before >= IDLE_MACHINE_LOAD:
        lines.append(
            f"Other work ran here (load average {setting.load_before:.1f} before): figures are low, ratios rough."
        )
    widest = max((cell.spread for cell in cells if cell), default=0.0)
    lines.append(f"Between the rounds of one cell lie {widest:.0%} of its median at most.")
    return "\n".join(f"- {line}" for line in lines)


def _row_title(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})"


def _figure(cell: Cell | None) -> str:
    if cell is None:
        return "—"
    return ("≥ " if cell.client_bound else "") + _three_digits(cell.median)


def _three_digits(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1e6:.3g} M" if value < 1e9 else f"{value / 1e6:,.0f} M"
    if value >= 10_000:
        return f"{value / 1e3:.3g} k" if value < 999_500 else "1 M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(ratio: float | None) -> str:
    return "—" if ratio is None else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *body))
