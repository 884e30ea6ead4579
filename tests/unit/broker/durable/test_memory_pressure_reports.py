"""Which sessions take at once what comes: what nodes are told while Redis is short of memory."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.session.remote_session import PUBACK, pair
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, clients_of_slot, request, subscribed

WINDOW = 32


@pytest.fixture
async def short(owner: Owner) -> Owner:
    """Its one client subscribed before."""
    subscribed(owner)
    owner.disk.short = owner.service.pressure_reports.is_asked = True
    return owner


def told(owner: Owner) -> list[tuple[int, bool, list[bytes]]]:
    """In the next round."""
    owner.took.clear()
    owner.machine.forward(bounds.TAKERS_KEPT_S / 4)
    owner.service.report_load()
    return [said for said in owner.took if said[0] == SLOT]


async def test_a_client_that_is_there_takes_what_comes_until_its_window_is_full(short: Owner) -> None:
    assert told(short) == [(SLOT, True, [])]
    for number in range(1, WINDOW + 1):
        assert told(short) == [(SLOT, True, [])]
        short.take(number)
    assert told(short) == [(SLOT, True, [b"a/#"])]
    await short.settle()
    short.service.report(REPLICANT, 1, pair(PUBACK, 1))
    assert told(short) == [(SLOT, True, [])]


async def test_for_one_that_is_away_messages_would_wait_but_for_those_of_qos_0(short: Owner) -> None:
    short.disk.short = False
    short.subscribe(1, b"q/0", qos=0)
    short.disk.short = True
    short.service.leave(ID, 1, -1, False)
    assert told(short) == [(SLOT, True, [b"a/#"])]


async def test_of_a_shared_subscription_its_members_take_what_comes_if_those_who_are_there_do(owner: Owner) -> None:
    owner.open(1, request(1))
    owner.subscribe(1, b"$share/g/a/#")
    owner.open(2, request(2), other := clients_of_slot(1)[0])
    owner.service.pressure_reports.is_asked = owner.disk.short = True
    assert told(owner) == [(SLOT, True, [])]
    owner.service.leave(ID, 1, -1, False)
    assert told(owner) == [(SLOT, False, [])]
    owner.service.leave(other, 2, -1, False)
    assert told(owner) == [(SLOT, False, [])], "it has no subscription"


async def test_nothing_is_said_where_redis_is_used_up_or_too_much_would_have_to_be(short: Owner) -> None:
    short.disk.full = True
    assert told(short) == []
    short.disk.full = short.disk.short = False
    for number in range(bounds.TAKERS_FILTERS_MAX):
        short.subscribe(1, b"f/%d" % number)
    short.service.leave(ID, 1, -1, False)
    assert told(short) == [(SLOT, True, [])], "this one's server has room"
    short.disk.short = True
    assert told(short) == [(SLOT, True, [b"#"])]


async def test_nobody_is_told_unasked_nor_again_before_it_is_time(owner: Owner) -> None:
    subscribed(owner)
    assert told(owner) == []
    owner.service.pressure_reports.is_asked = True
    assert len(told(owner)) == 1
    owner.service.report_load()
    assert len(owner.took) == 1
