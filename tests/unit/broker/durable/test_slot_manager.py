"""The slots of a home: what another home finds, who is refused, what Redis lost."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from flockmq import bounds
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import WAITS, message_value
from flockmq.routing.message_id import ORIGIN_BYTES, node_source
from flockmq.routing.slots import SlotMessage
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.homes import message
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SENDER, SLOT, Home, another, opening, roommates, subscribed, will
from unit.broker.protocol.harness import publish

NEVER_RETAINED = 2 << 4
"""Retain Handling 2."""


async def test_a_home_that_stops_takes_no_letters_any_more(home: Home) -> None:
    assert not home.residents.intake.is_loading()
    await home.residents.stop()
    assert home.residents.intake.is_loading(), "they would find no slot, again and again"


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


async def test_what_waits_at_the_next_home_has_the_room_that_its_zone_gives(redis: Redis, home: Home) -> None:
    zones = {"default": Limits(max_mqueue_len=2), "roomy": Limits("roomy", max_mqueue_len=100)}
    home.zones = zones
    home.open(1, msgspec.structs.replace(opening(1), zone="roomy"))
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    home.take(1, 2, 3, 4)
    redis.slots.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    later = Home(redis, "core-1@1", 2)
    later.zones = zones
    await later.own(SLOT)
    later.take(5)
    later.open(2, opening(2))
    await later.settle()
    assert later.payloads() == [b"1", b"2", b"3", b"4", b"5"]


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
    assert home.residents.intake.is_loading(), "it takes nothing for any slot until its table says whose the slot is"
    home.residents.disown(SLOT)
    assert not home.residents.intake.is_loading()
    await home.settle()
    assert len(home.residents) == 0


async def test_a_fenced_slot_sends_no_more_whatever_its_clients_answer(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(*range(1, 41))
    await home.settle()
    assert len(home.packets()) == 32, "the window"
    await another(redis)
    home.disk.release(SLOT)
    home.disk.on_fenced(SLOT)
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    home.residents.leave(ID, 1, -1, True)
    await home.settle()
    assert home.packets() == []


async def test_a_slot_that_another_takes_while_it_is_loaded_is_not(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    for token, client_id in enumerate(roommates(4), start=1):
        home.open(token, opening(token), client_id)
    later = Home(redis, "core-1@1", 2)
    later.residents.own(SLOT)
    while not len(later.residents):
        await later.pass_turn()
    later.disk.release(SLOT)
    later.disk.on_fenced(SLOT)
    await later.settle()
    assert not later.residents.has_loaded(SLOT)
    assert later.residents.intake.is_loading()


async def test_a_slot_that_another_took_first_is_not_loaded(redis: Redis) -> None:
    await another(redis)
    earlier = Home(redis, "core-0@1", 1)
    await earlier.own(SLOT)
    assert not earlier.residents.has_loaded(SLOT)
    assert earlier.residents.intake.is_loading()


async def test_the_sessions_of_a_slot_that_is_let_go_of_leave_some_a_turn_and_come_back_when_all_are_out(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients, expiry_s=1, will=will())
    home.residents.disown(SLOT)
    assert not home.residents.has_loaded(SLOT)
    await home.pass_turn()
    assert 0 < len(home.residents) < len(clients)
    home.epoch = 3
    home.residents.own(SLOT)
    home.machine.forward(1e9)
    for token, client_id in enumerate(clients, start=1):
        home.residents.leave(client_id, token, -1, True)
    home.residents.tick()
    assert home.published == [], "the next home's affair"
    left = [len(home.residents)]
    while left[-1] and not home.residents.has_loaded(SLOT):
        await home.pass_turn()
        left.append(len(home.residents))
    assert left[-1] == 0
    monkeypatch.undo()
    await home.settle()
    assert home.residents.has_loaded(SLOT)
    assert set(home.residents.sessions.by_id) == set(clients)
    assert set(home.residents.sessions.away) == set(clients)


async def test_what_a_session_on_its_way_out_says_is_nothing(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients)
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    home.residents.disown(SLOT)
    home.epoch = 3
    home.residents.own(SLOT)
    await home.pass_turn()
    for token, client_id in enumerate(clients, start=1):
        answers: list[bytes] = []
        home.residents.ask(
            client_id,
            token,
            (1, 0),
            messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""),
            answers.append,
        )
        assert answers == [b""], "ask again, another home"
    assert home.routed == []
    assert redis.slot(SLOT).sessions == before


async def test_a_member_of_a_shared_subscription_gets_nothing_once_its_slot_is_let_go_of(home: Home) -> None:
    home.open(1, opening())
    home.subscribe(1, b"$share/g/a/#")
    assert home.router.count(SLOT, b"$share/g/a/#") == (1, 0)
    home.residents.disown(SLOT)
    assert home.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    await home.settle()
    assert home.router.count(SLOT, b"$share/g/a/#") == (0, 0)
    assert not home.router.groups


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
    assert home.residents.intake.view() == 1
    home.epoch = 5
    home.residents.own(SLOT + 1)
    assert (home.residents.intake.view(), home.residents.intake.is_loading()) == (5, True)
    home.epoch = 6
    home.residents.disown(SLOT + 1)
    assert (home.residents.intake.view(), home.residents.intake.is_loading()) == (6, False)


async def test_marks_of_nodes_that_are_gone_are_forgotten_in_time(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    subscribed(home)
    home.take(1)
    assert redis.slot(SLOT).marks
    home.nodes.remove(SENDER)
    home.residents.node_gone(SENDER)
    home.residents.tick()
    assert not redis.slot(SLOT).marks


async def test_marks_of_a_node_that_is_back_as_another_incarnation_stay(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later = f"edge-2@{'0' * 16}0000", f"edge-2@{'0' * 16}0001"
    subscribed(home)
    message = publish(4, "a/b", "1", qos=1, packet_id=9)
    letters = [SlotMessage(node_source(former), 1, b"", 4, message)]
    home.residents.intake.take(letters, home.epoch, former, lambda _: None)
    home.residents.node_gone(former)
    home.nodes.append(later)
    monkeypatch.setattr(bounds, "MARKS_KEPT_S", 0.0)
    home.residents.node_gone(SENDER)
    home.residents.tick()
    home.residents.intake.take(letters, home.epoch, later, lambda _: None)
    await home.settle()
    assert home.payloads() == [b"1"]
    assert list(redis.slot(SLOT).marks) == [node_source(later)]


async def test_of_too_many_nodes_that_are_gone_those_that_went_first_are_forgotten(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MARKS_STRANGERS_MAX", 2)
    subscribed(home)
    message = publish(4, "a/b", "1", qos=1, packet_id=9)
    nodes = [f"edge@{number}" for number in range(3)]
    for node in nodes:
        home.residents.intake.take(
            [SlotMessage(node_source(node), 1, b"", 4, message)], home.epoch, node, lambda _: None
        )
    for node in nodes:
        home.residents.node_gone(node)
    home.residents.tick()
    assert set(redis.slot(SLOT).marks) == {node_source(node) for node in nodes[1:]}


async def test_what_a_purged_node_repeats_is_known_to_a_home_that_took_the_slot_meanwhile(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    home.take(1)
    later = Home(redis, "core-1@1", 2)
    later.nodes.remove(SENDER)
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


async def test_a_session_that_can_not_be_brought_in_holds_up_no_other_and_no_slot(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = roommates(1)[0]
    home.open(1, opening())
    home.open(2, opening(2), other)
    later = Home(redis, "core-1@1", 2)

    def fails_once(slot: int, client_id: bytes, filters: list[bytes]) -> None:
        if client_id == ID:
            raise RuntimeError(client_id)

    monkeypatch.setattr(later, "filters_loaded", fails_once)
    await later.own(SLOT, SLOT + 1)
    assert later.residents.has_loaded(SLOT)
    assert later.residents.has_loaded(SLOT + 1)
    assert other in later.residents.sessions.by_id
    assert not later.residents.intake.is_loading()


async def test_a_slot_whose_taking_fails_is_taken_again(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    home = Home(redis, "core-0@1", 1)
    tells = home.loaded
    failures = [RuntimeError("once")]

    def fails_once(slot: int) -> None:
        if failures:
            raise failures.pop()
        tells(slot)

    monkeypatch.setattr(home, "loaded", fails_once)
    await home.own(SLOT, SLOT + 1)
    assert home.residents.has_loaded(SLOT)
    assert home.residents.has_loaded(SLOT + 1)
    assert not home.residents.intake.is_loading()


async def test_a_session_that_can_not_be_read_is_left_where_it_is_and_the_others_come(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    data = redis.slot(SLOT)
    broken = {b"m": data.sessions[ID][b"m"], b"q" + bytes(8): b"", b"s": b""}
    data.sessions = {b"broken": broken, **data.sessions}
    later = await another(redis)
    assert later.residents.has_loaded(SLOT)
    assert list(later.residents.sessions.by_id) == [ID]
    assert data.sessions[b"broken"] == broken


async def test_a_session_that_can_not_be_read_stays_when_what_Redis_lost_is_written_again(
    redis: Redis, home: Home
) -> None:
    home.open(1, opening())
    of_slot = redis.slot(SLOT).sessions
    of_slot[b"unread"] = {b"m": b"of another version"}
    later = await another(redis)
    later.disk.on_lost(SLOT)
    await later.settle()
    assert of_slot.keys() == {ID, b"unread"}


async def test_a_slot_that_the_log_took_and_gave_back_unseen_is_taken_again(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In entries that this core skipped with a bootstrap: no row differs, so nobody tells it."""
    monkeypatch.setattr(bounds, "SLOT_LOST_MAX_S", 0.0)
    subscribed(home)
    await another(redis)
    home.disk.holds = True
    home.take(1)
    await home.commit()
    home.disk.holds = False
    assert not home.residents.has_loaded(SLOT), "fenced"
    home.residents.tick()
    await home.settle()
    assert not home.residents.has_loaded(SLOT), "the other is the later one"
    home.epoch = 3
    home.residents.tick()
    await home.settle()
    assert home.residents.has_loaded(SLOT)
    assert set(home.asked_again) == {SLOT}, "nobody saw it go and come"
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]


