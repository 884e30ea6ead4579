"""The slots of one core: loaded when it gets them, let go of when they go, and what the next owner finds."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import bounds
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SLOT, Home, another, opening, roommates, subscribed, will


async def test_a_home_that_stops_takes_no_letters_any_more(home: Home) -> None:
    assert not home.residents.intake.is_loading()
    await home.residents.stop()
    assert home.residents.intake.is_loading(), "they would find no slot, again and again"


async def test_the_next_home_has_all_of_it_under_the_same_packet_ids(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2, 3)
    await home.settle()
    sent = home.packets()
    home.residents.report(EDGE, 1, pair(PUBACK, 2))
    later = await another(redis)
    assert later.came == [(SLOT, ID, [b"a/#"])]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    again = later.packets()
    assert [packet[7:] for packet in again] == [sent[0][7:], sent[2][7:]]
    assert [packet[5:7] for packet in again] == [sent[0][5:7], sent[2][5:7]]
    assert all(packet[0] & 8 for packet in again), "duplicates, as far as anybody knows"


async def test_what_waits_at_the_next_home_has_the_room_that_its_zone_gives(redis: Redis, home: Home) -> None:
    zones = {"default": Limits(max_mqueue_len=2), "roomy": Limits("roomy", max_mqueue_len=100)}
    home.zones = zones
    home.open(1, msgspec.structs.replace(opening(1), zone="roomy"))
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    home.take(1, 2, 3, 4)
    redis.slots.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    later = Home(redis, "core-1@1", 2)
    later.zones = zones
    await later.own(SLOT)
    later.take(5)
    later.open(2, opening(2))
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3", b"4", b"5"]


async def test_what_comes_again_to_the_next_home_is_a_repeat(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1, 2)
    later = await another(redis)
    assert later.take(1, 2, 3) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3"]


async def test_a_fenced_slot_takes_nothing(redis: Redis, home: Home) -> None:
    subscribed(home)
    await another(redis)
    home.disk.holds = True
    done = home.take(1)
    await home.commit()
    assert done == [False]
    assert home.payloads() == []
    assert home.residents.intake.is_loading(), "it takes nothing for any slot until its table says whose the slot is"
    home.residents.disown(SLOT)
    assert not home.residents.intake.is_loading()
    await home.settle()
    assert len(home.residents) == 0


async def test_a_fenced_slot_sends_no_more_whatever_its_clients_answer(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(*range(1, 41))
    await home.settle()
    assert len(home.packets()) == 32, "the window"
    await another(redis)
    home.disk.release(SLOT)
    home.disk.on_fenced(SLOT)
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    home.residents.leave(ID, 1, -1, True)
    await home.settle()
    assert home.packets() == []


async def test_a_slot_that_another_takes_while_it_is_loaded_is_not(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    for token, client_id in enumerate(roommates(4), start=1):
        home.open(token, opening(token), client_id)
    later = Home(redis, "core-1@1", 2)
    later.residents.own(SLOT)
    while not len(later.residents):
        await later.pass_turn()
    later.disk.release(SLOT)
    later.disk.on_fenced(SLOT)
    await later.settle()
    assert not later.residents.has_loaded(SLOT)
    assert later.residents.intake.is_loading()


async def test_a_slot_that_another_took_first_is_not_loaded(redis: Redis) -> None:
    await another(redis)
    earlier = Home(redis, "core-0@1", 1)
    await earlier.own(SLOT)
    assert not earlier.residents.has_loaded(SLOT)
    assert earlier.residents.intake.is_loading()


async def test_the_sessions_of_a_slot_that_is_let_go_of_leave_some_a_turn_and_come_back_when_all_are_out(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients, expiry_s=1, will=will())
    home.residents.disown(SLOT)
    assert not home.residents.has_loaded(SLOT)
    await home.pass_turn()
    assert 0 < len(home.residents) < len(clients)
    home.epoch = 3
    home.residents.own(SLOT)
    home.machine.forward(1e9)
    for token, client_id in enumerate(clients, start=1):
        home.residents.leave(client_id, token, -1, True)
    home.residents.tick()
    assert home.published == [], "the next home's affair"
    left = [len(home.residents)]
    while left[-1] and not home.residents.has_loaded(SLOT):
        await home.pass_turn()
        left.append(len(home.residents))
    assert left[-1] == 0
    monkeypatch.undo()
    await home.settle()
    assert home.residents.has_loaded(SLOT)
    assert set(home.residents.sessions.by_id) == set(clients)
    assert set(home.residents.sessions.away) == set(clients)


async def test_what_a_session_on_its_way_out_says_is_nothing(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients)
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    home.residents.disown(SLOT)
    home.epoch = 3
    home.residents.own(SLOT)
    await home.pass_turn()
    for token, client_id in enumerate(clients, start=1):
        answers: list[bytes] = []
        home.residents.ask(
            client_id,
            token,
            (1, 0),
            messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""),
            answers.append,
        )
        assert answers == [b""], "ask again, another home"
    assert home.routed == []
    assert redis.slot(SLOT).sessions == before


async def test_a_member_of_a_shared_subscription_gets_nothing_once_its_slot_is_let_go_of(home: Home) -> None:
    home.open(1, opening())
    home.subscribe(1, b"$share/g/a/#")
    assert home.router.count(SLOT, b"$share/g/a/#") == (1, 0)
    home.residents.disown(SLOT)
    assert home.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    await home.settle()
    assert home.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    assert not home.router.groups


async def test_slots_wait_for_Redis(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MIN_S", 0.0)
    redis.is_away = True
    home = Home(redis, "core-0@1", 1)
    await home.own(SLOT)
    assert not home.residents.has_loaded(SLOT)
    redis.is_away = False
    await home.settle()
    assert home.residents.has_loaded(SLOT)


async def test_the_view_rises_with_each_slot_that_comes_or_goes(home: Home) -> None:
    assert home.residents.intake.view() == 1
    home.epoch = 5
    home.residents.own(SLOT + 1)
    assert (home.residents.intake.view(), home.residents.intake.is_loading()) == (5, True)
    home.epoch = 6
    home.residents.disown(SLOT + 1)
    assert (home.residents.intake.view(), home.residents.intake.is_loading()) == (6, False)


async def test_a_session_that_can_not_be_brought_in_holds_up_no_other_and_no_slot(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = roommates(1)[0]
    home.open(1, opening())
    home.open(2, opening(2), other)
    later = Home(redis, "core-1@1", 2)

    def fails_once(slot: int, client_id: bytes, filters: list[bytes]) -> None:
        if client_id == ID:
            raise RuntimeError(client_id)

    monkeypatch.setattr(later, "filters_loaded", fails_once)
    await later.own(SLOT, SLOT + 1)
    assert later.residents.has_loaded(SLOT)
    assert later.residents.has_loaded(SLOT + 1)
    assert other in later.residents.sessions.by_id
    assert not later.residents.intake.is_loading()


async def test_a_slot_whose_taking_fails_is_taken_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    home = Home(redis, "core-0@1", 1)
    tells = home.loaded
    failures = [RuntimeError("once")]

    def fails_once(slot: int) -> None:
        if failures:
            raise failures.pop()
        tells(slot)

    monkeypatch.setattr(home, "loaded", fails_once)
    await home.own(SLOT, SLOT + 1)
    assert home.residents.has_loaded(SLOT)
    assert home.residents.has_loaded(SLOT + 1)
    assert not home.residents.intake.is_loading()


async def test_a_slot_that_the_log_took_and_gave_back_unseen_is_taken_again(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In entries that this core skipped with a bootstrap: no row differs, so nobody tells it."""
    monkeypatch.setattr(bounds, "SLOT_LOST_MAX_S", 0.0)
    subscribed(home)
    await another(redis)
    home.disk.holds = True
    home.take(1)
    await home.commit()
    home.disk.holds = False
    assert not home.residents.has_loaded(SLOT), "fenced"
    home.residents.tick()
    await home.settle()
    assert not home.residents.has_loaded(SLOT), "the other is the later one"
    home.epoch = 3
    home.residents.tick()
    await home.settle()
    assert home.residents.has_loaded(SLOT)
    assert set(home.asked_again) == {SLOT}, "nobody saw it go and come"
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
