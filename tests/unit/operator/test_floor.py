"""The floor of the autoscaler rises at once and falls late."""

import pytest

from flockmq_operator.floor import HISTORY_MAX, WINDOW_S, History, remember, stabilised, wanted
from flockmq_operator.spec import Autoscaling

BOUNDS = Autoscaling(min_replicas=2, max_replicas=10, connections_per_replicant=1000)


@pytest.mark.parametrize(
    ("connections", "floor"), [(0, 2), (2000, 2), (2001, 3), (9000, 9), (9001, 10), (1_000_000, 10)]
)
def test_the_floor_holds_the_connections_within_the_bounds(connections: int, floor: int) -> None:
    assert wanted(BOUNDS, connections) == floor


def follow(*samples: tuple[float, int]) -> int:
    history: History = ()
    for now_s, floor in samples:
        history = remember(history, now_s, floor)
    return stabilised(BOUNDS, history)


def test_it_rises_at_once() -> None:
    assert follow((0, 2), (10, 8)) == 8


def test_it_stays_up_while_the_peak_is_in_the_window() -> None:
    assert follow((0, 8), (WINDOW_S - 1, 2)) == 8


def test_it_falls_when_the_peak_has_left_the_window() -> None:
    assert follow((0, 8), (10, 5), (WINDOW_S + 1, 2)) == 5


def test_narrower_bounds_count_at_once() -> None:
    narrow = Autoscaling(min_replicas=2, max_replicas=4, connections_per_replicant=1000)
    assert stabilised(narrow, ((0, 8),)) == 4


def test_nothing_known_is_the_minimum() -> None:
    assert stabilised(BOUNDS, ()) == 2


def test_the_history_is_bounded() -> None:
    history: History = ()
    for step in range(10 * HISTORY_MAX):
        history = remember(history, step / 1000, 2)
    assert len(history) == HISTORY_MAX
