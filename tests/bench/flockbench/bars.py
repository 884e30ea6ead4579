"""The bars: what FlockMQ promises beside its peers, each judged from the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flockbench.results import Results
from flockbench.shapes import SHAPES, Metric, Shape


@dataclass(frozen=True)
class Bar:
    """`ours` has to be `bound` times better than `peer` in a shape, or better; without a peer, to need no more."""

    shape: str
    ours: str
    peer: str | None
    bound: float


@dataclass(frozen=True)
class Verdict:
    passed: bool
    line: str


BARS: Final = (
    Bar("mix-0", "interpreted", "nats", 1.0),
    Bar("mix-0", "interpreted", "mosquitto", 2.0),
    Bar("mix-1", "interpreted", "mosquitto", 3.0),
    Bar("pairs-1", "interpreted", "mosquitto", 3.0),
    Bar("idle", "interpreted", None, 2.0),
    Bar("idle", "compiled", None, 2.0),
)


def judge(bar: Bar, results: Results) -> Verdict:
    """A bar without its figures is missed: nothing measured proves nothing."""
    shape, metric = _find(bar.shape)
    if bar.peer is not None:
        found = results.ratio(shape, metric, bar.ours, bar.peer)
        wanted = f"{metric.title}: {bar.ours} ≥ {bar.bound:g} × {bar.peer}"
        passed = found is not None and found >= bar.bound
        figure = "not measured" if found is None else f"{found:.2f} ×"
    else:
        cell = results.cell(shape, metric, bar.ours)
        wanted = f"{metric.title}: {bar.ours} ≤ {bar.bound:g} {metric.unit}"
        passed = cell is not None and cell.median <= bar.bound
        figure = "not measured" if cell is None else f"{cell.median:.2f} {metric.unit}"
    return Verdict(passed, f"{'pass' if passed else 'MISS'}  {wanted} — {figure}")


def _find(key: str) -> tuple[Shape, Metric]:
    shape = next(shape for shape in SHAPES if shape.key == key)
    return shape, shape.metrics[0]
