"""A will that is due is published until everybody has it, whatever becomes of its session or its home."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.rlog.retained_order import author_of
from flockmq.session_rpc.clean_session_wills import PendingWill
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
    machine.forward(bounds.CONNECTION_RETURN_S + 1)
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


# --- of clients that were sent to other nodes -------------------------------------------------------------------------


def evicted(home: Home, token: int = 1, *, expiry_s: int = 60, delay_s: int = 0) -> None:
    home.open(token, opening(token, expiry_s=expiry_s, will=Will(will().message, delay_s)))
    home.residents.leave(ID, token, expiry_s, True, hold_s=30.0)


def guests_will() -> PendingWill:
    left = PendingWill(ID, None, Will(will().message, 0, b"why"))
    left.will.message.origin = b"an origin of 16."
    return left


def after(home: Home, seconds: float) -> list[bytes]:
    """What was published by then."""
    home.machine.forward(seconds)
    home.residents.tick()
    return [message.payload() for message in home.published]


@pytest.mark.parametrize("expiry_s", [60, 5])
async def test_the_will_of_a_client_that_is_sent_away_is_held_back(redis: Redis, home: Home, expiry_s: int) -> None:
    evicted(home, expiry_s=expiry_s)
    assert after(home, 29.0) == []
    assert after(home, 2.0) == [b"gone"], "once"
    assert home.residents.manager.held_wills.count == home.residents.manager.held_wills.bytes == 0
    home.accepted[0]()
    assert HASH not in redis.slot(SLOT).sessions


async def test_a_will_that_is_due_later_by_itself_stays_with_its_session(home: Home) -> None:
    evicted(home, delay_s=40)
    assert home.residents.manager.held_wills.count == 0
    assert after(home, 39.0) == []
    assert after(home, 2.0) == [b"gone"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("expiry_s", [60, 0])
async def test_who_is_back_has_none_published(redis: Redis, home: Home, clean: bool, expiry_s: int) -> None:
    evicted(home, expiry_s=5)
    assert after(home, 10.0) == [], "its session has ended"
    home.open(2, opening(2, clean=clean, expiry_s=expiry_s) if expiry_s else None)
    assert after(home, 30.0) == []
    await home.commit()
    assert HASH not in redis.slot(SLOT).sessions


async def test_the_next_home_holds_it_back_as_long(redis: Redis, home: Home) -> None:
    evicted(home)
    home.machine.forward(20.0)
    await home.commit()
    later = await another(redis, home.machine.next(1.0))
    home.residents.disown(SLOT)
    assert home.residents.manager.held_wills.bytes == 0
    assert after(later, 7.0) == []
    assert after(later, 3.0) == [b"gone"]
    assert [left.client_id for left in later.left] == [ID]


async def test_the_next_home_publishes_none_of_who_is_back(redis: Redis, home: Home) -> None:
    evicted(home)
    await home.commit()
    later = await another(redis, home.machine.next(1.0))
    later.connected.add(ID)
    assert after(later, 40.0) == []
    assert HASH not in redis.slot(SLOT).sessions


async def test_the_will_of_a_session_that_was_at_its_node_is_held_back_too(redis: Redis, home: Home) -> None:
    home.residents.hold(guests_will(), 30.0)
    home.residents.hold(guests_will(), 30.0)
    await home.commit()
    assert after(home, 20.0) == []
    later = await another(redis, home.machine.next(0.0))
    assert after(later, 11.0) == [b"gone"]
    assert [(left.client_id, left.will.authorization, left.will.message.origin) for left in later.left] == [
        (ID, b"why", b"an origin of 16.")
    ]
    later.residents.hold(guests_will(), 30.0)
    assert after(later, 31.0) == [b"gone"], "it is on its way"


async def test_a_client_id_has_one_that_is_held_back(home: Home) -> None:
    evicted(home, 1)
    other = guests_will()
    other.will.message.origin = b"of the next one."
    home.residents.hold(other, 30.0)
    after(home, 31.0)
    assert [message.origin for message in home.published] == [b"of the next one."]


async def test_what_is_held_back_is_written_anew_when_Redis_lost_it(redis: Redis, home: Home) -> None:
    evicted(home)
    await home.commit()
    redis.slots.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    later = await another(redis, home.machine.next(0.0))
    assert after(later, 31.0) == [b"gone"]


async def test_a_will_that_finds_no_room_is_published_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.due_wills.WILLS_HELD_MAX_BYTES", 100)
    evicted(home)
    assert after(home, 0.0) == [b"gone"]
