"""Slots in which more waits for a session than it takes: when nodes are told, and when not any more."""

from __future__ import annotations

import pytest

from flockmq.bounds import CONGESTED_KEPT_S, SINK_CONGESTED_MAX_S
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, pair
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, subscribed

WINDOW = 32
QUEUE = 6


@pytest.fixture
async def congested(owner: Owner) -> Owner:
    """One whose client has acknowledged nothing of a full window, with as much behind that as is allowed at once."""
    owner.zones["default"] = Limits(max_mqueue_len=QUEUE)
    subscribed(owner)
    for number in range(1, WINDOW + QUEUE // 2 + 1):
        owner.take(number)
    assert owner.congestion_reports == []
    owner.take(WINDOW + QUEUE // 2 + 1)
    return owner


async def test_nodes_are_told_when_more_than_half_of_the_queue_waits_and_when_no_more_does(congested: Owner) -> None:
    assert congested.congestion_reports == [(SLOT, True)]
    assert len(congested.service.congestion) == 1
    congested.service.report(REPLICANT, 1, pair(PUBACK, 1))
    assert congested.congestion_reports == [(SLOT, True), (SLOT, False)]
    assert len(congested.service.congestion) == 0


async def test_they_are_told_again_before_they_forget_it(congested: Owner) -> None:
    congested.service.congestion.tick(100.0)
    congested.service.congestion.tick(100.1)
    congested.service.congestion.tick(100.0 + CONGESTED_KEPT_S / 2)
    assert congested.congestion_reports == [(SLOT, True)] * 3


async def test_a_client_that_reads_nothing_pauses_nobody_for_long(congested: Owner) -> None:
    congested.router.host.now_s += SINK_CONGESTED_MAX_S + 0.1
    congested.service.congestion.tick(congested.router.host.now_s)
    assert congested.congestion_reports == [(SLOT, True), (SLOT, False)]
    congested.take(WINDOW + QUEUE // 2 + 2)
    assert len(congested.congestion_reports) == 2, "it lags"


@pytest.mark.parametrize("how", ["gone", "with its node", "ended", "elsewhere"])
async def test_a_client_that_is_gone_pauses_nobody(congested: Owner, how: str) -> None:
    if how == "gone":
        congested.service.leave(ID, 1, -1, False)
    elif how == "with its node":
        congested.service.node_gone(REPLICANT)
    elif how == "ended":
        congested.open(2, None)
    else:
        congested.service.disown(SLOT)
    await congested.settle()
    assert congested.congestion_reports == [(SLOT, True), (SLOT, False)]
    assert len(congested.service.congestion) == 0
