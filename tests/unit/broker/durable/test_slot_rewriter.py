"""What Redis lost is written again, and by its owner alone."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, another, clients_of_slot, request, subscribed


async def test_what_Redis_lost_is_written_again(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.take(1, 2)
    await owner.settle()
    owner.packets()
    owner.disk.holds = True
    redis.slots.clear()
    done = owner.take(3)
    await owner.commit()
    await owner.commit()
    assert done == [True]
    owner.disk.holds = False
    later = await another(redis)
    assert later.take(3) == [True]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_session_that_Redis_has_again_and_that_ended_here_goes(redis: Redis, owner: Owner) -> None:
    """A failover to a replica that was behind."""
    subscribed(owner)
    before = redis.slot(SLOT).sessions.copy()
    owner.service.leave(ID, 1, 0, False)
    owner.service.tick()
    assert redis.slot(SLOT).sessions == {}
    redis.slots.clear()
    redis.slot(SLOT).sessions.update(before)
    owner.disk.on_lost(SLOT)
    await owner.settle()
    assert redis.slot(SLOT).sessions == {}


async def test_what_Redis_loses_while_a_slot_is_loaded_is_written_again_too(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(4)
    owner.open_all(clients)
    later = Owner(redis, "core-1@1", 2)
    later.service.own(SLOT)
    while not len(later.service):
        await later.pass_turn()
    assert not later.service.has_loaded(SLOT)
    redis.slots.clear()
    later.disk.on_lost(SLOT)
    await later.settle()
    assert later.service.has_loaded(SLOT)
    assert set(redis.slot(SLOT).sessions) == set(clients)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_of_a_slot_that_goes_while_it_is_taken_again_nothing_is_written_by_its_former_owner(
    redis: Redis, owner: Owner, comes_back: bool
) -> None:
    owner.open(1, request())
    before = redis.slot(SLOT).sessions[ID].copy()
    redis.slow = asyncio.Event()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    owner.service.disown(SLOT)
    await owner.settle()
    if comes_back:
        redis.slow, slow = None, redis.slow
        owner.epoch = 3
        await owner.own(SLOT)
        slow.set()
    else:
        redis.slow.set()
    await owner.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert owner.service.has_loaded(SLOT) == comes_back
    if comes_back:
        assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
        assert redis.slot(SLOT).sessions[ID] != before


async def test_a_slot_that_goes_before_it_is_taken_again_is_left_to_its_next_owner(redis: Redis, owner: Owner) -> None:
    """It may not have fenced it yet, and finds there what it goes on with."""
    subscribed(owner)
    before = redis.slot(SLOT).sessions[ID].copy()
    owner.disk.turn.clear()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    owner.service.disown(SLOT)
    await owner.settle()
    owner.disk.turn.set()
    await owner.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert (await another(redis)).came == [(SLOT, ID, [b"a/#"])]


async def test_what_can_not_be_written_anew_is_tried_again(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    subscribed(owner)
    begin_anew = owner.disk.begin_anew
    tries: list[int] = []

    def fails_once(slot: int) -> None:
        tries.append(slot)
        if len(tries) == 1:
            raise RuntimeError("not this time")
        begin_anew(slot)

    monkeypatch.setattr(owner.disk, "begin_anew", fails_once)
    redis.slots.clear()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    assert set(redis.slot(SLOT).sessions) == {ID}


async def test_what_can_be_written_anew_in_part_only_is_not_acknowledged(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    subscribed(owner)
    owner.disk.holds = True
    redis.slots.clear()
    done = owner.take(1)
    wills = owner.service.manager.slots[SLOT].wills

    def fails() -> None:
        raise RuntimeError("not this time")

    with monkeypatch.context() as patched:
        patched.setattr(wills, "write_again", fails)
        await owner.commit()
        await owner.commit()
        assert done == []
        assert redis.slot(SLOT).sessions == {}
    await owner.settle()
    await owner.commit()
    assert done == [True]
    assert set(redis.slot(SLOT).sessions) == {ID}


async def test_what_waits_for_a_slot_that_goes_while_it_is_written_anew_is_refused(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(owner)
    owner.disk.holds = True
    redis.slots.clear()
    done = owner.take(1)
    wills = owner.service.manager.slots[SLOT].wills
    monkeypatch.setattr(wills, "write_again", lambda: 1 / 0)
    await owner.commit()
    assert done == []
    owner.service.disown(SLOT)
    assert done == [False]
