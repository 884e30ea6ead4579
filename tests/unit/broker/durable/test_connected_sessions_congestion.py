"""Slots in which more waits for a session than it takes: when nodes are told, and when not any more."""

from __future__ import annotations

import pytest

from flockmq.bounds import CONGESTED_KEPT_S, SINK_CONGESTED_MAX_S
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, pair
from unit.broker.durable.rooms import EDGE, ID, SLOT, Home, subscribed

WINDOW = 32
QUEUE = 6


@pytest.fixture
async def crowd(home: Home) -> Home:
    """One whose client has acknowledged nothing of a full window, with as much behind that as is allowed at once."""
    home.zones["default"] = Limits(max_mqueue_len=QUEUE)
    subscribed(home)
    for number in range(1, WINDOW + QUEUE // 2 + 1):
        home.take(number)
    assert home.crowded == []
    home.take(WINDOW + QUEUE // 2 + 1)
    return home


async def test_nodes_are_told_when_more_than_half_of_the_queue_waits_and_when_no_more_does(crowd: Home) -> None:
    assert crowd.crowded == [(SLOT, True)]
    assert len(crowd.residents.congestion) == 1
    crowd.residents.report(EDGE, 1, pair(PUBACK, 1))
    assert crowd.crowded == [(SLOT, True), (SLOT, False)]
    assert len(crowd.residents.congestion) == 0


async def test_they_are_told_again_before_they_forget_it(crowd: Home) -> None:
    crowd.residents.congestion.tick(100.0)
    crowd.residents.congestion.tick(100.1)
    crowd.residents.congestion.tick(100.0 + CONGESTED_KEPT_S / 2)
    assert crowd.crowded == [(SLOT, True)] * 3


async def test_a_client_that_reads_nothing_pauses_nobody_for_long(crowd: Home) -> None:
    crowd.router.now_s += SINK_CONGESTED_MAX_S + 0.1
    crowd.residents.congestion.tick(crowd.router.now_s)
    assert crowd.crowded == [(SLOT, True), (SLOT, False)]
    crowd.take(WINDOW + QUEUE // 2 + 2)
    assert len(crowd.crowded) == 2, "it lags"


@pytest.mark.parametrize("how", ["gone", "with its node", "ended", "elsewhere"])
async def test_a_client_that_is_gone_pauses_nobody(crowd: Home, how: str) -> None:
    if how == "gone":
        crowd.residents.leave(ID, 1, -1, False)
    elif how == "with its node":
        crowd.residents.node_gone(EDGE)
    elif how == "ended":
        crowd.open(2, None)
    else:
        crowd.residents.disown(SLOT)
    await crowd.settle()
    assert crowd.crowded == [(SLOT, True), (SLOT, False)]
    assert len(crowd.residents.congestion) == 0
