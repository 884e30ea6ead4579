"""A will that is due is published until everybody has it, whatever becomes of its session or its owner."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.mqtt.message import Publish, Will, publication
from flockmq.rlog.retained_order import author_of
from flockmq.session_rpc.clean_session_wills import PendingWill
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, another, request

HASH = b""


def will(payload: bytes = b"gone", expiry_s: int = -1) -> Will:
    encoded = b"" if expiry_s < 0 else b"\x02" + expiry_s.to_bytes(4, "big")
    return Will(publication(5, 1, False, b"w", payload, encoded, expiry_s), 0)


def due(owner: Owner, token: int = 1, payload: bytes = b"gone", expiry_s: int = -1) -> Publish:
    """The client is lost, with its will."""
    owner.open(token, request(token, will=will(payload, expiry_s)))
    owner.service.leave(ID, token, -1, True)
    return owner.published[-1]


async def test_a_will_that_was_not_accepted_is_published_by_the_next_owner(redis: Redis, owner: Owner) -> None:
    first = due(owner)
    later = await another(redis)
    [again] = later.published
    assert (again.packet, again.origin) == (first.packet, first.origin), "who has it knows the repeat"
    owner.service.disown(SLOT)
    owner.accepted[0]()
    assert redis.slot(SLOT).sessions[HASH], "a former owner says nothing any more"
    later.accepted[0]()
    assert HASH not in redis.slot(SLOT).sessions
    assert (await another(redis)).published == []


async def test_a_retained_will_keeps_its_place_among_what_its_client_wrote(redis: Redis, owner: Owner) -> None:
    owner.open(7, request(7, will=Will(publication(5, 1, True, b"w", b"gone", b""), 0)))
    owner.service.leave(ID, 7, -1, True)
    assert owner.published[-1].author == author_of(ID, 7, is_will=True)
    assert (await another(redis)).published[-1].author == owner.published[-1].author


async def test_the_will_of_a_connection_that_its_owner_did_not_see_comes_before_those_that_it_sees(
    redis: Redis, owner: Owner
) -> None:
    owner.open(7, request(7, will=Will(publication(5, 1, True, b"w", b"gone", b""), 0)))
    await owner.commit()
    later = await another(redis, machine := owner.machine.next(1.0))
    machine.forward(bounds.CONNECTION_RETURN_S + 1)
    later.service.tick()
    later.service.tick()
    assert later.published[-1].author == author_of(ID, later.floor(SLOT), is_will=True)


async def test_the_next_owner_knows_of_whom_a_will_is_and_why_it_may_be(redis: Redis, owner: Owner) -> None:
    for token, retain, authorization in ((1, True, b"why"), (2, False, b"because"), (3, False, b"")):
        message = publication(5, 1, retain, b"w", authorization, b"")
        owner.open(token, request(token, will=Will(message, 0, authorization)))
        owner.service.leave(ID, token, -1, True)
    assert [(left.client_id, left.will.authorization) for left in owner.left] == [
        (ID, b"why"),
        (ID, b"because"),
        (ID, b""),
    ]
    later = await another(redis)
    again = [(left.client_id, left.will.authorization, left.will.message.payload()) for left in later.left]
    assert sorted(again) == [(b"", b"", b""), (b"", b"because", b"because"), (b"", b"why", b"why")]
    assert {left.will.message.author for left in later.left} == {b"", author_of(ID, 1, is_will=True)}


async def test_a_will_is_not_published_again_once_it_was_accepted(redis: Redis, owner: Owner) -> None:
    due(owner)
    owner.accepted[0]()
    assert (await another(redis)).published == []


async def test_a_will_that_is_due_outlives_its_session(redis: Redis, owner: Owner) -> None:
    due(owner)
    owner.open(2, request(2, clean=True))
    owner.service.leave(ID, 2, 0, False)
    assert redis.slot(SLOT).sessions.keys() == {HASH}
    later = await another(redis)
    assert [message.payload() for message in later.published] == [b"gone"]
    assert later.service.sessions.by_id == {}


async def test_each_connection_has_its_own_will(redis: Redis, owner: Owner) -> None:
    origins = {due(owner, token, payload).origin for token, payload in ((1, b"first"), (2, b"second"))}
    assert len(origins) == 2
    owner.accepted[0]()
    assert [message.payload() for message in (await another(redis)).published] == [b"second"]


async def test_a_will_is_written_anew_when_Redis_lost_it(redis: Redis, owner: Owner) -> None:
    due(owner)
    owner.disk.holds = True
    redis.slots.clear()
    owner.service.resume(ID, REPLICANT, 2, request(2), b"")
    await owner.commit()
    await owner.commit()
    assert [message.payload() for message in (await another(redis)).published] == [b"gone"]


async def test_the_expiry_of_a_will_runs_on_from_owner_to_owner(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    due(owner, 1, b"kept", 60)
    due(owner, 2, b"expired", 5)
    fields = redis.slot(SLOT).sessions[HASH]
    for field, value in fields.items():
        if field[:1] == b"w":
            fields[field] = (int.from_bytes(value[:8], "big") - 10_000).to_bytes(8, "big") + value[8:]
    [left] = (await another(redis)).published
    assert (left.payload(), left.expiry_s) == (b"kept", 50)
    assert len(redis.slot(SLOT).sessions[HASH]) == 2, "what expired is forgotten"


async def test_a_will_of_another_form_stays_beside_those_that_are_published(redis: Redis, owner: Owner) -> None:
    due(owner)
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
async def test_the_will_of_who_was_banned_meanwhile_is_not_published(redis: Redis, owner: Owner, banned: bool) -> None:
    owner.open(1, request(1, will=Will(will().message, delay_s=30)))
    owner.service.leave(ID, 1, -1, True)
    assert owner.published == []
    if banned:
        owner.banned.add((ID, None))
    owner.machine.forward(31.0)
    owner.service.tick()
    assert len(owner.published) == (not banned)
    if banned:
        await owner.settle()
        assert (await another(redis)).published == [], "nor by the next owner"


# --- of clients that were sent to other nodes -------------------------------------------------------------------------


def evicted(owner: Owner, token: int = 1, *, expiry_s: int = 60, delay_s: int = 0) -> None:
    owner.open(token, request(token, expiry_s=expiry_s, will=Will(will().message, delay_s)))
    owner.service.leave(ID, token, expiry_s, True, hold_s=30.0)


def guests_will() -> PendingWill:
    left = PendingWill(ID, None, Will(will().message, 0, b"why"))
    left.will.message.origin = b"an origin of 16."
    return left


def after(owner: Owner, seconds: float) -> list[bytes]:
    """What was published by then."""
    owner.machine.forward(seconds)
    owner.service.tick()
    return [message.payload() for message in owner.published]


@pytest.mark.parametrize("expiry_s", [60, 5])
async def test_the_will_of_a_client_that_is_sent_away_is_held_back(redis: Redis, owner: Owner, expiry_s: int) -> None:
    evicted(owner, expiry_s=expiry_s)
    assert after(owner, 29.0) == []
    assert after(owner, 2.0) == [b"gone"], "once"
    assert owner.service.manager.held_wills.count == owner.service.manager.held_wills.bytes == 0
    owner.accepted[0]()
    assert HASH not in redis.slot(SLOT).sessions


async def test_a_will_that_is_due_later_by_itself_stays_with_its_session(owner: Owner) -> None:
    evicted(owner, delay_s=40)
    assert owner.service.manager.held_wills.count == 0
    assert after(owner, 39.0) == []
    assert after(owner, 2.0) == [b"gone"]


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
async def test_an_owner_that_may_not_be_the_owner_any_more_publishes_none(owner: Owner, hold_s: float) -> None:
    """Its client may be back at the next one."""
    owner.open(1, request(1, will=Will(will().message, 10 if not hold_s else 0)))
    owner.service.leave(ID, 1, 60, True, hold_s=hold_s)
    owner.is_sure = False
    assert after(owner, 61.0) == []
    assert ID in owner.service.sessions.by_id, "it hasn't expired either"
    owner.is_sure = True
    assert after(owner, 0.0) == [b"gone"]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("expiry_s", [60, 0])
async def test_who_is_back_has_none_published(redis: Redis, owner: Owner, clean: bool, expiry_s: int) -> None:
    evicted(owner, expiry_s=5)
    assert after(owner, 10.0) == [], "its session has ended"
    owner.open(2, request(2, clean=clean, expiry_s=expiry_s) if expiry_s else None)
    assert after(owner, 30.0) == []
    await owner.commit()
    assert HASH not in redis.slot(SLOT).sessions


async def test_the_next_owner_holds_it_back_as_long(redis: Redis, owner: Owner) -> None:
    evicted(owner)
    owner.machine.forward(20.0)
    await owner.commit()
    later = await another(redis, owner.machine.next(1.0))
    owner.service.disown(SLOT)
    assert owner.service.manager.held_wills.bytes == 0
    assert after(later, 7.0) == []
    assert after(later, 3.0) == [b"gone"]
    assert [left.client_id for left in later.left] == [ID]


async def test_the_next_owner_publishes_none_of_who_is_back(redis: Redis, owner: Owner) -> None:
    evicted(owner)
    await owner.commit()
    later = await another(redis, owner.machine.next(1.0))
    later.connected.add(ID)
    assert after(later, 40.0) == []
    assert HASH not in redis.slot(SLOT).sessions


async def test_the_will_of_a_session_that_was_at_its_node_is_held_back_too(redis: Redis, owner: Owner) -> None:
    owner.service.hold(guests_will(), 30.0)
    owner.service.hold(guests_will(), 30.0)
    await owner.commit()
    assert after(owner, 20.0) == []
    later = await another(redis, owner.machine.next(0.0))
    assert after(later, 11.0) == [b"gone"]
    assert [(left.client_id, left.will.authorization, left.will.message.origin) for left in later.left] == [
        (ID, b"why", b"an origin of 16.")
    ]
    later.service.hold(guests_will(), 30.0)
    assert after(later, 31.0) == [b"gone"], "it is on its way"


@pytest.mark.parametrize("is_moved", [True, False])
async def test_who_came_back_and_left_has_none_held_back_if_its_eviction_is_reported_again(
    redis: Redis, owner: Owner, is_moved: bool
) -> None:
    owner.service.hold(guests_will(), 30.0)
    owner.open(2, None)
    await owner.commit()
    later = await another(redis, owner.machine.next(0.0)) if is_moved else owner
    later.service.hold(guests_will(), 20.0)
    assert after(later, 31.0) == []
    await later.commit()
    assert HASH not in redis.slot(SLOT).sessions
    assert later.service.manager.held_wills.bytes == 0


async def test_nor_has_who_was_back_before_its_owner_heard_of_the_eviction(owner: Owner) -> None:
    owner.service.cancel(ID, guests_will().will.message.origin)
    owner.service.hold(guests_will(), 30.0)
    assert after(owner, 31.0) == []


async def test_nor_has_who_came_back_while_the_slot_had_another_owner(redis: Redis, owner: Owner) -> None:
    owner.service.hold(guests_will(), 30.0)
    await owner.commit()
    later = await another(redis, owner.machine.next(0.0))
    later.service.cancel(ID, guests_will().will.message.origin)
    assert later.service.manager.held_wills.count == 0
    assert after(later, 31.0) == []


async def test_that_a_client_was_back_is_written_anew_when_Redis_lost_it(redis: Redis, owner: Owner) -> None:
    owner.service.hold(guests_will(), 30.0)
    owner.open(2, None)
    await owner.commit()
    redis.slots.clear()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    later = await another(redis, owner.machine.next(0.0))
    later.service.hold(guests_will(), 30.0)
    assert after(later, 31.0) == []


async def test_that_clients_were_back_is_remembered_as_far_as_there_is_room(
    redis: Redis, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.service.hold(guests_will(), 30.0)
    await owner.commit()
    monkeypatch.setattr("flockmq.durable.due_wills.WILLS_HELD_MAX_BYTES", 100)
    owner.open(2, None)
    await owner.commit()
    assert HASH not in redis.slot(SLOT).sessions
    assert owner.service.manager.held_wills.bytes == 0


async def test_a_client_id_has_one_that_is_held_back(owner: Owner) -> None:
    evicted(owner, 1)
    other = guests_will()
    other.will.message.origin = b"of the next one."
    owner.service.hold(other, 30.0)
    after(owner, 31.0)
    assert [message.origin for message in owner.published] == [b"of the next one."]


async def test_what_is_held_back_is_written_anew_when_Redis_lost_it(redis: Redis, owner: Owner) -> None:
    evicted(owner)
    await owner.commit()
    redis.slots.clear()
    owner.disk.on_lost(SLOT)
    await owner.settle()
    later = await another(redis, owner.machine.next(0.0))
    assert after(later, 31.0) == [b"gone"]


async def test_a_will_that_finds_no_room_is_published_at_once(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flockmq.durable.due_wills.WILLS_HELD_MAX_BYTES", 100)
    evicted(owner)
    assert after(owner, 0.0) == [b"gone"]


@pytest.mark.parametrize(("delay_s", "hold_s"), [(20, 0.0), (0, 30.0)])
@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("again", [0, 2, 3])
@pytest.mark.parametrize("is_back", [False, True])
async def test_a_CONNECT_that_is_refused_cancels_no_will(
    owner: Owner, delay_s: int, hold_s: float, is_answered: bool, again: int, is_back: bool
) -> None:
    """Its node gave it up, because Redis didn't answer in time, or its client left meanwhile."""
    owner.open(1, request(1, will=Will(will().message, delay_s)))
    owner.service.leave(ID, 1, 60, True, hold_s=hold_s)
    owner.disk.holds = True
    owner.open(2, request(2))
    if is_answered:
        owner.disk.holds = False
        await owner.commit()
    if again:  # The node repeats it, for it lost its link, or the client tries again: there was no connection before.
        owner.service.leave(ID, 2, -1, False)
        owner.open(3, request(again))
    owner.service.leave(ID, 3 if again else 2, -1, False, nonce=request(again or 2).nonce)
    owner.disk.holds = False
    await owner.commit()
    assert owner.published == []
    if is_back:
        owner.open(4, request(4))
    assert after(owner, 31.0) == ([] if is_back else [b"gone"])


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_CONNECT_that_is_refused_behind_one_that_was_let_in_brings_no_will_back(
    owner: Owner, is_told: bool
) -> None:
    evicted(owner)
    owner.open(2, request(2))
    if is_told:
        owner.service.leave(ID, 2, 60, False, nonce=request(2).nonce)
    else:
        owner.service.leave(ID, 2, -1, True)  # Its node is gone.
    owner.open(3, request(3))
    owner.service.leave(ID, 3, -1, False, nonce=request(3).nonce)
    assert after(owner, 31.0) == []


