"""When an attach is answered, and whether the session is present for it."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.session.remote_session import PUBACK, SETTLED, pair
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    EDGE,
    ID,
    SLOT,
    Home,
    another,
    opening,
    roommates,
    subscribed,
    will,
)


async def test_an_attach_is_answered_when_its_session_is_durable(home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening())
    await home.settle()
    assert answers == []
    await home.commit()
    assert answers == [messages.DURABLE]


async def test_what_a_client_acknowledged_is_settled_when_it_is_durable(home: Home) -> None:
    subscribed(home)
    home.take(1)
    await home.settle()
    home.packets()
    home.disk.holds = True
    home.residents.report("other@1", 1, pair(PUBACK, 1))
    home.residents.report(EDGE, 2, pair(PUBACK, 1))
    await home.commit()
    assert home.delivered == [], "neither has the connection"
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    await home.settle()
    assert home.delivered == []
    await home.commit()
    assert [chunk[0] for _, _, chunk in home.delivered] == [SETTLED]


async def test_the_routes_of_a_session_that_ends_go_when_its_end_is_durable(home: Home) -> None:
    """Until then the next home may find it."""
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.disk.holds = True
    home.open(2, opening(2, clean=True))
    await home.settle()
    assert home.routed == [(SLOT, b"a/#")]
    await home.commit()
    assert home.routed == []


async def test_session_present_is_told_to_who_comes_back(home: Home) -> None:
    assert home.open(1, opening(1)) == [messages.DURABLE]
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
    home.residents.leave(ID, 2, -1, False)
    assert home.open(3, opening(3, clean=True)) == [messages.DURABLE]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_CONNECT_that_asks_again_is_told_the_same(home: Home, clean: bool) -> None:
    """Its answer was lost; clean start ended what was there before, not what it began itself."""
    assert home.open(1, opening(1, clean=clean)) == [messages.DURABLE]
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(1, clean=clean)) == [messages.DURABLE]
    assert home.residents.sessions.by_id[ID].subscriptions.find(b"a/#") is not None


async def test_a_CONNECT_that_asks_again_for_what_was_there_is_told_so_again(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    for token in (2, 3):
        assert home.open(token, opening(9)) == [messages.DURABLE | messages.PRESENT]
        home.residents.leave(ID, token, -1, False)


async def test_a_CONNECT_that_asks_again_after_a_crash_is_told_the_same(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, clean=True))
    later = await another(redis)
    assert later.open(2, opening(1, clean=True)) == [messages.DURABLE]
    assert later.open(3, opening(2)) == [messages.DURABLE | messages.PRESENT]


async def test_who_ended_its_session_while_the_slot_moved_finds_none(redis: Redis, home: Home) -> None:
    home.open(1, opening(1))
    later = await another(redis)
    later.residents.leave(ID, 1, 0, False, opening(1).nonce)
    assert later.open(2, opening(2)) == [messages.DURABLE]


async def test_who_left_in_order_while_the_slot_moved_and_is_back_has_what_it_left(redis: Redis, home: Home) -> None:
    subscribed(home)
    later = await another(redis)
    later.residents.leave(ID, 1, 30, False, opening(1).nonce)
    assert later.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
    later.take(1)
    await later.settle()
    assert later.payloads() == [b"1"]


async def test_a_session_whose_client_left_while_the_slot_moved_expires_from_then_on(redis: Redis, home: Home) -> None:
    """[MQTT-3.1.2-23]: not only from the end of the return window on."""
    home.open(1, opening(1, expiry_s=1))
    later = await another(redis, machine := home.machine.next(1.0))
    later.residents.leave(ID, 1, 1, False, opening(1).nonce)
    machine.forward(2.0)
    assert later.open(2, opening(2)) == [messages.DURABLE]


@pytest.mark.parametrize("expiry_s", [0, 60])
async def test_what_an_older_connection_said_as_it_left_is_nothing_to_the_session_of_a_newer_one(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch, expiry_s: int
) -> None:
    """Its node says it again to the next home."""
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    home.open(1, opening(1))
    home.residents.leave(ID, 1, expiry_s, False, opening(1).nonce)
    home.open(2, opening(2, will=will()))
    later = await another(redis)
    later.residents.leave(ID, 1, expiry_s, False, opening(1).nonce)
    later.residents.tick()
    assert [message.topic for message in later.published] == [b"w"]
    assert later.open(3, opening(3)) == [messages.DURABLE | messages.PRESENT]


async def test_an_ended_session_is_not_there_for_who_begins_without_one(redis: Redis, home: Home) -> None:
    """That it ended must be durable first, or it is back after a crash."""
    subscribed(home)
    home.disk.holds = True
    home.residents.leave(ID, 1, 0, False)
    answers = home.open(2, None)
    other = home.open(3, None, roommates(1)[0])
    await home.settle()
    assert (answers, other) == ([], [messages.ABSENT]), "others begin while Redis is away"
    await home.commit()
    assert answers == [0]


async def test_a_session_whose_CONNECT_was_never_answered_is_not_present(redis: Redis, home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening(1))
    home.residents.leave(ID, 1, -1, False)
    later = home.open(2, opening(2))
    await home.commit()
    assert (answers, later) == ([None], [messages.DURABLE])


@pytest.mark.parametrize("is_confirmed", [False, True])
async def test_a_session_whose_CONNECT_may_have_been_refused_is_not_present(home: Home, is_confirmed: bool) -> None:
    """Nobody reports how its connection ended, and nothing is in it."""
    home.open(1, opening(1), confirms=is_confirmed)
    home.residents.leave(ID, 1, -1, True)
    present = messages.PRESENT if is_confirmed else 0
    assert home.open(2, opening(2)) == [messages.DURABLE | present]


async def test_a_session_with_a_subscription_was_not_refused(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, True)
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]


async def test_a_CONNECT_that_asks_again_has_the_session_that_it_ends_with_its_connection(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take(1)
    for token in (2, 3):
        assert home.open(token, opening(9, expiry_s=0)) == [messages.DURABLE | messages.PRESENT]
        await home.settle()
        assert home.payloads() == [b"1"]
        home.residents.leave(ID, token, -1, False)
    home.open(4, opening(9, expiry_s=0))
    home.residents.leave(ID, 4, 0, False)
    assert len(home.residents) == 0


async def test_a_session_that_ends_with_its_connection_ends_what_is_here(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.disk.holds = True
    answers = home.open(2, None)
    assert answers == []
    await home.commit()
    assert answers == [0]
    assert redis.slot(SLOT).sessions == {}
    assert home.routed == []


async def test_who_looks_for_a_session_that_is_not_there_and_wants_none_has_its_own(home: Home) -> None:
    assert home.open(1, opening(expiry_s=0)) == [0]
    assert len(home.residents) == 0