async def test_who_begins_anew_gets_nothing_of_a_session_that_could_not_be_read(redis: Redis, home: Home) -> None:
    subscribed(home)
    home.take(1)
    home.residents.leave(ID, 1, -1, False)
    readable = redis.slot(SLOT).sessions[ID].copy()
    redis.slot(SLOT).sessions[ID][b"s"] = b""
    later = await another(redis)
    assert later.open(2, opening(2, clean=True)) == [messages.DURABLE]
    assert len(readable) == 3
    assert list(redis.slot(SLOT).sessions[ID]) == [b"m"]


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


async def test_what_Redis_loses_while_a_slot_is_loaded_is_written_again_too(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(4)
    home.open_all(clients)
    later = Home(redis, "core-1@1", 2)
    later.residents.own(SLOT)
    while not len(later.residents):
        await later.pass_turn()
    assert not later.residents.has_loaded(SLOT)
    redis.slots.clear()
    later.disk.on_lost(SLOT)
    await later.settle()
    assert later.residents.has_loaded(SLOT)
    assert set(redis.slot(SLOT).sessions) == set(clients)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_of_a_slot_that_goes_while_it_is_taken_again_nothing_is_written_by_its_former_owner(
    redis: Redis, home: Home, comes_back: bool
) -> None:
    home.open(1, opening())
    before = redis.slot(SLOT).sessions[ID].copy()
    redis.slow = asyncio.Event()
    home.disk.on_lost(SLOT)
    await home.settle()
    home.residents.disown(SLOT)
    await home.settle()
    if comes_back:
        redis.slow, slow = None, redis.slow
        home.epoch = 3
        await home.own(SLOT)
        slow.set()
    else:
        redis.slow.set()
    await home.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert home.residents.has_loaded(SLOT) == comes_back
    if comes_back:
        assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
        assert redis.slot(SLOT).sessions[ID] != before


async def test_a_slot_that_goes_before_it_is_taken_again_is_left_to_its_next_home(redis: Redis, home: Home) -> None:
    """It may not have fenced it yet, and finds there what it goes on with."""
    subscribed(home)
    before = redis.slot(SLOT).sessions[ID].copy()
    home.disk.turn.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    home.residents.disown(SLOT)
    await home.settle()
    home.disk.turn.set()
    await home.settle()
    assert redis.slot(SLOT).sessions == {ID: before}
    assert (await another(redis)).came == [(SLOT, ID, [b"a/#"])]


async def test_what_can_not_be_written_anew_is_tried_again(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LOG_RETRY_MAX_S", 0.0)
    subscribed(home)
    begin_anew = home.disk.begin_anew
    tries: list[int] = []

    def fails_once(slot: int) -> None:
        tries.append(slot)
        if len(tries) == 1:
            raise RuntimeError("not this time")
        begin_anew(slot)

    monkeypatch.setattr(home.disk, "begin_anew", fails_once)
    redis.slots.clear()
    home.disk.on_lost(SLOT)
    await home.settle()
    assert set(redis.slot(SLOT).sessions) == {ID}


async def test_what_is_retained_is_owed_until_it_was_given(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    home.subscribe(1, b"a/#")
    home.subscribe(1, b"b/#")
    first = home.owed[0][0]
    gave(first)
    home.residents.leave(ID, 1, -1, False)
    later = await another(redis)
    assert [(owed.filter, saw_all) for owed, saw_all in later.owed] == [(b"b/#", False)]
    later.open(2, opening(2))
    later.ask(2, messages.SubscribeQuestion([messages.WantedSubscription(b"b/#", 1 | NEVER_RETAINED)], b""))
    [_, (again, _)] = later.owed
    assert again is not later.owed[0][0], "who asks for it anew gets it by the new one"
    gave(again)
    last = Home(redis, "core-2@1", 3)
    await last.own(SLOT)
    assert last.owed == []


async def test_what_is_owed_is_written_again_and_ends_with_its_subscription(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    home.subscribe(1, b"a/#")
    home.subscribe(1, b"b/#")
    home.disk.holds = True
    redis.slots.clear()
    home.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"1"))
    await home.commit()
    await home.commit()
    home.disk.holds = False
    home.subscribe(1, b"a/#", 1 | NEVER_RETAINED)
    gave(home.owed[0][0])
    assert [owed.filter for owed, _ in (await another(redis)).owed] == [b"b/#"]


def gave(subscription: Subscription) -> None:
    assert isinstance(subscription.session, DurableSession)
    subscription.session.retained_sent(subscription)


# UNSUBSCRIBE asked again.


async def test_what_an_UNSUBSCRIBE_removed_it_is_told_however_often_it_asks(redis: Redis, home: Home) -> None:
    """[MQTT-3.11.3]"""
    subscribed(home)
    question = messages.UnsubscribeQuestion([b"a/#", b"never"], b"nonce")
    answer = home.ask(1, question)
    assert messages.decode_reasons(answer[0]) == [0, 0x11]
    assert home.ask(1, question) == answer
    later = await another(redis)
    later.residents.resume(ID, EDGE, 1, opening(1), b"")
    assert later.ask(1, question) == answer, "the first home crashed amid its answer"
    assert later.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"other")) == [messages.encode([0x11])]
    later.residents.leave(ID, 1, -1, False)
    later.open(2, opening(2))
    assert [field for field in redis.slot(SLOT).sessions[ID] if field[:1] == b"u"] == []


