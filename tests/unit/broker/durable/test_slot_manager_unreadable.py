"""Sessions and slots that can't be read: they stay as they are until their client or an operator ends them."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.durable.session_fields import WAITS, message_value
from flockmq.routing.message_id import ORIGIN_BYTES
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SLOT, Owner, another, request, subscribed
from unit.broker.durable.session_owner import message


async def test_a_session_that_can_not_be_read_is_left_where_it_is_and_the_others_come(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request())
    data = redis.slot(SLOT)
    broken = {b"m": data.sessions[ID][b"m"], b"q" + bytes(8): b"", b"s": b""}
    data.sessions = {b"broken": broken, **data.sessions}
    later = await another(redis)
    assert later.service.has_loaded(SLOT)
    assert list(later.service.sessions.by_id) == [ID]
    assert data.sessions[b"broken"] == broken


async def test_a_session_that_can_not_be_read_stays_when_what_Redis_lost_is_written_again(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request())
    of_slot = redis.slot(SLOT).sessions
    of_slot[b"unread"] = {b"m": b"of another version"}
    later = await another(redis)
    later.disk.on_lost(SLOT)
    await later.settle()
    assert of_slot.keys() == {ID, b"unread"}


async def test_who_begins_anew_gets_nothing_of_a_session_that_could_not_be_read(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    owner.take(1)
    owner.service.leave(ID, 1, -1, False)
    readable = redis.slot(SLOT).sessions[ID].copy()
    redis.slot(SLOT).sessions[ID][b"s"] = b""
    later = await another(redis)
    assert later.open(2, request(2, clean=True)) == [messages.DURABLE]
    assert len(readable) == 3
    assert list(redis.slot(SLOT).sessions[ID]) == [b"m"]


async def test_a_session_that_cannot_be_read_is_kept_until_its_client_wants_it_no_more(
    redis: Redis, owner: Owner
) -> None:
    subscribed(owner)
    of_slot = redis.slot(SLOT).sessions
    of_slot[ID][b"m"] = b"of a later version"
    kept = of_slot[ID].copy()
    later = await another(redis)
    assert later.alarms[SLOT].startswith(f"a session of slot {SLOT} can't be read, and is kept: {ID.decode()!r} (")
    assert later.alarms[SLOT].endswith(")")
    answers: list[int] = []
    assert later.service.open(Attach(ID, REPLICANT, 2, request(2), answers.append)) == messages.FULL, (
        "it would take its place"
    )
    assert of_slot[ID] == kept
    assert later.service.open(Attach(ID, REPLICANT, 3, request(3, clean=True), answers.append)) == messages.ADMITTED
    await later.settle()
    assert answers == [messages.DURABLE]
    assert of_slot[ID].keys() == {b"m"}
    assert later.alarms[SLOT] == ""


@pytest.mark.parametrize(
    "spoilt",
    [
        {b"sa/#": b"\x03"},
        {b"sa/#/b": b"\x01"},
        {b"q" + (1).to_bytes(8, "big"): message_value(WAITS, 3, 4, 0, b"", b"")},
        {b"q1": message_value(WAITS, 1, 4, 0, b"", message("x", 1).packet)},
        {b"r\0\1": b"no origin"},
        {b"r1": bytes(ORIGIN_BYTES)},
    ],
)
async def test_a_session_with_a_field_that_no_owner_put_is_kept_as_it_is(
    redis: Redis, owner: Owner, spoilt: dict[bytes, bytes]
) -> None:
    subscribed(owner)
    of_slot = redis.slot(SLOT).sessions
    of_slot[ID].update(spoilt)
    kept = of_slot[ID].copy()
    later = await another(redis)
    assert repr(ID.decode()) in later.alarms[SLOT]
    assert ID not in later.service.sessions.by_id
    later.disk.on_lost(SLOT)
    await later.settle()
    assert of_slot[ID] == kept


async def test_a_session_that_cannot_be_read_ends_with_a_clean_session(redis: Redis, owner: Owner) -> None:
    subscribed(owner)
    redis.slot(SLOT).sessions[ID][b"m"] = b"of a later version"
    later = await another(redis)
    answers: list[int] = []
    assert later.service.open(Attach(ID, REPLICANT, 2, None, answers.append)) == messages.ADMITTED
    await later.settle()
    assert answers == [0]
    assert later.service.open(Attach(ID, REPLICANT, 3, None, answers.append)) == messages.ADMITTED
    assert answers == [0, messages.ABSENT]
    assert ID not in redis.slot(SLOT).sessions
    assert later.alarms[SLOT] == ""


async def test_a_slot_that_cannot_be_read_waits_for_an_operator_and_holds_up_no_other(
    redis: Redis, owner: Owner
) -> None:
    subscribed(owner)
    redis.slot(SLOT).read_error = "the key is a list"
    other = (SLOT + 1) % bounds.SLOTS
    later = Owner(redis, "core-1@1", 2)
    await later.own(SLOT, other)
    assert later.service.has_loaded(other)
    assert not later.service.has_loaded(SLOT)
    assert "the key is a list" in later.alarms[SLOT]
    redis.slot(SLOT).read_error = ""
    later.service.tick()
    await later.settle()
    assert not later.service.has_loaded(SLOT), "it isn't looked at all the time"
    later.machine.forward(bounds.SLOT_SPOILT_RETRY_S)
    later.service.tick()
    await later.settle()
    assert later.service.has_loaded(SLOT)
    assert later.alarms[SLOT] == ""
