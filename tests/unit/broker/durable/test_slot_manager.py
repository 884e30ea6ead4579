"""The slots of one core: loaded when it gets them, let go of when they go, and what the next owner finds."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from flockmq import bounds
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, another, clients_of_slot, request, subscribed, will


async def test_an_owner_that_stops_takes_no_messages_any_more(owner: Owner) -> None:
    assert not owner.service.intake.is_loading()
    await owner.service.stop()
    assert owner.service.intake.is_loading(), "they would find no slot, again and again"


async def test_the_next_owner_has_all_of_it_under_the_same_packet_ids(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.take(1, 2, 3)
    await owner.settle()
    sent = owner.packets()
    owner.service.report(REPLICANT, 1, pair(PUBACK, 2))
    later = await another(redis)
    assert later.came == [(SLOT, ID, [b"a/#"])]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    again = later.packets()
    assert [packet[7:] for packet in again] == [sent[0][7:], sent[2][7:]]
    assert [packet[5:7] for packet in again] == [sent[0][5:7], sent[2][5:7]]
    assert all(packet[0] & 8 for packet in again), "duplicates, as far as anybody knows"


async def test_what_waits_at_the_next_owner_has_the_room_that_its_zone_gives(redis: Redis, owner: Owner) -> None:
    zones = {"default": Limits(max_mqueue_len=2), "roomy": Limits("roomy", max_mqueue_len=100)}
    owner.zones = zones
    owner.open(1, msgspec.structs.replace(request(1), zone="roomy"))
    owner.subscribe(1)
    owner.service.leave(ID, 1, -1, False)
    owner.take(1, 2, 3, 4)
    redis.slots.clear()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    later = Owner(redis, "core-1@1", 2)
    later.zones = zones
    await later.own(SLOT)
    later.take(5)
    later.open(2, request(2))
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3", b"4", b"5"]


async def test_what_comes_again_to_the_next_owner_is_a_repeat(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.take(1, 2)
    later = await another(redis)
    assert later.take(1, 2, 3) == [True]
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_fenced_slot_takes_nothing(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    await another(redis)
    owner.disk.holds = True
    done = owner.take(1)
    await owner.commit()
    assert done == [False]
    assert owner.payloads() == []
    assert owner.service.intake.is_loading(), "it takes nothing for any slot until its table says whose the slot is"
    owner.service.disown(SLOT)
    assert not owner.service.intake.is_loading()
    await owner.settle()
    assert len(owner.service) == 0


async def test_a_fenced_slot_sends_no_more_whatever_its_clients_answer(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.take(*range(1, 41))
    await owner.settle()
    assert len(owner.packets()) == 32, "the window"
    await another(redis)
    owner.disk.release(SLOT)
    owner.disk.on_fenced(SLOT)
    owner.service.report(REPLICANT, 1, pair(PUBACK, 1))
    owner.service.leave(ID, 1, -1, True)
    await owner.settle()
    assert owner.packets() == []


async def test_a_slot_that_another_takes_while_it_is_loaded_is_not(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    for token, client_id in enumerate(clients_of_slot(4), start=1):
        owner.open(token, request(token), client_id)
    later = Owner(redis, "core-1@1", 2)
    later.service.own(SLOT)
    while not len(later.service):
        await later.pass_turn()
    later.disk.release(SLOT)
    later.disk.on_fenced(SLOT)
    await later.settle()
    assert not later.service.has_loaded(SLOT)
    assert later.service.intake.is_loading()


async def test_a_slot_that_another_took_first_is_not_loaded(redis: Redis) -> None:
    await another(redis)
    earlier = Owner(redis, "core-0@1", 1)
    await earlier.own(SLOT)
    assert not earlier.service.has_loaded(SLOT)
    assert earlier.service.intake.is_loading()


async def test_who_took_a_slot_that_went_and_came_back_while_it_was_read_has_not_taken_it_from_its_later_owner(
    redis: Redis,
) -> None:
    owner = Owner(redis, "core-0@1", 1)
    first, second = asyncio.Event(), asyncio.Event()
    redis.slow = first
    await owner.own(SLOT, SLOT + 1)
    owner.service.disown(SLOT)
    redis.slot(SLOT).fence = (0, 2, "core-1@1")
    owner.epoch = 3
    owner.service.own(SLOT)
    redis.slow = second
    first.set()
    await owner.settle()
    assert owner.service.manager.unloaded == {SLOT, SLOT + 1}, "the other one is still read"
    owner.disk.look()
    assert not owner.service.intake.is_changing()
    second.set()
    await owner.settle()
    assert owner.service.has_loaded(SLOT)


async def test_the_sessions_of_a_slot_that_is_let_go_of_leave_some_a_turn_and_come_back_when_all_are_out(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(8)
    owner.open_all(clients, expiry_s=1, will=will())
    owner.service.disown(SLOT)
    assert not owner.service.has_loaded(SLOT)
    await owner.pass_turn()
    assert 0 < len(owner.service) < len(clients)
    owner.epoch = 3
    owner.service.own(SLOT)
    owner.machine.forward(1e9)
    for token, client_id in enumerate(clients, start=1):
        owner.service.leave(client_id, token, -1, True)
    owner.service.tick()
    assert owner.published == [], "the next owner's affair"
    left = [len(owner.service)]
    while left[-1] and not owner.service.has_loaded(SLOT):
        await owner.pass_turn()
        left.append(len(owner.service))
    assert left[-1] == 0
    monkeypatch.undo()
    await owner.settle()
    assert owner.service.has_loaded(SLOT)
    assert set(owner.service.sessions.by_id) == set(clients)
    assert set(owner.service.sessions.away) == set(clients)


async def test_what_a_session_on_its_way_out_says_is_nothing(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(8)
    owner.open_all(clients)
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    owner.service.disown(SLOT)
    owner.epoch = 3
    owner.service.own(SLOT)
    await owner.pass_turn()
    for token, client_id in enumerate(clients, start=1):
        answers: list[bytes] = []
        owner.service.ask(
            client_id,
            token,
            (1, 0),
            messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""),
            answers.append,
        )
        assert answers == [b""], "ask again, another owner"
    assert owner.routed == []
    assert redis.slot(SLOT).sessions == before


async def test_a_member_of_a_shared_subscription_gets_nothing_once_its_slot_is_let_go_of(owner: Owner) -> None:
    owner.open(1, request())
    owner.subscribe(1, b"$share/g/a/#")
    assert owner.router.count(SLOT, b"$share/g/a/#") == (1, 0)
    owner.service.disown(SLOT)
    assert owner.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    await owner.settle()
    assert owner.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    assert not owner.router.groups


async def test_slots_wait_for_Redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MIN_S", 0.0)
    redis.is_away = True
    owner = Owner(redis, "core-0@1", 1)
    await owner.own(SLOT)
    assert not owner.service.has_loaded(SLOT)
    redis.is_away = False
    await owner.settle()
    assert owner.service.has_loaded(SLOT)


async def test_the_view_rises_with_each_slot_that_comes_or_goes(owner: Owner) -> None:
    assert owner.service.intake.view() == 1
    owner.epoch = 5
    owner.service.own(SLOT + 1)
    assert (owner.service.intake.view(), owner.service.intake.is_loading()) == (5, True)
    owner.epoch = 6
    owner.service.disown(SLOT + 1)
    assert (owner.service.intake.view(), owner.service.intake.is_loading()) == (6, False)


async def test_a_session_that_can_not_be_brought_in_holds_up_no_other_and_no_slot(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = clients_of_slot(1)[0]
    owner.open(1, request())
    owner.open(2, request(2), other)
    later = Owner(redis, "core-1@1", 2)

    def fails_once(slot: int, client_id: bytes, filters: list[bytes]) -> None:
        if client_id == ID:
            raise RuntimeError(client_id)

    monkeypatch.setattr(later, "filters_loaded", fails_once)
    await later.own(SLOT, SLOT + 1)
    assert later.service.has_loaded(SLOT)
    assert later.service.has_loaded(SLOT + 1)
    assert other in later.service.sessions.by_id
    assert not later.service.intake.is_loading()


async def test_a_slot_whose_taking_fails_is_taken_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    owner = Owner(redis, "core-0@1", 1)
    tells = owner.loaded
    failures = [RuntimeError("once")]

    def fails_once(slot: int) -> None:
        if failures:
            raise failures.pop()
        tells(slot)

    monkeypatch.setattr(owner, "loaded", fails_once)
    await owner.own(SLOT, SLOT + 1)
    assert owner.service.has_loaded(SLOT)
    assert owner.service.has_loaded(SLOT + 1)
    assert not owner.service.intake.is_loading()


async def test_a_slot_that_the_log_took_and_gave_back_unseen_is_taken_again(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In entries that this core skipped with a bootstrap: no row differs, so nobody tells it."""
    monkeypatch.setattr(bounds, "SLOT_LOST_MAX_S", 0.0)
    subscribed(owner)
    await another(redis)
    owner.disk.holds = True
    owner.take(1)
    await owner.commit()
    owner.disk.holds = False
    assert not owner.service.has_loaded(SLOT), "fenced"
    owner.service.tick()
    await owner.settle()
    assert not owner.service.has_loaded(SLOT), "the other is the later one"
    owner.epoch = 3
    owner.service.tick()
    await owner.settle()
    assert owner.service.has_loaded(SLOT)
    assert set(owner.asked_again) == {SLOT}, "nobody saw it go and come"
    assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