async def test_an_UNSUBSCRIBE_that_asks_again_behind_its_SUBSCRIBE_removes_what_that_made_again(home: Home) -> None:
    """The answers to both were lost."""
    home.open(1, opening(1))
    question = messages.UnsubscribeQuestion([b"a/#"], b"nonce")
    for _ in range(2):
        home.subscribe(1)
        assert home.ask(1, question) == [messages.encode([0])]
        assert home.residents.sessions.by_id[ID].subscriptions.find(b"a/#") is None


async def test_of_UNSUBSCRIBEs_no_more_are_kept_than_one_client_has_under_way(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    for number in range(bounds.SUBSCRIBES_WAITING_MAX + 3):
        home.subscribe(1)
        home.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"%d" % number))
    kept = [field for field in redis.slot(SLOT).sessions[ID] if field[:1] == b"u"]
    assert len(kept) == bounds.SUBSCRIBES_WAITING_MAX
    assert home.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"0")) == [messages.encode([0x11])]
    assert home.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"3")) == [messages.encode([0])]


# What can't be read.


async def test_a_session_that_cannot_be_read_is_kept_until_its_client_wants_it_no_more(
    redis: Redis, home: Home
) -> None:
    subscribed(home)
    of_slot = redis.slot(SLOT).sessions
    of_slot[ID][b"m"] = b"of a later version"
    kept = of_slot[ID].copy()
    later = await another(redis)
    assert later.alarms[SLOT].startswith(f"a session of slot {SLOT} can't be read, and is kept: {ID.decode()!r} (")
    assert later.alarms[SLOT].endswith(")")
    answers: list[int] = []
    assert later.residents.open(Attach(ID, EDGE, 2, opening(2), answers.append)) == messages.FULL, (
        "it would take its place"
    )
    assert of_slot[ID] == kept
    assert later.residents.open(Attach(ID, EDGE, 3, opening(3, clean=True), answers.append)) == messages.ADMITTED
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
async def test_a_session_with_a_field_that_no_home_put_is_kept_as_it_is(
    redis: Redis, home: Home, spoilt: dict[bytes, bytes]
) -> None:
    subscribed(home)
    of_slot = redis.slot(SLOT).sessions
    of_slot[ID].update(spoilt)
    kept = of_slot[ID].copy()
    later = await another(redis)
    assert repr(ID.decode()) in later.alarms[SLOT]
    assert ID not in later.residents.sessions.by_id
    later.disk.on_lost(SLOT)
    await later.settle()
    assert of_slot[ID] == kept


