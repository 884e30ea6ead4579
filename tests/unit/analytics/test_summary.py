"""A day in figures, and beside the days before."""

import msgspec
import pytest

from flockmq_analytics.summary import ShardLag, StreamCount, Trend

from .made_day import NOTHING, summary


def test_figures_are_sums_and_extremes_of_the_tables() -> None:
    made = summary()
    assert (made.nodes, made.peak_connections, made.peak_at) == (2, 400, "2026-11-20T00:10+01:00")
    assert (made.connects, made.disconnects, made.abnormal, made.takeovers, made.refused) == (120, 80, 20, 4, 2)
    assert (made.clients, made.new_clients, made.gone_clients, made.flapping_clients, made.storms) == (50, 5, 3, 1, 1)
    assert (made.session_p50_ms, made.session_p90_ms) == (61_000, 7_200_000)
    assert (made.bootstraps, made.slowest_bootstrap_ms) == (3, 840)
    assert made.lag == {"route": ShardLag(360, 1, 20, 300, 4000, 30)}
    assert made.over_objective_s == 30
    assert made.mean_imbalance == 1.25  # of 300 of 400 on one of two nodes, and of 90 of 180
    assert made.streams == {
        "lag": StreamCount(90, lost=10, shed=2),
        "nodes": StreamCount(50, malformed=2, malformed_example="entry 5-0: bad"),
    }


def test_what_nothing_tells_is_null_and_not_0() -> None:
    made = summary(NOTHING)
    assert (made.peak_connections, made.peak_at, made.mean_imbalance) == (None, None, None)
    assert (made.session_p50_ms, made.slowest_bootstrap_ms) == (None, None)
    assert made.connects == 0


def test_a_day_is_compared_with_those_before() -> None:
    week = [msgspec.structs.replace(summary(), clients=clients) for clients in (40, 30, 20, 10, 40, 30, 40)]
    month = [*week, *[msgspec.structs.replace(summary(), clients=0)] * 7]
    made = summary(earlier=month)
    assert made.trends["clients"] == {"7": Trend(7, 30.0, 0.667), "28": Trend(14, 15.0, 2.333)}
    assert made.trends["connects"]["7"] == Trend(7, 120.0, 0.0)
    assert made.changed == ["50 distinct clients: 67% more than 30, the mean of 7 days before."]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (46, []),
        (0, ["50 distinct clients: after 0, the mean of 1 day before."]),
        (100, ["50 distinct clients: 50% fewer than 100, the mean of 1 day before."]),
    ],
)
def test_only_what_is_notable_is_said(before: int, said: list[str]) -> None:
    assert summary(earlier=[msgspec.structs.replace(summary(), clients=before)]).changed == said


def test_a_day_that_is_not_over_is_compared_with_none() -> None:
    assert summary(earlier=[summary(NOTHING)], is_over=False).changed == []
