"""What was measured, reduced: medians over the rounds, and ratios that are above 1 where FlockMQ is ahead."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from flockbench.client import Sample
from flockbench.shapes import Metric, Shape

CLIENT_BUSY_LIMIT: Final = 0.95
"""From this share of its core on, the client may have been what limited the figure."""


@dataclass(frozen=True)
class Cell:
    """One figure: the median of the rounds, and how far they lie apart as a share of it."""

    median: float
    spread: float
    client_bound: bool
    lost: int
    repeated: int


@dataclass
class Results:
    """Samples by shape and broker, failures in the words of whoever noticed them."""

    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, shape: Shape, broker: str, sample: Sample) -> None:
        self.samples[shape.key, broker].append(sample)

    def cell(self, shape: Shape, metric: Metric, broker: str) -> Cell | None:
        """None when the broker has no such figure: it is missing, or it failed in any round."""
        samples = self.samples.get((shape.key, broker), [])
        if not samples or (shape.key, broker) in self.failures:
            return None
        values = [sample[metric.key] for sample in samples]
        median = statistics.median(values)
        return Cell(
            median,
            (max(values) - min(values)) / median if median else 0.0,
            statistics.median(sample.get("client_busy", 0.0) for sample in samples) >= CLIENT_BUSY_LIMIT,
            int(sum(sample.get("lost", 0) for sample in samples)),
            int(sum(sample.get("repeated", 0) for sample in samples)),
        )

    def ratio(self, shape: Shape, metric: Metric, ours: str, peer: str) -> float | None:
        """How many times better `ours` is than `peer`; None when either figure is missing or zero."""
        mine, theirs = self.cell(shape, metric, ours), self.cell(shape, metric, peer)
        if mine is None or theirs is None or min(mine.median, theirs.median) <= 0:
            return None
        return mine.median / theirs.median if metric.higher_is_better else theirs.median / mine.median

    def flawed(self, brokers: Iterable[str], shapes: Iterable[Shape]) -> list[tuple[Shape, str, Cell]]:
        """Cells whose messages were not all delivered exactly once."""
        cells = [(shape, broker, self.cell(shape, shape.metrics[0], broker)) for shape in shapes for broker in brokers]
        return [(shape, broker, cell) for shape, broker, cell in cells if cell and (cell.lost or cell.repeated)]
