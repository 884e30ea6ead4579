"""What was measured, reduced: medians over the rounds, and ratios that are above 1 where FlockMQ is ahead."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from flockbench.load import Sample
from flockbench.shapes import Metric, Shape

LOAD_BUSY_LIMIT: Final = 0.95
"""From this share of its core on, the load may have been what limited a rate."""
CONTENDER_SHARE: Final = 1 / 3
"""Of the best peer's first figure: a peer that is below it in a row isn't measured again there."""
NOTHING: Final = 1e-9


@dataclass(frozen=True)
class Cell:
    """One figure: the median of its rounds, and how far they lie apart as a share of it."""

    median: float
    rounds: int
    spread: float
    load_bound: bool
    lost: int
    repeated: int


@dataclass
class Results:
    """Samples by shape and broker, failures in the words of whoever noticed them."""

    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=lambda: defaultdict(list))
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What else a reader has to know, a sentence each."""

    def add(self, shape: Shape, broker: str, sample: Sample) -> None:
        self.samples[shape.key, broker].append(sample)

    def cell(self, shape: Shape, metric: Metric, broker: str) -> Cell | None:
        """None when the broker has no such figure: it is missing, it failed in any round, or nothing arrived."""
        samples = self.samples.get((shape.key, broker), [])
        values = [sample[metric.key] for sample in samples if metric.key in sample]
        if not values or (shape.key, broker) in self.failures:
            return None
        median = statistics.median(values)
        if median <= NOTHING and metric.higher_is_better:
            return None
        busy = statistics.median(sample.get("client_busy", 0.0) for sample in samples)
        return Cell(
            median,
            len(values),
            (max(values) - min(values)) / median if median else 0.0,
            metric.key == "rate" and busy >= LOAD_BUSY_LIMIT,
            int(sum(sample.get("lost", 0) for sample in samples)),
            int(sum(sample.get("repeated", 0) for sample in samples)),
        )

    def load_bound(self, shape: Shape, metric: Metric, broker: str) -> bool:
        cell = self.cell(shape, metric, broker)
        return cell is not None and cell.load_bound

    def ratio(self, shape: Shape, metric: Metric, ours: str, peer: str) -> float | None:
        """How many times better `ours` is than `peer`; None when either figure is missing or zero."""
        mine, theirs = self.cell(shape, metric, ours), self.cell(shape, metric, peer)
        if mine is None or theirs is None or min(mine.median, theirs.median) <= 0:
            return None
        return mine.median / theirs.median if metric.higher_is_better else theirs.median / mine.median

    def best(self, shape: Shape, metric: Metric, brokers: Iterable[str]) -> str | None:
        """The broker with the best figure, of those that have one."""
        cells = {broker: cell.median for broker in brokers if (cell := self.cell(shape, metric, broker))}
        if not cells:
            return None
        return (max if metric.higher_is_better else min)(cells, key=cells.__getitem__)

    def contends(self, shape: Shape, broker: str, peers: Sequence[str]) -> bool:
        """Whether another round could make a peer the best of a row, or is needed to tell."""
        if (shape.key, broker) in self.failures:
            return False
        for metric in shape.metrics:
            best = self.best(shape, metric, peers)
            ratio = None if best is None else self.ratio(shape, metric, broker, best)
            if ratio is not None and ratio >= CONTENDER_SHARE:
                return True
        return False

    def flawed(self, brokers: Iterable[str], shapes: Iterable[Shape]) -> list[tuple[Shape, str, Cell]]:
        """Cells whose messages were not all delivered exactly once."""
        cells = [(shape, broker, self.cell(shape, shape.metrics[0], broker)) for shape in shapes for broker in brokers]
        return [(shape, broker, cell) for shape, broker, cell in cells if cell and (cell.lost or cell.repeated)]