async def test_a_session_that_cannot_be_read_ends_with_a_clean_session(redis: Redis, home: Home) -> None:
    subscribed(home)
    redis.slot(SLOT).sessions[ID][b"m"] = b"of a later version"
    later = await another(redis)
    answers: list[int] = []
    assert later.residents.open(Attach(ID, EDGE, 2, None, answers.append)) == messages.ADMITTED
    await later.settle()
    assert answers == [0]
    assert later.residents.open(Attach(ID, EDGE, 3, None, answers.append)) == messages.ADMITTED
    assert answers == [0, messages.ABSENT]
    assert ID not in redis.slot(SLOT).sessions
    assert later.alarms[SLOT] == ""


async def test_a_slot_that_cannot_be_read_waits_for_an_operator_and_holds_up_no_other(redis: Redis, home: Home) -> None:
    subscribed(home)
    redis.slot(SLOT).read_error = "the key is a list"
    other = (SLOT + 1) % bounds.SLOTS
    later = Home(redis, "core-1@1", 2)
    await later.own(SLOT, other)
    assert later.residents.has_loaded(other)
    assert not later.residents.has_loaded(SLOT)
    assert "the key is a list" in later.alarms[SLOT]
    redis.slot(SLOT).read_error = ""
    later.residents.tick()
    await later.settle()
    assert not later.residents.has_loaded(SLOT), "it isn't looked at all the time"
    later.machine.forward(bounds.SLOT_SPOILT_RETRY_S)
    later.residents.tick()
    await later.settle()
    assert later.residents.has_loaded(SLOT)
    assert later.alarms[SLOT] == ""