async def test_who_ends_the_session_of_a_client_that_was_sent_away_cancels_no_will(owner: Owner) -> None:
    """An operator: as a CONNECT that is refused."""
    evicted(owner)
    owner.service.open(Attach(ID, REPLICANT, 2, None, lambda _: None, nonce=b"a nonce!"))
    owner.service.leave(ID, 2, -1, False, nonce=b"a nonce!")
    assert len(owner.service) == 0
    assert after(owner, 31.0) == [b"gone"]


async def test_a_CONNECT_that_is_refused_cancels_no_will_of_a_clean_session(owner: Owner) -> None:
    owner.service.hold(guests_will(), 30.0)
    owner.open(2, request(2))
    owner.service.leave(ID, 2, -1, False, nonce=request(2).nonce)
    owner.service.hold(guests_will(), 20.0)
    assert after(owner, 31.0) == [b"gone"]


async def test_of_a_client_that_is_back_no_will_is_published_when_it_leaves_without_one(owner: Owner) -> None:
    owner.open(1, request(1, will=Will(will().message, 20)))
    owner.service.leave(ID, 1, 60, True)
    owner.open(2, request(2))
    await owner.commit()
    owner.service.leave(ID, 2, 60, False, nonce=request(2).nonce)
    assert after(owner, 31.0) == []
