"""A client that comes back after its slot moved or its owner crashed: its will, its expiry, and whom it waits for."""

from __future__ import annotations

from functools import partial

import pytest

from flockmq import bounds
from flockmq.mqtt.message import Will
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    ID,
    REPLICANT,
    SLOT,
    Owner,
    another,
    request,
    will,
)


async def test_a_will_of_who_left_in_order_is_not_published(owner: Owner) -> None:
    owner.open(1, request(will=will()))
    owner.service.leave(ID, 1, -1, False)
    owner.service.tick()
    assert owner.published == []


async def test_a_client_that_did_not_come_back_after_a_crash_left_then(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    owner.open(1, request(will=will()))
    later = await another(redis)
    later.service.tick()
    assert [message.topic for message in later.published] == [b"w"]
    later.accepted[0]()
    again = Owner(redis, "core-2@1", 3)
    await again.own(SLOT)
    again.service.tick()
    assert again.published == [], "once"


async def test_a_client_that_left_in_order_while_its_slot_moved_left_so(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    owner.open(1, request(will=will()))
    later = await another(redis)
    later.service.leave(ID, 1, 5, False, request(1).nonce)
    later.service.tick()
    later.service.tick()
    assert later.published == []
    assert later.service.sessions.away[ID].session.meta.expiry_s == 5
    assert later.router.counters.sessions_away == 1


async def test_the_will_of_who_was_lost_while_the_slot_moved_is_published_though_its_client_is_back(
    redis: Redis, owner: Owner
) -> None:
    """[MQTT-3.1.2-8]"""
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    later.service.leave(ID, 1, 60, True, request(1).nonce)
    assert later.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]


async def test_who_is_back_before_its_node_says_how_it_left_waits_for_that(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    answers = later.open(2, request(2, will=will()))
    await later.settle()
    assert answers == []
    later.service.leave(ID, 1, 60, False, request(1).nonce)
    await later.settle()
    assert answers == [messages.DURABLE | messages.PRESENT]
    assert later.published == [], "it left in order"


async def test_who_is_back_and_whose_node_says_nothing_comes_behind_its_will(redis: Redis, owner: Owner) -> None:
    """[MQTT-3.1.2-8]: its node, and its owner, died with its connection."""
    owner.open(1, request(1, will=will()))
    later = await another(redis, machine := owner.machine.next(1.0))
    answers = later.open(2, request(2, will=will()))
    machine.forward(bounds.CONNECTION_RETURN_S)
    later.service.tick()
    await later.settle()
    assert [message.topic for message in later.published] == [b"w"]
    assert answers == [messages.DURABLE | messages.PRESENT]


async def test_a_CONNECT_that_is_asked_for_again_waits_for_nobody(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    assert later.open(2, request(1, will=will())) == [messages.DURABLE]


@pytest.mark.parametrize(("nonce", "topics"), [(1, []), (2, [b"w"])])
async def test_a_CONNECT_that_is_asked_for_again_is_no_other_connection_whose_will_is_due(
    owner: Owner, nonce: int, topics: list[bytes]
) -> None:
    owner.open(1, request(1, will=will()))
    owner.open(2, request(nonce, will=will()))
    await owner.settle()
    assert [message.topic for message in owner.published] == topics


async def test_who_waits_for_its_node_and_goes_is_not_let_in(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    first, second = later.open(2, request(2)), later.open(3, request(3))
    later.service.leave(ID, 2, 60, False, request(2).nonce)
    later.service.leave(ID, 1, 60, True, request(1).nonce)
    await later.settle()
    assert (first, second) == ([], [messages.DURABLE | messages.PRESENT])


async def test_those_who_wait_for_their_nodes_are_bounded(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETURNING_MAX", 0)
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    assert later.service.open(Attach(ID, REPLICANT, 2, request(2), lambda _: None)) == messages.FULL


async def test_who_waited_for_its_node_is_let_in_only_if_it_still_has_the_client_id(redis: Redis, owner: Owner) -> None:
    """One that waited for a quota may be of before the slot went to another owner and came back."""
    owner.open(1, request(1, will=will()))
    later = await another(redis)
    asked_again: list[int] = []
    waiting = Attach(ID, REPLICANT, 2, request(2), lambda _: None, again=partial(asked_again.append, 2))
    assert later.service.open(waiting) == messages.ADMITTED
    later.service.leave(ID, 1, 60, False, request(1).nonce)
    assert asked_again == [2]
    assert later.service.connected.of(2) is None


async def test_a_CONNECT_that_was_refused_leaves_no_will_at_the_next_owner(redis: Redis, owner: Owner) -> None:
    """The former one had granted it, and its node had given it up by then."""
    owner.open(1, request(1))
    owner.service.leave(ID, 1, 60, False, request(1).nonce)
    owner.open(2, request(2, will=will()), confirms=False)
    later = await another(redis)
    later.service.leave(ID, 2, -1, False, request(2).nonce)
    later.machine.forward(bounds.CONNECTION_RETURN_S + 1.0)
    later.service.tick()
    assert later.published == []
    assert later.open(3, request(3)) == [messages.DURABLE | messages.PRESENT]


async def test_a_connection_that_never_was_says_nothing_of_the_one_before_it(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds none to be kicked says that it is gone."""
    monkeypatch.setattr(bounds, "CONNECTION_RETURN_S", -1.0)
    owner.open(1, request(will=will()))
    later = await another(redis)
    later.service.leave(ID, 2, -1, False)
    later.service.tick()
    assert [message.topic for message in later.published] == [b"w"]


async def test_a_session_expires_when_its_time_is_up_also_after_a_crash(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(expiry_s=60))
    owner.service.leave(ID, 1, 0, False)
    owner.service.tick()
    assert len(owner.service) == 0
    assert redis.slot(SLOT).sessions == {}
    later = await another(redis)
    assert len(later.service) == 0


async def test_a_session_expires_when_its_time_is_up_also_where_the_clock_began_later(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request(expiry_s=600))
    owner.service.leave(ID, 1, -1, False)
    later = await another(redis, owner.machine.next(after_s=700))
    assert len(later.service) == 1
    later.service.tick()
    assert len(later.service) == 0


async def test_who_comes_back_too_late_to_a_slot_that_had_no_owner_finds_no_session(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, expiry_s=60))
    owner.service.leave(ID, 1, -1, False)
    later = await another(redis, owner.machine.next(after_s=3600))
    assert later.open(2, request(2)) == [messages.DURABLE]


@pytest.mark.parametrize("moved", [False, True])
async def test_a_connection_whose_session_expired_while_its_node_was_held_for_gone_does_not_go_on(
    redis: Redis, owner: Owner, moved: bool
) -> None:
    owner.open(1, request(1, expiry_s=60))
    owner.service.node_gone(REPLICANT)
    await owner.settle()
    if moved:
        later = await another(redis, owner.machine.next(after_s=3600))
    else:
        later = owner
        owner.machine.forward(3600)
    assert not later.service.resume(ID, REPLICANT, 1, request(1), b"")
    assert len(later.service) == 0


async def test_a_will_that_was_due_is_published_though_its_client_is_back_first(redis: Redis, owner: Owner) -> None:
    owner.open(1, request(1, expiry_s=7200, will=Will(will().message, 30)))
    owner.service.leave(ID, 1, -1, True)
    later = await another(redis, owner.machine.next(after_s=3600))
    assert later.open(2, request(2, expiry_s=7200)) == [messages.DURABLE | messages.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]
