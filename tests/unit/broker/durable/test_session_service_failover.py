"""A client that comes back after its slot moved or its owner crashed: its will, its expiry, and whom it waits for."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.mqtt.message import Will
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    EDGE,
    ID,
    SLOT,
    Home,
    another,
    opening,
    will,
)


async def test_a_will_of_who_left_in_order_is_not_published(home: Home) -> None:
    home.open(1, opening(will=will()))
    home.residents.leave(ID, 1, -1, False)
    home.residents.tick()
    assert home.published == []


async def test_a_client_that_did_not_come_back_after_a_crash_left_then(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    home.open(1, opening(will=will()))
    later = await another(redis)
    later.residents.tick()
    assert [message.topic for message in later.published] == [b"w"]
    later.accepted[0]()
    again = Home(redis, "core-2@1", 3)
    await again.own(SLOT)
    again.residents.tick()
    assert again.published == [], "once"


async def test_a_client_that_left_in_order_while_its_slot_moved_left_so(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    home.open(1, opening(will=will()))
    later = await another(redis)
    later.residents.leave(ID, 1, 5, False, opening(1).nonce)
    later.residents.tick()
    later.residents.tick()
    assert later.published == []
    assert later.residents.sessions.away[ID].session.meta.expiry_s == 5
    assert later.router.counters.sessions_away == 1


async def test_the_will_of_who_was_lost_while_the_slot_moved_is_published_though_its_client_is_back(
    redis: Redis, home: Home
) -> None:
    """[MQTT-3.1.2-8]"""
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    later.residents.leave(ID, 1, 60, True, opening(1).nonce)
    assert later.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]


async def test_who_is_back_before_its_node_says_how_it_left_waits_for_that(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    answers = later.open(2, opening(2, will=will()))
    await later.settle()
    assert answers == []
    later.residents.leave(ID, 1, 60, False, opening(1).nonce)
    await later.settle()
    assert answers == [messages.DURABLE | messages.PRESENT]
    assert later.published == [], "it left in order"


async def test_who_is_back_and_whose_node_says_nothing_comes_behind_its_will(redis: Redis, home: Home) -> None:
    """[MQTT-3.1.2-8]: its node, and its home, died with its connection."""
    home.open(1, opening(1, will=will()))
    later = await another(redis, machine := home.machine.next(1.0))
    answers = later.open(2, opening(2, will=will()))
    machine.forward(bounds.CONNECTION_RETURN_S)
    later.residents.tick()
    await later.settle()
    assert [message.topic for message in later.published] == [b"w"]
    assert answers == [messages.DURABLE | messages.PRESENT]


async def test_a_CONNECT_that_is_asked_for_again_waits_for_nobody(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    assert later.open(2, opening(1, will=will())) == [messages.DURABLE]


@pytest.mark.parametrize(("nonce", "topics"), [(1, []), (2, [b"w"])])
async def test_a_CONNECT_that_is_asked_for_again_is_no_other_connection_whose_will_is_due(
    home: Home, nonce: int, topics: list[bytes]
) -> None:
    home.open(1, opening(1, will=will()))
    home.open(2, opening(nonce, will=will()))
    await home.settle()
    assert [message.topic for message in home.published] == topics


async def test_who_waits_for_its_node_and_goes_is_not_let_in(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    first, second = later.open(2, opening(2)), later.open(3, opening(3))
    later.residents.leave(ID, 2, 60, False, opening(2).nonce)
    later.residents.leave(ID, 1, 60, True, opening(1).nonce)
    await later.settle()
    assert (first, second) == ([], [messages.DURABLE | messages.PRESENT])


async def test_those_who_wait_for_their_nodes_are_bounded(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETURNING_MAX", 0)
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    assert later.residents.open(Attach(ID, EDGE, 2, opening(2), lambda _: None)) == messages.FULL


async def test_a_connection_that_never_was_says_nothing_of_the_one_before_it(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds none to be kicked says that it is gone."""
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    home.open(1, opening(will=will()))
    later = await another(redis)
    later.residents.leave(ID, 2, -1, False)
    later.residents.tick()
    assert [message.topic for message in later.published] == [b"w"]


async def test_a_session_expires_when_its_time_is_up_also_after_a_crash(redis: Redis, home: Home) -> None:
    home.open(1, opening(expiry_s=60))
    home.residents.leave(ID, 1, 0, False)
    home.residents.tick()
    assert len(home.residents) == 0
    assert redis.slot(SLOT).sessions == {}
    later = await another(redis)
    assert len(later.residents) == 0


async def test_a_session_expires_when_its_time_is_up_also_where_the_clock_began_later(redis: Redis, home: Home) -> None:
    home.open(1, opening(expiry_s=600))
    home.residents.leave(ID, 1, -1, False)
    later = await another(redis, home.machine.next(after_s=700))
    assert len(later.residents) == 1
    later.residents.tick()
    assert len(later.residents) == 0


async def test_who_comes_back_too_late_to_a_slot_that_had_no_home_finds_no_session(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, expiry_s=60))
    home.residents.leave(ID, 1, -1, False)
    later = await another(redis, home.machine.next(after_s=3600))
    assert later.open(2, opening(2)) == [messages.DURABLE]


@pytest.mark.parametrize("moved", [False, True])
async def test_a_connection_whose_session_expired_while_its_node_was_held_for_gone_does_not_go_on(
    redis: Redis, home: Home, moved: bool
) -> None:
    home.open(1, opening(1, expiry_s=60))
    home.residents.node_gone(EDGE)
    await home.settle()
    if moved:
        later = await another(redis, home.machine.next(after_s=3600))
    else:
        later = home
        home.machine.forward(3600)
    assert not later.residents.resume(ID, EDGE, 1, opening(1), b"")
    assert len(later.residents) == 0


async def test_a_will_that_was_due_is_published_though_its_client_is_back_first(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, expiry_s=7200, will=Will(will().message, 30)))
    home.residents.leave(ID, 1, -1, True)
    later = await another(redis, home.machine.next(after_s=3600))
    assert later.open(2, opening(2, expiry_s=7200)) == [messages.DURABLE | messages.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]
