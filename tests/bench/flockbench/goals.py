"""The goals: what the compiled broker has to reach, most of them beside the best peer of a row in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flockbench.results import Results
from flockbench.shapes import Metric, Shape

SUBJECT: Final = "compiled"


@dataclass(frozen=True)
class Goal:
    """A figure `bound` times as good as a peer's (`best`: the row's best peer's); without a peer, as good as `bound`.

    As good means: as much where more is better, as little where less is.
    """

    shape: str
    metric: str
    bound: float
    peer: str | None = "best"


@dataclass(frozen=True)
class Verdict:
    met: bool
    line: str


GOALS: Final = (
    Goal("one", "rate", 5.0),
    Goal("mixed", "rate", 3.0),
    Goal("fan-out", "rate", 10.0),
    Goal("qos-1", "rate", 3.0),
    Goal("qos-2", "rate", 3.0),
    Goal("single", "rate", 0.8, "nats"),
    Goal("single", "rate", 2.0, "mosquitto"),
    Goal("latency-0", "p50_us", 1.0),
    Goal("latency-0", "p99_us", 1.0),
    Goal("latency-1", "p50_us", 1.0),
    Goal("latency-1", "p99_us", 1.0),
    Goal("connects", "rate", 1.0, "mosquitto"),
    Goal("idle", "kib", 1.5, None),
    Goal("alone", "filter_bytes", 200.0, None),
    Goal("alone", "match_us", 3.0, None),
    Goal("alone", "crowded_ratio", 1.2, None),
    Goal("alone", "collection_ms", 10.0, None),
    Goal("alone", "retained_pause_ms", 20.0, None),
    Goal("log", "route_rate", 1e6, None),
    Goal("log", "bootstrap_s", 5.0, None),
    Goal("log", "bootstrap_pause_ms", 20.0, None),
    Goal("log", "suback_ratio", 3.0, None),
    Goal("log", "suback_more", 1.2, None),
    Goal("lasting", "ratio_0", 0.4, None),
    Goal("lasting", "ratio_3", 0.4, None),
)


def judge(goal: Goal, results: Results, shapes: Sequence[Shape], peers: Sequence[str]) -> Verdict:
    """A goal without its figures is missed: nothing measured proves nothing."""
    found = _find(goal, shapes)
    if found is None:
        return Verdict(False, f"missed  {goal.shape} {goal.metric}: not measured")
    shape, metric = found
    if goal.peer is None:
        return _absolute(goal, results, shape, metric)
    peer = results.best(shape, metric, peers) if goal.peer == "best" else goal.peer
    ratio = None if peer is None else results.ratio(shape, metric, SUBJECT, peer)
    whose = "the best peer" if goal.peer == "best" else goal.peer
    wanted = f"{metric.title}: ≥ {goal.bound:g} × {whose}"
    if ratio is None:
        return Verdict(False, f"missed  {wanted}: not measured")
    bound = "" if not results.load_bound(shape, metric, SUBJECT) else " (the load was busy too)"
    met = ratio >= goal.bound
    return Verdict(met, f"{'met   ' if met else 'missed'}  {wanted}: {ratio:.2f} × {peer}{bound}")


def _absolute(goal: Goal, results: Results, shape: Shape, metric: Metric) -> Verdict:
    cell = results.cell(shape, metric, SUBJECT)
    wanted = f"{metric.title}: {'≥' if metric.higher_is_better else '≤'} {goal.bound:,g} {metric.unit}"
    if cell is None:
        return Verdict(False, f"missed  {wanted}: not measured")
    met = cell.median >= goal.bound if metric.higher_is_better else cell.median <= goal.bound
    return Verdict(met, f"{'met   ' if met else 'missed'}  {wanted}: {cell.median:,.3g} {metric.unit}")


def _find(goal: Goal, shapes: Sequence[Shape]) -> tuple[Shape, Metric] | None:
    for shape in shapes:
        for metric in shape.metrics:
            if (shape.key, metric.key) == (goal.shape, goal.metric):
                return shape, metric
    return None
