"""What Redis lost is written again, and by its owner alone."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SLOT, Home, another, opening, roommates, subscribed


async def test_what_Redis_lost_is_written_again(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2)
    await home.settle()
    home.packets()
    home.disk.holds = True
    redis.slots.clear()
    done = home.take(3)
    await home.commit()
    await home.commit()
    assert done == [True]
    home.disk.holds = False
    later = await another(redis)
    assert later.take(3) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_session_that_Redis_has_again_and_that_ended_here_goes(redis: Redis, home: Home) -> None:
    """A failover to a replica that was behind."""
    subscribed(home)
    before = redis.slot(SLOT).sessions.copy()
    home.residents.leave(ID, 1, 0, False)
    home.residents.tick()
    assert redis.slot(SLOT).sessions == {}
    redis.slots.clear()
    redis.slot(SLOT).sessions.update(before)
    home.disk.on_lost(SLOT)
    await home.settle()
    assert redis.slot(SLOT).sessions == {}


async def test_what_Redis_loses_while_a_slot_is_loaded_is_written_again_too(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = roommates(4)
    home.open_all(clients)
    later = Home(redis, "core-1@1", 2)
    later.residents.own(SLOT)
    while not len(later.residents):
        await later.pass_turn()
    assert not later.residents.has_loaded(SLOT)
    redis.slots.clear()
    later.disk.on_lost(SLOT)
    await later.settle()
    assert later.residents.has_loaded(SLOT)
    assert set(redis.slot(SLOT).sessions) == set(clients)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_of_a_slot_that_goes_while_it_is_taken_again_nothing_is_written_by_its_former_owner(
    redis: Redis, home: Home, comes_back: bool
) -> None:
    home.open(1, opening())
    before = redis.slot(SLOT).sessions[ID].copy()
    redis.slow = asyncio.Event()
    home.disk.on_lost(SLOT)
    await home.settle()
    home.residents.disown(SLOT)
    await home.settle()
    if comes_back:
        redis.slow, slow = None, redis.slow
        home.epoch = 3
        await home.own(SLOT)
        slow.set()
    else:
        redis.slow.set()
    await home.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert home.residents.has_loaded(SLOT) == comes_back
    if comes_back:
        assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
        assert redis.slot(SLOT).sessions[ID] != before


async def test_a_slot_that_goes_before_it_is_taken_again_is_left_to_its_next_home(redis: Redis, home: Home) -> None:
    """It may not have fenced it yet, and finds there what it goes on with."""
    subscribed(home)
    before = redis.slot(SLOT).sessions[ID].copy()
    home.disk.turn.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    home.residents.disown(SLOT)
    await home.settle()
    home.disk.turn.set()
    await home.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert (await another(redis)).came == [(SLOT, ID, [b"a/#"])]


async def test_what_can_not_be_written_anew_is_tried_again(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    subscribed(home)
    begin_anew = home.disk.begin_anew
    tries: list[int] = []

    def fails_once(slot: int) -> None:
        tries.append(slot)
        if len(tries) == 1:
            raise RuntimeError("not this time")
        begin_anew(slot)

    monkeypatch.setattr(home.disk, "begin_anew", fails_once)
    redis.slots.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    assert set(redis.slot(SLOT).sessions) == {ID}
