"""How much load a node has, and which of its clients go."""

from __future__ import annotations

import pytest

from flockmq.management.rebalance_rows import AskedRebalance
from flockmq.node.node_load import MESSAGES_BUSY_PER_S, Figures, LoadScale, Weights, chosen, scale_of, total_of

BUSY = 1000.0


def loads(*nodes: Figures, weights: Weights = Weights()) -> list[float]:  # noqa: B008
    scale = scale_of(weights, total_of(nodes), len(nodes))
    return [scale.load(node) for node in nodes]


@pytest.mark.parametrize("per_client", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("durable", [0, 1])
def test_the_load_of_clients_that_are_alike_is_their_number(per_client: float, durable: int) -> None:
    nodes = [Figures(count, count * durable, count * per_client) for count in (300, 100, 0)]
    assert loads(*nodes) == pytest.approx([300.0, 100.0, 0.0])


def test_a_node_whose_few_clients_have_most_of_the_traffic_has_more_load_than_one_of_many_quiet_ones() -> None:
    few, many = loads(Figures(10, 0, 9 * BUSY), Figures(20, 0, BUSY), weights=Weights(1.0, 0.0, 1.0))
    assert (few, many) == pytest.approx((30 * (1 / 3 + 0.9) / 2, 30 * (2 / 3 + 0.1) / 2))
    assert loads(Figures(10, 10), Figures(10, 0)) == pytest.approx([20 * (2 * 0.5 + 1) / 3, 20 * (2 * 0.5) / 3])


def test_a_share_of_little_traffic_counts_for_little() -> None:
    quiet = loads(Figures(10, 0, 2.0), Figures(10, 0, 0.0))
    busy = loads(Figures(10, 0, 2 * MESSAGES_BUSY_PER_S), Figures(10, 0, 0.0))
    assert quiet[0] < 10.1
    assert busy[0] == pytest.approx(20 * (2 * 0.5 + 1) / 3)


def test_a_weight_of_nothing_counts_for_nothing() -> None:
    by_messages = Weights(0.0, 0.0, 1.0)
    assert loads(Figures(10, 5, 3 * BUSY), Figures(30, 30, BUSY), weights=by_messages) == pytest.approx([30.0, 10.0])
    assert scale_of(by_messages, Figures(10), 2) == LoadScale(), "there are no messages"
    assert scale_of(Weights(0.0, 0.0, 0.0), Figures(10, 10, 10.0), 2) == LoadScale()
    assert scale_of(Weights(), Figures(0), 2).load(Figures(0)) == 0.0


def test_weights_that_are_not_asked_are_as_configured() -> None:
    assert Weights(5.0, 6.0, 7.0).asked(AskedRebalance(messages_weight=0.0)) == Weights(5.0, 6.0, 0.0)


def test_of_clients_that_are_alike_the_oldest_go_as_many_as_are_beyond() -> None:
    assert chosen([1.0] * 5, 2.0) == [0, 1]
    assert chosen([1.0] * 5, 1.99) == [0]
    assert chosen([1 / 3] * 5, 1.0) == [0, 1, 2], "sums of shares are a little off"
    assert chosen([1.1, 0.9, 1.0], 2.0) == [0, 1], "a little more or less doesn't matter"
    assert chosen([1.0], 0.0) == chosen([], 5.0) == []


def test_a_client_of_much_traffic_goes_first_unless_it_would_be_too_much_elsewhere_too() -> None:
    assert chosen([1.0, 1.0, 20.0, 1.0], 21.0) == [2, 0]
    assert chosen([1.0, 1.0, 20.0, 1.0], 19.0) == [0, 1, 3]
    assert chosen([100.0], 60.0) == []
    assert chosen([0.0, 0.0, 0.0], 60.0) == [], "nothing would change"
