"""What Redis lost is written again, and by its owner alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import pytest

from flockmq import bounds
from flockmq.redis.errors import RedisUnreachable
from flockmq.routing.slots import slot_of
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


# All slots of a Redis that lost its data.


async def _clients_of_slots(owner: Owner, count: int) -> dict[int, bytes]:
    """Clients with a session each, in slots of their own."""
    clients: dict[int, bytes] = {}
    for number in range(1 << 16):
        clients.setdefault(slot_of(b"%d" % number), b"%d" % number)
        if len(clients) == count:
            break
    await owner.own(*(slot for slot in clients if slot != SLOT))
    while not all(map(owner.service.has_loaded, clients)):
        await owner.settle()
    owner.open_all(list(clients.values()))
    return clients


async def test_slots_that_are_lost_together_are_taken_again_together(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by one each waits for the round trips of all others: 487 took longer than their core lived."""
    clients = await _clients_of_slots(owner, 20)
    taken_at_once: list[set[int]] = []
    take_all = owner.disk.take_all

    def counted(fences: Mapping[int, str], *, again: bool = False) -> AsyncGenerator[tuple[int, Any]]:
        taken_at_once.append(set(fences))
        return take_all(fences, again=again)

    monkeypatch.setattr(owner.disk, "take_all", counted)
    redis.slots.clear()
    for slot in clients:
        owner.disk.on_lost(slot)
    for _ in clients:
        await owner.settle()
    assert taken_at_once == [clients.keys()]
    assert {slot: set(redis.slot(slot).sessions) for slot in clients} == {slot: {i} for slot, i in clients.items()}


async def test_a_slot_that_can_not_be_read_or_written_again_holds_up_no_other(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    monkeypatch.setattr(bounds, "SLOT_SPOILT_RETRY_S", 0.0)
    clients = await _clients_of_slots(owner, 4)
    unreadable, unwritable, *others = clients
    with monkeypatch.context() as patched:
        patched.setattr(owner.service.manager.slots[unwritable].wills, "write_again", lambda: 1 / 0)
        redis.slots.clear()
        redis.slot(unreadable).read_error = "not a hash"
        for slot in clients:
            owner.disk.on_lost(slot)
        await owner.settle()
        assert [set(redis.slot(slot).sessions) for slot in others] == [{clients[slot]} for slot in others]
        assert redis.slot(unreadable).sessions == redis.slot(unwritable).sessions == {}
        assert owner.alarms[unreadable]
    redis.slot(unreadable).read_error = ""
    await owner.settle()
    assert {slot: set(redis.slot(slot).sessions) for slot in clients} == {slot: {i} for slot, i in clients.items()}
    assert not owner.alarms[unreadable]


@pytest.mark.parametrize("fails", ["apart", "take_all"])
async def test_slots_that_Redis_lost_are_taken_again_when_it_can_be_reached(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MIN_S", 0.0)
    clients = await _clients_of_slots(owner, 3)
    redis.slots.clear()
    with monkeypatch.context() as patched:

        async def is_away(slots: Iterable[int]) -> list[list[int]]:
            raise RedisUnreachable("away")

        if fails == "apart":
            patched.setattr(owner.disk, "apart", is_away)
        redis.is_away = True
        for slot in clients:
            owner.disk.on_lost(slot)
        await owner.settle()
        assert not redis.slots
    redis.is_away = False
    await owner.settle()
    assert {slot: set(redis.slot(slot).sessions) for slot in clients} == {slot: {i} for slot, i in clients.items()}


async def test_a_slot_that_another_core_took_meanwhile_stops_and_the_others_are_written_again(
    redis: Redis, owner: Owner
) -> None:
    clients = await _clients_of_slots(owner, 3)
    taken, *others = clients
    redis.slots.clear()
    redis.slot(taken).fence = (1 << 20, 0, "core-1@1")
    for slot in clients:
        owner.disk.on_lost(slot)
    await owner.settle()
    assert not owner.service.has_loaded(taken)
    assert redis.slot(taken).sessions == {}
    assert [set(redis.slot(slot).sessions) for slot in others] == [{clients[slot]} for slot in others]
