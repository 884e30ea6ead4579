"""Sessions at their homes over one Redis: what is said when."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import bounds
from flockmq.bounds import SINK_CONGESTED_MAX_S
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import META, USER
from flockmq.mqtt.message import Will, publication
from flockmq.mqtt.reason import Reason
from flockmq.routing.slots import SlotMessage
from flockmq.session.limits import Limits
from flockmq.session.remote_session import PUBACK, SETTLED, pair
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    EDGE,
    ID,
    SENDER,
    SLOT,
    SOURCE,
    Home,
    another,
    opening,
    roommates,
    subscribed,
    will,
)
from unit.broker.protocol.harness import publish


def ignore(_: object) -> None:
    """What is answered."""


# Nothing before it is durable.


async def test_an_attach_is_answered_when_its_session_is_durable(home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening())
    await home.settle()
    assert answers == []
    await home.commit()
    assert answers == [messages.DURABLE]


async def test_no_session_and_no_subscription_begins_while_too_much_waits_for_Redis(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    home.residents.leave(ID, 1, -1, False)
    other = roommates(1)[0]
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    home.disk.backed_up = True
    assert home.residents.open(Attach(ID, EDGE, 2, opening(2), lambda _: None)) == messages.FULL, (
        "it would put what it is told"
    )
    assert home.residents.open(Attach(other, EDGE, 3, opening(3), lambda _: None)) == messages.FULL
    assert home.open(4, opening(4, expiry_s=0), other) == [0], "a connection's own puts nothing"
    assert redis.slot(SLOT).sessions == before
    assert list(home.residents.sessions.away) == [ID]


async def test_of_a_Redis_that_is_full_who_has_a_session_gets_back_to_it(home: Home) -> None:
    """What it acknowledges makes room."""
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.disk.full = True
    assert home.residents.open(Attach(ID, EDGE, 2, opening(2, clean=True), lambda _: None)) == messages.FULL
    assert home.residents.open(Attach(roommates(1)[0], EDGE, 3, opening(3), lambda _: None)) == messages.FULL
    assert home.open(4, opening(4)) == [messages.DURABLE | messages.PRESENT]
    [answer] = home.subscribe(4, b"b/#")
    assert messages.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    assert home.routed == [(SLOT, b"a/#")]
    [answer] = home.ask(4, messages.UnsubscribeQuestion([b"a/#"], b"1"))
    assert messages.decode_reasons(answer) == [0]


async def test_of_a_Redis_that_is_short_of_memory_nothing_new_begins_and_what_is_there_goes_on(home: Home) -> None:
    subscribed(home)
    home.disk.short = True
    other = roommates(1)[0]
    assert home.residents.open(Attach(other, EDGE, 3, opening(3), ignore)) == messages.FULL
    [answer] = home.subscribe(1, b"b/#")
    assert messages.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    done = home.take(1)
    await home.settle()
    assert (done, home.payloads()) == ([True], [b"1"]), "what is under way is taken"


@pytest.mark.parametrize(("version", "kept"), [(4, [b"1"]), (5, [b"1", b"2"])])
async def test_of_a_Redis_that_is_short_nothing_waits_that_its_publisher_could_not_be_told_of(
    home: Home, version: int, kept: list[bytes]
) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take(1)
    home.disk.short = True
    letter = SlotMessage(SOURCE, 2, b"", version, publication(version, 1, False, b"a/b", b"2", b"").packet)
    done: list[bool] = []
    home.residents.intake.take([letter], home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.router.counters.dropped_queue_full == 2 - len(kept)
    home.open(2, opening(2))
    home.take(3)
    await home.settle()
    assert home.payloads() == [*kept, b"3"], "who is there gets all"


async def test_a_letter_is_accepted_and_sent_when_it_is_durable(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    done = home.take(1, 2)
    await home.settle()
    assert (done, home.payloads()) == ([], [])
    await home.commit()
    assert (done, home.payloads()) == ([True], [b"1", b"2"])


async def test_what_became_durable_waits_for_no_other_turn(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    home.take(1)
    await home.settle()
    home.disk.commit()
    assert len(home.delivered) == 1


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


# Session present.


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
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
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


# Letters.


async def test_letters_are_for_slots_that_were_gained_by_their_epoch(home: Home) -> None:
    """A sender with older tables sends its letter to the slot's home that it knows too, or again."""
    subscribed(home)
    assert home.take(1, epoch=0) == [True]
    assert home.take(1) == [True]
    await home.settle()
    assert home.payloads() == [b"1"], "not even marked the first time"


