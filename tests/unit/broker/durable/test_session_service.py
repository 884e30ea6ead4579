"""When an attach is answered, and whether the session is present for it."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.session.remote_session import PUBACK, SETTLED, pair
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    ID,
    REPLICANT,
    SLOT,
    Owner,
    another,
    clients_of_slot,
    request,
    subscribed,
    will,
)


async def test_an_attach_is_answered_when_its_session_is_durable(owner: Owner) -> None:
    owner.disk.holds = True
    answers = owner.open(1, request())
    await owner.settle()
    assert answers == []
    await owner.commit()
    assert answers == [messages.DURABLE]


async def test_what_a_client_acknowledged_is_settled_when_it_is_durable(owner: Owner) -> None:
    subscribed(owner)
    owner.take(1)
    await owner.settle()
    owner.packets()
    owner.disk.holds = True
    owner.service.report("other@1", 1, pair(PUBACK, 1))
    owner.service.report(REPLICANT, 2, pair(PUBACK, 1))
    await owner.commit()
    assert owner.delivered == [], "neither has the connection"
    owner.service.report(REPLICANT, 1, pair(PUBACK, 1))
    await owner.settle()
    assert owner.delivered == []
    await owner.commit()
    assert [chunk[0] for _, _, chunk in owner.delivered] == [SETTLED]


async def test_the_routes_of_a_session_that_ends_go_when_its_end_is_durable(owner: Owner) -> None:
    """Until then the next owner may find it."""
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.disk.holds = True
    owner.open(2, request(2, clean=True))
    await owner.settle()
    assert owner.routed == [(SLOT, b"a/#")]
    await owner.commit()
    assert owner.routed == []


async def test_session_present_is_told_to_who_comes_back(owner: Owner) -> None:
    assert owner.open(1, request(1)) == [messages.DURABLE]
    owner.service.leave(ID, 1, -1, False)
    assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
    owner.service.leave(ID, 2, -1, False)
    assert owner.open(3, request(3, clean=True)) == [messages.DURABLE]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_CONNECT_that_asks_again_is_told_the_same(owner: Owner, clean: bool) -> None:
    """Its answer was lost; clean start ended what was there before, not what it began itself."""
    assert owner.open(1, request(1, clean=clean)) == [messages.DURABLE]
    owner.subscribe(1)
    owner.service.leave(ID, 1, -1, False)
    assert owner.open(2, request(1, clean=clean)) == [messages.DURABLE]
    assert owner.service.sessions.by_id[ID].subscriptions.find(b"a/#") is not None


async def test_a_CONNECT_that_asks_again_for_what_was_there_is_told_so_again(owner: Owner) -> None:
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    for token in (2, 3):
        assert owner.open(token, request(9)) == [messages.DURABLE | messages.PRESENT]
        owner.service.leave(ID, token, -1, False)


async def test_a_CONNECT_that_asks_again_after_a_crash_is_told_the_same(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, clean=True))
    later = await another(redis)
    assert later.open(2, request(1, clean=True)) == [messages.DURABLE]
    assert later.open(3, request(2)) == [messages.DURABLE | messages.PRESENT]


async def test_who_ended_its_session_while_the_slot_moved_finds_none(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1))
    later = await another(redis)
    later.service.leave(ID, 1, 0, False, request(1).nonce)
    assert later.open(2, request(2)) == [messages.DURABLE]


async def test_who_left_in_order_while_the_slot_moved_and_is_back_has_what_it_left(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    later = await another(redis)
    later.service.leave(ID, 1, 30, False, request(1).nonce)
    assert later.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
    later.take(1)
    await later.settle()
    assert later.payloads() == [b"1"]


async def test_a_session_whose_client_left_while_the_slot_moved_expires_from_then_on(
    redis: Redis, owner: Owner
) -> None:
    """[MQTT-3.1.2-23]: not only from the end of the return window on."""
    owner.open(1, request(1, expiry_s=1))
    later = await another(redis, machine := owner.machine.next(1.0))
    later.service.leave(ID, 1, 1, False, request(1).nonce)
    machine.forward(2.0)
    assert later.open(2, request(2)) == [messages.DURABLE]


@pytest.mark.parametrize("expiry_s", [0, 60])
async def test_what_an_older_connection_said_as_it_left_is_nothing_to_the_session_of_a_newer_one(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch, expiry_s: int
) -> None:
    """Its node says it again to the next owner."""
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    owner.open(1, request(1))
    owner.service.leave(ID, 1, expiry_s, False, request(1).nonce)
    owner.open(2, request(2, will=will()))
    later = await another(redis)
    later.service.leave(ID, 1, expiry_s, False, request(1).nonce)
    later.service.tick()
    assert [message.topic for message in later.published] == [b"w"]
    assert later.open(3, request(3)) == [messages.DURABLE | messages.PRESENT]


async def test_an_ended_session_is_not_there_for_who_begins_without_one(redis: Redis, owner: Owner) -> None:
    """That it ended must be durable first, or it is back after a crash."""
    subscribed(owner)
    owner.disk.holds = True
    owner.service.leave(ID, 1, 0, False)
    answers = owner.open(2, None)
    other = owner.open(3, None, clients_of_slot(1)[0])
    await owner.settle()
    assert (answers, other) == ([], [messages.ABSENT]), "others begin while Redis is away"
    await owner.commit()
    assert answers == [0]


async def test_a_session_whose_CONNECT_was_never_answered_is_not_present(redis: Redis, owner: Owner) -> None:
    owner.disk.holds = True
    answers = owner.open(1, request(1))
    owner.service.leave(ID, 1, -1, False)
    later = owner.open(2, request(2))
    await owner.commit()
    assert (answers, later) == ([None], [messages.DURABLE])


@pytest.mark.parametrize("is_confirmed", [False, True])
async def test_a_session_whose_CONNECT_may_have_been_refused_is_not_present(owner: Owner, is_confirmed: bool) -> None:
    """Nobody reports how its connection ended, and nothing is in it."""
    owner.open(1, request(1), confirms=is_confirmed)
    owner.service.leave(ID, 1, -1, True)
    present = messages.PRESENT if is_confirmed else 0
    assert owner.open(2, request(2)) == [messages.DURABLE | present]


async def test_a_session_with_a_subscription_was_not_refused(owner: Owner) -> None:
    subscribed(owner)
    owner.service.leave(ID, 1, -1, True)
    assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]


async def test_a_CONNECT_that_asks_again_has_the_session_that_it_ends_with_its_connection(owner: Owner) -> None:
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.take(1)
    for token in (2, 3):
        assert owner.open(token, request(9, expiry_s=0)) == [messages.DURABLE | messages.PRESENT]
        await owner.settle()
        assert owner.payloads() == [b"1"]
        owner.service.leave(ID, token, -1, False)
    owner.open(4, request(9, expiry_s=0))
    owner.service.leave(ID, 4, 0, False)
    assert len(owner.service) == 0


async def test_a_session_that_ends_with_its_connection_ends_what_is_here(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.disk.holds = True
    answers = owner.open(2, None)
    assert answers == []
    await owner.commit()
    assert answers == [0]
    assert redis.slot(SLOT).sessions == {}
    assert owner.routed == []


async def test_who_looks_for_a_session_that_is_not_there_and_wants_none_has_its_own(owner: Owner) -> None:
    assert owner.open(1, request(expiry_s=0)) == [0]
    assert len(owner.service) == 0
