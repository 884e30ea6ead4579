"""The slots of a home: what another home finds, who is refused, what Redis lost."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.session.settling import PUBACK, pair
from unit.broker.home.redis import Redis
from unit.broker.home.rooms import EDGE, ID, SENDER, SLOT, Home, another, opening, subscribed

# From home to home.


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
    assert home.residents.is_loading(), "it takes nothing for any slot until its table says whose the slot is"
    home.residents.disown(SLOT)
    assert home.residents.is_loading(), "its loss isn't in the view"
    await home.settle()
    assert not home.residents.is_loading()
    assert len(home.residents) == 0


async def test_a_slot_that_another_took_first_is_not_loaded(redis: Redis) -> None:
    await another(redis)
    earlier = Home(redis, "core-0@1", 1)
    await earlier.own(SLOT)
    assert not earlier.residents.has_loaded(SLOT)
    assert earlier.residents.is_loading()


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
    assert home.residents.view() == 1
    home.epoch = 5
    home.residents.own(SLOT + 1)
    assert (home.residents.epoch(), home.residents.is_loading()) == (1, True)
    home.residents.disown(SLOT + 1)
    await home.settle()
    assert (home.residents.view(), home.residents.epoch(), home.residents.is_loading()) == (5, 5, False)


async def test_marks_of_nodes_that_are_gone_are_forgotten_in_time(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    subscribed(home)
    home.take(1)
    assert redis.slot(SLOT).marks
    home.residents.node_gone(SENDER)
    home.residents.tick()
    assert not redis.slot(SLOT).marks


async def test_what_a_purged_node_repeats_is_known_to_a_home_that_took_the_slot_meanwhile(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    home.take(1)
    later = Home(redis, "core-1@1", 2)
    monkeypatch.setattr(later, "members", lambda: [EDGE])
    await later.own(SLOT)
    assert later.take(1) == [True]
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    await later.settle()
    assert later.payloads() == [b"1"]
    assert redis.slot(SLOT).marks
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    later.residents.node_gone(SENDER)
    later.residents.tick()
    assert not redis.slot(SLOT).marks


async def test_a_session_that_can_not_be_read_is_left_where_it_is_and_the_others_come(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    data = redis.slot(SLOT)
    broken = {b"m": data.sessions[ID][b"m"], b"q" + bytes(8): b"", b"s": b""}
    data.sessions = {b"broken": broken, **data.sessions}
    later = await another(redis)
    assert later.residents.has_loaded(SLOT)
    assert list(later.residents.sessions.by_id) == [ID]
    assert data.sessions[b"broken"] == broken


# Redis lost its data.


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