async def test_no_letters_are_taken_while_too_much_waits_for_Redis(home: Home) -> None:
    """They wait at their senders, which have bounds of their own."""
    assert not home.residents.intake.is_loading()
    home.disk.full = True
    assert home.residents.intake.is_loading()


async def test_letters_that_can_not_be_read_are_let_go(home: Home) -> None:
    subscribed(home)
    done: list[bool] = []
    good = publish(4, "a/b", "2", qos=1, packet_id=9)
    letters = [SlotMessage(SOURCE, 1, b"", 4, b"\x32\x02\x00\x09"), SlotMessage(SOURCE, 2, b"", 4, good)]
    home.residents.intake.take(letters, home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.payloads() == [b"2"]


async def test_a_session_that_can_not_take_a_letter_keeps_it_from_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    other = roommates(1)[0]
    home.open(2, opening(2), other)
    home.residents.ask(
        other, 2, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""), lambda _: None
    )
    home.packets()
    puts = home.disk.put

    def fails_for_one(slot: int, client_id: bytes, field: bytes, value: bytes) -> None:
        if client_id == ID:
            raise RuntimeError(field)
        puts(slot, client_id, field, value)

    monkeypatch.setattr(home.disk, "put", fails_for_one)
    assert home.take(1, 2) == [True]
    await home.settle()
    home.flush_soon()
    assert [chunk.count(b"a/b") for _, token, chunk in home.delivered if token == 2] == [2]


async def test_QoS_0_goes_to_who_is_there(home: Home) -> None:
    subscribed(home)
    run = publish(4, "a/b", "now") + publish(4, "b/c", "elsewhere")
    home.residents.intake.take_runs([SlotMessage(b"", 0, b"", 4, run)])
    assert home.packets() == [publish(4, "a/b", "now")]


# Connections that are gone.


async def test_the_will_of_a_connection_that_went_with_its_node_is_published(home: Home) -> None:
    home.open(1, opening(will=will()))
    home.residents.node_gone("other@1")
    home.residents.tick()
    assert home.published == []
    home.residents.node_gone(EDGE)
    await home.settle()
    assert [message.topic for message in home.published] == [b"w"]
    assert len(home.published[0].origin) == 16


async def test_the_connections_of_a_node_that_is_gone_leave_some_a_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients, will=will())
    home.residents.node_gone(EDGE)
    away = [0]
    while away[-1] < len(clients):
        await home.pass_turn()
        away.append(len(home.residents.sessions.away))
    assert away == list(range(len(clients) + 1))
    assert len(home.published) == len(clients)


