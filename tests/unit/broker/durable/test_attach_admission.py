"""Who gets a session: not while Redis is full, and not another user's."""

from __future__ import annotations

import msgspec

from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, USER
from flockmq.mqtt.reason import Reason
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
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
)


async def test_no_session_and_no_subscription_begins_while_too_much_waits_for_Redis(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    owner.service.leave(ID, 1, -1, False)
    other = clients_of_slot(1)[0]
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    owner.disk.backed_up = True
    assert owner.service.open(Attach(ID, REPLICANT, 2, request(2), lambda _: None)) == messages.FULL, (
        "it would put what it is told"
    )
    assert owner.service.open(Attach(other, REPLICANT, 3, request(3), lambda _: None)) == messages.FULL
    assert owner.open(4, request(4, expiry_s=0), other) == [0], "a connection's own puts nothing"
    assert redis.slot(SLOT).sessions == before
    assert list(owner.service.sessions.away) == [ID]


async def test_of_a_Redis_that_is_full_who_has_a_session_gets_back_to_it(owner: Owner) -> None:
    """What it acknowledges makes room."""
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.disk.full = True
    assert owner.service.open(Attach(ID, REPLICANT, 2, request(2, clean=True), lambda _: None)) == messages.FULL
    assert owner.service.open(Attach(clients_of_slot(1)[0], REPLICANT, 3, request(3), lambda _: None)) == messages.FULL
    assert owner.open(4, request(4)) == [messages.DURABLE | messages.PRESENT]
    [answer] = owner.subscribe(4, b"b/#")
    assert messages.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    assert owner.routed == [(SLOT, b"a/#")]
    [answer] = owner.ask(4, messages.UnsubscribeQuestion([b"a/#"], b"1"))
    assert messages.decode_reasons(answer) == [0]


def owned(nonce: int, user: bytes | None, *, clean: bool = False) -> messages.SessionRequest:
    return msgspec.structs.replace(request(nonce, clean=clean), user=user)


def asks(owner: Owner, token: int, asked: messages.SessionRequest | None, user: bytes | None) -> int:
    return owner.service.open(Attach(ID, REPLICANT, token, asked, lambda _: None, user))


async def test_a_session_is_its_users_at_the_next_owner_too(redis: Redis, owner: Owner) -> None:
    owner.open(1, owned(1, b"jo"))
    owner.subscribe(1, b"a/#")
    owner.service.leave(ID, 1, -1, False)
    before = redis.slot(SLOT).sessions[ID].copy()
    for place in (owner, await another(redis)):
        assert asks(place, 2, owned(2, b"eve"), b"eve") == messages.OTHER_USER
        assert asks(place, 3, owned(3, b"", clean=True), b"") == messages.OTHER_USER, "nor does nobody get it"
        assert asks(place, 4, None, b"eve") == messages.OTHER_USER, "who wants none doesn't end it"
        assert redis.slot(SLOT).sessions[ID] == before
    assert place.open(5, owned(5, b"jo")) == [messages.DURABLE | messages.PRESENT]


async def test_a_session_that_can_not_be_read_is_ended_by_its_own_user_alone(redis: Redis, owner: Owner) -> None:
    owner.open(1, owned(1, b"jo"))
    owner.service.leave(ID, 1, -1, False)
    fields = redis.slot(SLOT).sessions[ID]
    fields[META] = b"\xff of a later version"
    before = fields.copy()
    later = await another(redis)
    assert asks(later, 2, owned(2, b"eve", clean=True), b"eve") == messages.FULL
    assert asks(later, 3, None, b"eve") == messages.FULL, "nor does who wants none end it"
    assert asks(later, 4, owned(4, b"jo"), b"jo") == messages.FULL
    assert redis.slot(SLOT).sessions[ID] == before
    assert asks(later, 5, owned(5, b"jo", clean=True), b"jo") == messages.ADMITTED
    await later.settle()
    assert redis.slot(SLOT).sessions[ID][META] != before[META]


async def test_where_its_user_can_not_be_read_either_only_an_operator_ends_it(redis: Redis, owner: Owner) -> None:
    redis.slot(SLOT).sessions[ID] = {META: b"\xff of a later version"}
    later = await another(redis)
    assert asks(later, 1, owned(1, b"jo", clean=True), b"jo") == messages.FULL
    assert asks(later, 2, None, None) == messages.ADMITTED
    await later.settle()
    assert ID not in redis.slot(SLOT).sessions


async def test_a_session_that_ended_is_nobodys(owner: Owner) -> None:
    owner.open(1, owned(1, b"jo"))
    owner.service.leave(ID, 1, 0, False)
    assert owner.open(2, owned(2, b"eve")) == [messages.DURABLE]


async def test_a_session_without_a_user_is_whose_who_comes_back_to_it(redis: Redis, owner: Owner) -> None:
    """It is of an earlier release, or client ids weren't bound."""
    owner.open(1, request(1))
    owner.service.leave(ID, 1, -1, False)
    assert owner.open(2, owned(2, b"jo")) == [messages.DURABLE | messages.PRESENT]
    owner.service.leave(ID, 2, -1, False)
    assert asks(await another(redis), 3, owned(3, b"eve"), b"eve") == messages.OTHER_USER


async def test_where_client_ids_are_bound_no_more_a_session_stays_its_users(owner: Owner) -> None:
    owner.open(1, owned(1, b"jo"))
    assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
    assert asks(owner, 3, owned(3, b"eve"), b"eve") == messages.OTHER_USER


async def test_whose_a_session_is_is_written_again_when_Redis_lost_it(redis: Redis, owner: Owner) -> None:
    owner.open(1, owned(1, b"jo"))
    session = owner.service.sessions.by_id[ID]
    assert isinstance(session, DurableSession)
    redis.slot(SLOT).sessions[ID].clear()
    session.write_again()
    owner.service.manager.request_barriers()
    assert redis.slot(SLOT).sessions[ID][USER] == b"jo"
