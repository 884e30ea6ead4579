"""A will that is due is published until everybody has it, whatever becomes of its session or its home."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.rlog.retained_authors import author_of
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SLOT, Home, another, opening

HASH = b""


def will(payload: bytes = b"gone", expiry_s: int = -1) -> Will:
    encoded = b"" if expiry_s < 0 else b"\x02" + expiry_s.to_bytes(4, "big")
    return Will(publication(5, 1, False, b"w", payload, encoded, expiry_s), 0)


def due(home: Home, token: int = 1, payload: bytes = b"gone", expiry_s: int = -1) -> Publish:
    """The client is lost, with its will."""
    home.open(token, opening(token, will=will(payload, expiry_s)))
    home.residents.leave(ID, token, -1, True)
    return home.published[-1]


async def test_a_will_that_was_not_accepted_is_published_by_the_next_home(redis: Redis, home: Home) -> None:
    first = due(home)
    later = await another(redis)
    [again] = later.published
    assert (again.packet, again.origin) == (first.packet, first.origin), "who has it knows the repeat"
    home.residents.disown(SLOT)
    home.accepted[0]()
    assert redis.slot(SLOT).sessions[HASH], "a former home says nothing any more"
    later.accepted[0]()
    assert HASH not in redis.slot(SLOT).sessions
    assert (await another(redis)).published == []


async def test_a_retained_will_keeps_its_place_among_what_its_client_wrote(redis: Redis, home: Home) -> None:
    home.open(7, opening(7, will=Will(publication(5, 1, True, b"w", b"gone", b""), 0)))
    home.residents.leave(ID, 7, -1, True)
    assert home.published[-1].author == author_of(ID, 7, is_will=True)
    assert (await another(redis)).published[-1].author == home.published[-1].author


async def test_the_will_of_a_connection_that_its_home_did_not_see_comes_before_those_that_it_sees(
    redis: Redis, home: Home
) -> None:
    home.open(7, opening(7, will=Will(publication(5, 1, True, b"w", b"gone", b""), 0)))
    await home.commit()
    later = await another(redis, machine := home.machine.next(1.0))
    machine.forward(bounds.HOME_RETURN_S + 1)
    later.residents.tick()
    later.residents.tick()
    assert later.published[-1].author == author_of(ID, later.floor(SLOT), is_will=True)


async def test_the_next_home_knows_of_whom_a_will_is_and_why_it_may_be(redis: Redis, home: Home) -> None:
    for token, retain, authorization in ((1, True, b"why"), (2, False, b"because"), (3, False, b"")):
        message = publication(5, 1, retain, b"w", authorization, b"")
        home.open(token, opening(token, will=Will(message, 0, authorization)))
        home.residents.leave(ID, token, -1, True)
    assert [(left.client_id, left.will.authorization) for left in home.left] == [
        (ID, b"why"),
        (ID, b"because"),
        (ID, b""),
    ]
    later = await another(redis)
    again = [(left.client_id, left.will.authorization, left.will.message.payload()) for left in later.left]
    assert sorted(again) == [(b"", b"", b""), (b"", b"because", b"because"), (b"", b"why", b"why")]
    assert {left.will.message.author for left in later.left} == {b"", author_of(ID, 1, is_will=True)}


async def test_a_will_is_not_published_again_once_it_was_accepted(redis: Redis, home: Home) -> None:
    due(home)
    home.accepted[0]()
    assert (await another(redis)).published == []


async def test_a_will_that_is_due_outlives_its_session(redis: Redis, home: Home) -> None:
    due(home)
    home.open(2, opening(2, clean=True))
    home.residents.leave(ID, 2, 0, False)
    assert redis.slot(SLOT).sessions.keys() == {HASH}
    later = await another(redis)
    assert [message.payload() for message in later.published] == [b"gone"]
    assert later.residents.sessions.by_id == {}


async def test_each_connection_has_its_own_will(redis: Redis, home: Home) -> None:
    origins = {due(home, token, payload).origin for token, payload in ((1, b"first"), (2, b"second"))}
    assert len(origins) == 2
    home.accepted[0]()
    assert [message.payload() for message in (await another(redis)).published] == [b"second"]


async def test_a_will_is_written_anew_when_Redis_lost_it(redis: Redis, home: Home) -> None:
    due(home)
    home.disk.holds = True
    redis.slots.clear()
    home.residents.resume(ID, EDGE, 2, opening(2), b"")
    await home.commit()
    await home.commit()
    assert [message.payload() for message in (await another(redis)).published] == [b"gone"]


async def test_the_expiry_of_a_will_runs_on_from_home_to_home(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(home, 1, b"kept", 60)
    due(home, 2, b"expired", 5)
    fields = redis.slot(SLOT).sessions[HASH]
    for field, value in fields.items():
        if field[:1] == b"w":
            fields[field] = (int.from_bytes(value[:8], "big") - 10_000).to_bytes(8, "big") + value[8:]
    [left] = (await another(redis)).published
    assert (left.payload(), left.expiry_s) == (b"kept", 50)
    assert len(redis.slot(SLOT).sessions[HASH]) == 2, "what expired is forgotten"


async def test_a_will_of_another_form_stays_beside_those_that_are_published(redis: Redis, home: Home) -> None:
    due(home)
    redis.slot(SLOT).sessions[HASH][b"w-of-a-later-version"] = b"?"
    later = await another(redis)
    assert len(later.published) == 1
    assert "a will" in later.alarms[SLOT]
    later.accepted[0]()
    assert redis.slot(SLOT).sessions[HASH].keys() == {b"m", b"w-of-a-later-version"}
    redis.slots.clear()
    later.disk.on_lost(SLOT)
    await later.settle()
    assert redis.slot(SLOT).sessions[HASH].keys() == {b"m", b"w-of-a-later-version"}


@pytest.mark.parametrize("banned", [True, False])
async def test_the_will_of_who_was_banned_meanwhile_is_not_published(redis: Redis, home: Home, banned: bool) -> None:
    home.open(1, opening(1, will=Will(will().message, delay_s=30)))
    home.residents.leave(ID, 1, -1, True)
    assert home.published == []
    if banned:
        home.banned.add((ID, None))
    home.machine.forward(31.0)
    home.residents.tick()
    assert len(home.published) == (not banned)
    if banned:
        await home.settle()
        assert (await another(redis)).published == [], "nor by the next home"