async def test_a_node_that_was_purged_and_is_back_before_its_connections_left_keeps_them(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    home.residents.node_gone(EDGE)
    home.nodes[0] = again = "edge-0@2"
    assert home.residents.resume(ID, again, 1, opening(1), b"")
    await home.settle()
    home.delivered.clear()
    home.take(1)
    await home.settle()
    assert [incarnation for incarnation, _, _ in home.delivered] == [again]
    home.residents.node_gone(again)
    await home.settle()
    assert list(home.residents.sessions.away) == [ID]


async def test_who_comes_back_before_its_connection_left_with_its_node_has_its_session_and_its_will_is_published(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients, will=will())
    home.residents.node_gone(EDGE)
    await home.pass_turn()
    for token, client_id in enumerate(clients, start=101):
        assert home.open(token, opening(token), client_id, "edge-2@1") == [messages.DURABLE | messages.PRESENT]
    await home.settle()
    assert len(home.published) == len(clients)
    assert not home.residents.sessions.away


async def test_a_will_of_who_left_in_order_is_not_published(home: Home) -> None:
    home.open(1, opening(will=will()))
    home.residents.leave(ID, 1, -1, False)
    home.residents.tick()
    assert home.published == []


async def test_a_client_that_did_not_come_back_after_a_crash_left_then(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
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
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
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
    machine.forward(bounds.HOME_RETURN_S)
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
    monkeypatch.setattr(bounds, "HOME_RETURN_S", -1.0)
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


async def test_a_connection_that_takes_no_more_is_cut_off_and_its_session_stays(home: Home) -> None:
    await overflows(home)
    await home.settle()
    assert home.overflown == [(EDGE, ID, 1)]
    assert ID in home.residents.sessions.away


async def test_a_connection_that_was_cut_off_and_did_not_hear_so_does_not_go_on(home: Home) -> None:
    """It misses the message that found no room."""
    await overflows(home)
    await home.settle()
    assert not home.residents.resume(ID, EDGE, 1, opening(1), b"")
    home.residents.leave(ID, 1, 60, True)
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
    assert home.residents.resume(ID, EDGE, 2, opening(2), b"")
    assert not home.residents._cut_off


async def test_a_client_that_comes_back_to_a_full_queue_is_admitted_however_much_comes_meanwhile(home: Home) -> None:
    await overflows(home)
    home.residents.leave(ID, 1, 60, True)
    await home.settle()
    home.disk.holds = True
    answers = home.open(2, opening(2))
    home.take(5_000)
    await home.commit()
    assert answers == [messages.DURABLE | messages.PRESENT]


async def test_a_connection_of_the_home_itself_that_is_cut_off_is_gone_at_once(home: Home) -> None:
    await overflows(home, home.incarnation)
    await home.settle()
    assert home.overflown == [(home.incarnation, ID, 1)]
    assert not home.residents._cut_off


@pytest.mark.parametrize("goes", ["away", "for good", "elsewhere"])
async def test_who_was_cut_off_is_forgotten_with_its_connection_or_its_session(home: Home, goes: str) -> None:
    await overflows(home)
    await home.settle()
    assert list(home.residents._cut_off) == [ID]
    if goes == "away":
        home.residents.leave(ID, 1, 60, True)
    elif goes == "elsewhere":
        home.residents.disown(SLOT)
    else:
        sessions = home.residents.sessions
        sessions.end(sessions.by_id[ID])
        home.residents.tick()
    await home.settle()
    assert not home.residents._cut_off


async def overflows(home: Home, node: str = EDGE) -> None:
    """It reads nothing, for as long as publishers are paused for it."""
    home.open(1, opening(1), node=node)
    home.subscribe(1)
    limit = Limits().max_mqueue_len + Limits().max_inflight
    for first in range(1, limit, 100):
        home.take(*range(first, first + 100))
    await home.settle()
    assert home.overflown == []
    home.router.now_s += SINK_CONGESTED_MAX_S + 0.1
    home.residents.congestion.tick(home.router.now_s)
    home.take(*range(limit + 100, limit + 200))


async def test_what_was_lost_on_its_way_to_a_front_goes_again(home: Home) -> None:
    home.residents.connected.behind_s = 0.0
    subscribed(home)
    home.linked = False
    home.residents.cut(EDGE)
    home.take(1)
    await home.settle()
    assert home.packets() == [], "nothing goes there before all of it does"
    home.linked = True
    await home.settle()
    assert home.payloads() == [b"1"]


async def test_what_was_lost_on_its_way_to_many_goes_again_some_a_turn(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.residents.connected.behind_s = 0.0
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients)
    for token, client_id in enumerate(clients, start=1):
        home.residents.ask(
            client_id,
            token,
            (1, 0),
            messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""),
            lambda _: None,
        )
    home.residents.cut(EDGE)
    home.take(1)
    sent = []
    while sum(sent) < len(clients):
        await home.pass_turn()
        sent.append(len(home.packets()))
    assert max(sent) == 1


async def test_a_connection_that_was_held_for_gone_gets_what_waits_when_it_is_durable_that_it_is_there(
    home: Home,
) -> None:
    """Or the next home would not know that it was sent, after a crash."""
    subscribed(home)
    home.residents.node_gone(EDGE)
    await home.settle()
    home.take(1)
    home.disk.holds = True
    assert home.residents.resume(ID, EDGE, 1, opening(1), b"")
    await home.settle()
    assert home.packets() == []
    await home.commit()
    assert home.payloads() == [b"1"]


async def test_nothing_goes_again_before_its_connection_is_admitted(home: Home) -> None:
    home.residents.connected.behind_s = 0.0
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take(1)
    home.disk.holds = True
    answers = home.open(2, opening(2))
    home.residents.cut(EDGE)
    await home.settle()
    assert (answers, home.packets()) == ([], [])
    await home.commit()
    await home.settle()
    assert len(answers) == 1
    assert home.payloads() == [b"1"]


async def test_MQTT_4_6_0_6_QoS_0_passes_nothing_that_waited_while_its_connection_is_admitted(home: Home) -> None:
    """What is sent before that may come behind it all the same: what is answered overtakes it on the link."""
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take_run("old")
    home.disk.holds = True
    answers = home.open(2, opening(2))
    home.take_run("new")
    assert (answers, home.packets()) == ([], [])
    await home.commit()
    assert len(answers) == 1
    home.take_run("newer")
    assert home.payloads_of_run() == [b"old", b"new", b"newer"]


async def test_a_link_that_is_found_lost_after_its_front_had_said_so_holds_nothing_back(home: Home) -> None:
    home.residents.connected.behind_s = 0.0
    subscribed(home)
    assert home.residents.resume(ID, EDGE, 1, opening(), b"")
    home.residents.cut(EDGE)
    home.take(1)
    await home.settle()
    assert home.payloads() == [b"1"]


async def test_QoS_0_goes_on_to_who_was_there_and_may_have_missed_something(home: Home) -> None:
    subscribed(home)
    home.take_run("1")
    home.residents.cut(EDGE)
    assert home.residents.resume(ID, EDGE, 1, opening(1), b"")
    home.packets()
    home.take_run("2")
    assert home.payloads_of_run() == [b"2"]


def owned(nonce: int, user: bytes | None, *, clean: bool = False) -> messages.Opening:
    return msgspec.structs.replace(opening(nonce, clean=clean), user=user)


def asks(home: Home, token: int, asked: messages.Opening | None, user: bytes | None) -> int:
    return home.residents.open(Attach(ID, EDGE, token, asked, lambda _: None, user))


async def test_a_session_is_its_users_at_the_next_home_too(redis: Redis, home: Home) -> None:
    home.open(1, owned(1, b"jo"))
    home.subscribe(1, b"a/#")
    home.residents.leave(ID, 1, -1, False)
    before = redis.slot(SLOT).sessions[ID].copy()
    for place in (home, await another(redis)):
        assert asks(place, 2, owned(2, b"eve"), b"eve") == messages.OTHER_USER
        assert asks(place, 3, owned(3, b"", clean=True), b"") == messages.OTHER_USER, "nor does nobody get it"
        assert asks(place, 4, None, b"eve") == messages.OTHER_USER, "who wants none doesn't end it"
        assert redis.slot(SLOT).sessions[ID] == before
    assert place.open(5, owned(5, b"jo")) == [messages.DURABLE | messages.PRESENT]


async def test_a_session_that_can_not_be_read_is_ended_by_its_own_user_alone(redis: Redis, home: Home) -> None:
    home.open(1, owned(1, b"jo"))
    home.residents.leave(ID, 1, -1, False)
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


async def test_where_its_user_can_not_be_read_either_only_an_operator_ends_it(redis: Redis, home: Home) -> None:
    redis.slot(SLOT).sessions[ID] = {META: b"\xff of a later version"}
    later = await another(redis)
    assert asks(later, 1, owned(1, b"jo", clean=True), b"jo") == messages.FULL
    assert asks(later, 2, None, None) == messages.ADMITTED
    await later.settle()
    assert ID not in redis.slot(SLOT).sessions


async def test_a_session_that_ended_is_nobodys(home: Home) -> None:
    home.open(1, owned(1, b"jo"))
    home.residents.leave(ID, 1, 0, False)
    assert home.open(2, owned(2, b"eve")) == [messages.DURABLE]


async def test_a_session_without_a_user_is_whose_who_comes_back_to_it(redis: Redis, home: Home) -> None:
    """It is of an earlier release, or client ids weren't bound."""
    home.open(1, opening(1))
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, owned(2, b"jo")) == [messages.DURABLE | messages.PRESENT]
    home.residents.leave(ID, 2, -1, False)
    assert asks(await another(redis), 3, owned(3, b"eve"), b"eve") == messages.OTHER_USER


async def test_where_client_ids_are_bound_no_more_a_session_stays_its_users(home: Home) -> None:
    home.open(1, owned(1, b"jo"))
    assert home.open(2, opening(2)) == [messages.DURABLE | messages.PRESENT]
    assert asks(home, 3, owned(3, b"eve"), b"eve") == messages.OTHER_USER


async def test_whose_a_session_is_is_written_again_when_Redis_lost_it(redis: Redis, home: Home) -> None:
    home.open(1, owned(1, b"jo"))
    session = home.residents.sessions.by_id[ID]
    assert isinstance(session, DurableSession)
    redis.slot(SLOT).sessions[ID].clear()
    session.write_again()
    home.residents.manager.request_barriers()
    assert redis.slot(SLOT).sessions[ID][USER] == b"jo"
