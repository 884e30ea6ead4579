"""Ratios point the right way, goals fail when they should, and a file's block is replaced and nothing else."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from flockbench.alone import ALONE
from flockbench.errors import BenchError
from flockbench.goals import GOALS, Goal, judge
from flockbench.lasting import LASTING
from flockbench.log import LOG
from flockbench.peers import PEERS
from flockbench.plots import pictures
from flockbench.report import MARKER, README_ROWS, Columns, Setting, full, replace_block, short
from flockbench.results import Results
from flockbench.shapes import SHAPES, Metric, Shape

MIXED, CONNECTS, IDLE, LATENCY = (
    next(shape for shape in SHAPES if shape.key == key) for key in ("mixed", "connects", "idle", "latency-0")
)
EVERYTHING = [*SHAPES, ALONE, LOG, LASTING]
PEER_KEYS = ["mosquitto", "nats", "aedes"]
COLUMNS = Columns(
    ["interpreted", "compiled"],
    PEER_KEYS,
    {
        "interpreted": "FlockMQ interpreted",
        "compiled": "FlockMQ compiled",
        "mosquitto": "Mosquitto",
        "nats": "NATS",
        "aedes": "aedes",
        "amqtt": "amqtt",
    },
)
SETTING = Setting(
    "a machine", "2026-01-01", 3, 1.0, 20.0, {"NATS": "2.0"}, {"amqtt": "there is no `pip` on this machine"}, 0.0
)


def results_of(*samples: tuple[Shape, str, dict[str, float]]) -> Results:
    results = Results()
    for shape, broker, sample in samples:
        results.add(shape, broker, sample)
    return results


def verdict(goal: Goal, results: Results) -> tuple[bool, str]:
    judged = judge(goal, results, EVERYTHING, PEER_KEYS)
    return judged.met, judged.line


def test_a_figure_is_the_median_of_its_rounds() -> None:
    results = results_of(*((MIXED, "nats", {"rate": rate}) for rate in (100.0, 900.0, 300.0)))

    cell = results.cell(MIXED, MIXED.metrics[0], "nats")

    assert cell is not None
    assert (cell.median, cell.rounds) == (300.0, 3)


@pytest.mark.parametrize(
    ("shape", "key", "ours", "theirs"), [(MIXED, "rate", 200.0, 100.0), (LATENCY, "p50_us", 50.0, 100.0)]
)
def test_a_ratio_is_above_one_where_ours_is_better(shape: Shape, key: str, ours: float, theirs: float) -> None:
    results = results_of((shape, "compiled", {key: ours}), (shape, "nats", {key: theirs}))

    assert results.ratio(shape, shape.metrics[0], "compiled", "nats") == 2.0


@pytest.mark.parametrize(
    ("shape", "key", "best"), [(MIXED, "rate", "nats"), (LATENCY, "p50_us", "mosquitto")], ids=["most", "least"]
)
def test_the_best_peer_has_the_most_or_the_least(shape: Shape, key: str, best: str) -> None:
    results = results_of((shape, "mosquitto", {key: 10.0}), (shape, "nats", {key: 30.0}), (shape, "aedes", {key: 20.0}))

    assert results.best(shape, shape.metrics[0], PEER_KEYS) == best


def test_a_peer_far_behind_in_a_row_is_not_measured_again() -> None:
    results = results_of((MIXED, "nats", {"rate": 300.0}), (MIXED, "mosquitto", {"rate": 99.0}))
    results.failures[MIXED.key, "aedes"] = "it hung up"

    assert results.contends(MIXED, "nats", PEER_KEYS)
    assert not results.contends(MIXED, "mosquitto", PEER_KEYS)
    assert not results.contends(MIXED, "aedes", PEER_KEYS)


def test_a_failure_in_one_round_empties_the_cell() -> None:
    results = results_of((MIXED, "nats", {"rate": 1.0}))
    results.failures[MIXED.key, "nats"] = "closed the connection"

    assert results.cell(MIXED, MIXED.metrics[0], "nats") is None


def test_a_broker_that_delivered_nothing_has_no_figure() -> None:
    assert results_of((MIXED, "nats", {"rate": 0.0})).cell(MIXED, MIXED.metrics[0], "nats") is None


@pytest.mark.parametrize(("rate", "met"), [(300.0, True), (299.0, False)])
def test_a_goal_is_beside_the_best_peer(rate: float, met: bool) -> None:
    results = results_of(
        (MIXED, "compiled", {"rate": rate}), (MIXED, "nats", {"rate": 100.0}), (MIXED, "aedes", {"rate": 1.0})
    )

    assert verdict(Goal("mixed", "rate", 3.0), results)[0] is met


@pytest.mark.parametrize(("p50", "met"), [(50.0, True), (50.1, False)])
def test_a_goal_of_time_is_at_most_the_best_peers(p50: float, met: bool) -> None:
    results = results_of((LATENCY, "compiled", {"p50_us": p50}), (LATENCY, "nats", {"p50_us": 50.0}))

    assert verdict(Goal("latency-0", "p50_us", 1.0), results)[0] is met


@pytest.mark.parametrize(("kib", "met"), [(1.5, True), (1.6, False)])
def test_a_goal_on_memory_needs_no_peer(kib: float, met: bool) -> None:
    assert verdict(Goal("idle", "kib", 1.5, None), results_of((IDLE, "compiled", {"kib": kib})))[0] is met


@pytest.mark.parametrize(("rate", "met"), [(1e6, True), (999_999.0, False)])
def test_a_goal_on_a_rate_needs_no_peer(rate: float, met: bool) -> None:
    results = results_of((LOG, "compiled", {"route_rate": rate}))

    assert verdict(Goal("log", "route_rate", 1e6, None), results)[0] is met


def test_a_goal_without_figures_is_missed() -> None:
    for goal in GOALS:
        met, line = verdict(goal, Results())
        assert not met
        assert "not measured" in line


def test_goals_readme_and_pictures_name_figures_that_exist() -> None:
    known = {(shape.key, metric.key) for shape in EVERYTHING for metric in shape.metrics}
    assert {(goal.shape, goal.metric) for goal in GOALS} <= known
    assert set(README_ROWS) <= known
    assert {goal.peer for goal in GOALS} - {None, "best"} <= {peer.key for peer in PEERS}


def test_the_report_names_what_is_missing_lost_failed_and_limited_by_the_load() -> None:
    results = results_of(
        (MIXED, "compiled", {"rate": 2_000_000.0, "lost": 3.0, "repeated": 0.0, "client_busy": 0.2}),
        (MIXED, "nats", {"rate": 1_000_000.0}),
        (CONNECTS, "compiled", {"rate": 40_000.0, "cpu_us": 20.0, "client_busy": 0.99}),
        (CONNECTS, "nats", {"rate": 10_000.0, "cpu_us": 80.0}),
        (IDLE, "compiled", {"kib": 1.2}),
    )
    results.failures[MIXED.key, "aedes"] = "the broker closed the connection"

    text = full(results, [MIXED, CONNECTS, IDLE], COLUMNS, SETTING, [])

    assert "amqtt is missing: there is no `pip` on this machine." in text
    assert "3 messages lost, 0 repeated." in text
    assert f"aedes, “{MIXED.metrics[0].title}”: the broker closed the connection." in text
    assert "| 2 M¹ | — | **1 M¹** | — | 2.00× |" in text
    assert "| ≥ 40 k¹ |" in text
    assert "≥: the load's core was busy too" in text
    assert "### By itself" in text


def test_the_readme_names_the_best_peer_of_each_row() -> None:
    results = results_of(
        (MIXED, "compiled", {"rate": 3_000_000.0}),
        (MIXED, "nats", {"rate": 1_000_000.0}),
        (MIXED, "aedes", {"rate": 5.0}),
    )

    text = short(results, [MIXED], COLUMNS, SETTING)

    assert "| — | 3 M¹ | NATS | 1 M¹ | 3.00× |" in text


def test_pictures_are_well_formed_and_show_every_figure() -> None:
    metric = Metric("rate", "1→1 <&>", "msg/s")
    odd = Shape("odd", (), (metric,))
    results = results_of(*((odd, key, {"rate": 10.0**power}) for power, key in enumerate(COLUMNS.all, 3)))

    drawn = pictures(results, [odd], COLUMNS)

    (picture,) = drawn.values()
    root = ElementTree.fromstring(picture)
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(COLUMNS.all)
    assert "FlockMQ compiled: 10 k msg/s" in titles


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
