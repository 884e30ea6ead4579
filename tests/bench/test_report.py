"""Ratios point the right way, bars fail when they should, and a file's block is replaced and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from flockbench.bars import Bar, judge
from flockbench.errors import BenchError
from flockbench.report import MARKER, Columns, Setting, full, replace_block
from flockbench.results import Results
from flockbench.shapes import SHAPES, Shape

MIX, CONNECTS, IDLE, ROUND_TRIP = (
    next(shape for shape in SHAPES if shape.key == key) for key in ("mix-0", "connects", "idle", "rtt-0")
)


def results_of(*samples: tuple[Shape, str, dict[str, float]]) -> Results:
    results = Results()
    for shape, broker, sample in samples:
        results.add(shape, broker, sample)
    return results


def test_a_figure_is_the_median_of_its_rounds() -> None:
    results = results_of(*((MIX, "nats", {"rate": rate}) for rate in (100.0, 900.0, 300.0)))

    cell = results.cell(MIX, MIX.metrics[0], "nats")

    assert cell is not None
    assert cell.median == 300.0


@pytest.mark.parametrize(
    ("shape", "key", "ours", "theirs"), [(MIX, "rate", 200.0, 100.0), (ROUND_TRIP, "p50_us", 50.0, 100.0)]
)
def test_a_ratio_is_above_one_where_ours_is_better(shape: Shape, key: str, ours: float, theirs: float) -> None:
    results = results_of((shape, "compiled", {key: ours}), (shape, "nats", {key: theirs}))

    assert results.ratio(shape, shape.metrics[0], "compiled", "nats") == 2.0


def test_a_failure_in_one_round_empties_the_cell() -> None:
    results = results_of((MIX, "nats", {"rate": 1.0}))
    results.failures[MIX.key, "nats"] = "closed the connection"

    assert results.cell(MIX, MIX.metrics[0], "nats") is None


@pytest.mark.parametrize(("rate", "passed"), [(200.0, True), (199.0, False)])
def test_a_bar_against_a_peer_needs_its_ratio(rate: float, passed: bool) -> None:
    results = results_of((MIX, "interpreted", {"rate": rate}), (MIX, "nats", {"rate": 100.0}))

    assert judge(Bar("mix-0", "interpreted", "nats", 2.0), results).passed is passed


@pytest.mark.parametrize(("kib", "passed"), [(2.0, True), (2.1, False)])
def test_a_bar_on_memory_needs_no_peer(kib: float, passed: bool) -> None:
    assert judge(Bar("idle", "compiled", None, 2.0), results_of((IDLE, "compiled", {"kib": kib}))).passed is passed


def test_a_bar_without_figures_is_missed() -> None:
    verdict = judge(Bar("mix-0", "interpreted", "nats", 1.0), Results())

    assert not verdict.passed
    assert "not measured" in verdict.line


def test_the_report_names_what_is_missing_lost_and_limited_by_the_client() -> None:
    results = results_of(
        (MIX, "compiled", {"rate": 2_000_000.0, "lost": 3.0, "repeated": 0.0, "client_busy": 0.2}),
        (CONNECTS, "compiled", {"rate": 40_000.0, "client_busy": 0.99}),
    )
    columns = Columns(["compiled"], [], [], {"compiled": "FlockMQ compiled", "nats": "NATS"})
    setting = Setting("a machine", "2026-01-01", 3, 1.0, {}, {"nats": "there is no go on this machine"}, 0.0)

    text = full(results, [MIX, CONNECTS], columns, setting, [])

    assert "NATS is missing: there is no go on this machine." in text
    assert "3 messages lost, 0 repeated." in text
    assert "| 2 M |" in text
    assert "| ≥ 40 k |" in text


def test_only_the_block_between_the_markers_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKER}\nold\n{MARKER}\nafter\n")

    replace_block(page, "new\nlines")

    assert page.read_text() == f"before\n{MARKER}\nnew\nlines\n{MARKER}\nafter\n"


def test_a_page_without_its_markers_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers\n")

    with pytest.raises(BenchError, match=r"page\.md.*it has 0"):
        replace_block(page, "new")
