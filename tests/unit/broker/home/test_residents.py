"""Sessions at their homes over one Redis: what is said when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq import bounds
from flockmq.bounds import SINK_CONGESTED_MAX_S
from flockmq.home import wire
from flockmq.mqtt.reason import Reason
from flockmq.session.letter import Letter
from flockmq.session.limits import Limits
from flockmq.session.opening import Will
from flockmq.session.origin import number_of, source_of
from flockmq.session.publish import publication
from flockmq.session.settling import PUBACK, SETTLED, pair
from unit.broker.home.redis import Redis
from unit.broker.home.rooms import EDGE, ID, SENDER, SLOT, SOURCE, Home, another, opening, roommates, subscribed, will
from unit.broker.session.harness import publish


def ignore(_: object) -> None:
    """What is answered."""


# Nothing before it is durable.


async def test_an_attach_is_answered_when_its_session_is_durable(home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening())
    await home.settle()
    assert answers == []
    await home.commit()
    assert answers == [wire.LASTS]


async def test_a_SUBSCRIBE_is_answered_when_it_is_routed_and_durable(home: Home) -> None:
    home.open(1, opening())
    home.disk.holds = True
    answers = home.subscribe(1)
    await home.settle()
    assert answers == []
    assert home.routed == [(SLOT, b"a/#")]
    await home.commit()
    assert [wire.decode_reasons(answer) for answer in answers] == [[1]]


async def test_no_session_and_no_subscription_begins_while_too_much_waits_for_Redis(redis: Redis, home: Home) -> None:
    home.open(1, opening())
    home.residents.leave(ID, 1, -1, False)
    other = roommates(1)[0]
    before = {client_id: fields.copy() for client_id, fields in redis.slot(SLOT).sessions.items()}
    home.disk.backed_up = True
    assert not home.residents.open(ID, EDGE, 2, opening(2), lambda _: None), "it would put what it is told"
    assert not home.residents.open(other, EDGE, 3, opening(3), lambda _: None)
    assert home.open(4, opening(4, expiry_s=0), other) == [0], "a connection's own puts nothing"
    assert redis.slot(SLOT).sessions == before
    assert list(home.residents.sessions.away) == [ID]


async def test_of_a_Redis_that_is_full_who_has_a_session_gets_back_to_it(home: Home) -> None:
    """What it acknowledges makes room."""
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.disk.full = True
    assert not home.residents.open(ID, EDGE, 2, opening(2, clean=True), lambda _: None)
    assert not home.residents.open(roommates(1)[0], EDGE, 3, opening(3), lambda _: None)
    assert home.open(4, opening(4)) == [wire.LASTS | wire.PRESENT]
    [answer] = home.subscribe(4, b"b/#")
    assert wire.decode_reasons(answer) == [Reason.QUOTA_EXCEEDED]
    assert home.routed == [(SLOT, b"a/#")]
    [answer] = home.ask(4, wire.Unsubscribe([b"a/#"], b"1"))
    assert wire.decode_reasons(answer) == [0]


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


async def test_a_QoS_2_message_gets_its_origin_when_that_is_durable_and_the_same_again(home: Home) -> None:
    home.open(1, opening())
    home.disk.holds = True
    first = home.ask(1, wire.Receive(7))
    await home.settle()
    assert first == []
    await home.commit()
    again, other = home.ask(1, wire.Receive(7)), home.ask(1, wire.Receive(8))
    await home.commit()
    assert first == again != other
    assert len(wire.decode_origin(first[0])) == 16


async def test_a_QoS_2_message_that_comes_again_behind_a_new_one_is_no_repeat_of_it(home: Home) -> None:
    """Its connection ended before its origin was there, so it went nowhere."""
    subscriber = roommates(1)[0]
    home.open(9, opening(9), subscriber)
    home.residents.ask(subscriber, 9, (1, 0), wire.Subscribe([wire.Wanted(b"a/#", 2)], b""), ignore)
    home.open(1, opening(1))
    home.ask(1, wire.Receive(1))
    home.residents.leave(ID, 1, 60, True)
    home.open(2, opening(2))
    home.packets()
    for number, packet_id in enumerate((2, 1, 1), start=1):
        (answer,) = home.ask(2, wire.Receive(packet_id), number, number - 1)
        origin = wire.decode_origin(answer)
        packet = publish(4, "a/b", str(packet_id), qos=2, packet_id=9)
        letter = Letter(source_of(origin), number_of(origin), b"", 4, packet)
        home.residents.letters.take([letter], home.epoch, SENDER, ignore)
    assert home.payloads() == [b"2", b"1"]


async def test_a_message_is_numbered_behind_those_that_its_client_published_before(home: Home) -> None:
    """Or it would be taken for a repeat: the home that was asked first didn't answer, and may have answered later ones
    that were on their way."""
    home.open(1, opening())
    assert home.ask(1, wire.Receive(8), number=11, behind=10) == [b""], "10 isn't answered, and wasn't heard here"
    numbers = []
    for packet_id, number, behind in ((7, 12, 0), (8, 13, 12), (9, 14, 13), (10, 20, 0)):
        answers = home.ask(1, wire.Receive(packet_id), number, behind)
        await home.settle()
        numbers.append(wire.decode_origin(answers[0]))
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 4


async def test_a_home_that_has_a_connection_anew_hears_its_questions_from_the_first_on(home: Home) -> None:
    home.open(1, opening())
    home.ask(1, wire.Receive(7), number=10)
    home.residents.resume(ID, EDGE, 1, opening(), b"")
    assert home.ask(1, wire.Receive(8), number=11, behind=10) == [b""]


async def test_who_has_no_session_here_is_told_to_ask_again(home: Home) -> None:
    assert home.ask(1, wire.Receive(7)) == [b""]


async def test_a_route_goes_when_it_is_durable_that_nobody_wants_it(home: Home) -> None:
    subscribed(home)
    home.disk.holds = True
    answers = home.ask(1, wire.Unsubscribe([b"a/#", b"never"], b"1"))
    assert (answers, home.routed) == ([], [(SLOT, b"a/#")])
    await home.commit()
    assert [wire.decode_reasons(answer) for answer in answers] == [[0, 0x11]]
    assert home.routed == []


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


Claims = list[Callable[[dict[bytes, int]], None]]


@pytest.fixture
def claims(home: Home, monkeypatch: pytest.MonkeyPatch) -> Claims:
    """Of exclusive filters, that wait for their answer."""
    made: Claims = []
    monkeypatch.setattr(home, "claim", lambda client_id, filters, done: made.append(done))
    home.zones["default"] = Limits(exclusive_subscription=True)
    return made


async def test_what_is_asked_behind_a_SUBSCRIBE_that_waits_for_its_claim_is_done_behind_it(
    home: Home, claims: Claims
) -> None:
    home.open(1, opening(1))
    exclusive = b"$exclusive/x"
    subscribe = wire.Subscribe([wire.Wanted(exclusive, 1)], b"")
    questions = [subscribe, wire.Unsubscribe([exclusive], b"1"), subscribe, wire.Unsubscribe([exclusive], b"2")]
    answers = [home.ask(1, question, number, number - 1) for number, question in enumerate(questions, start=1)]
    assert home.ask(1, wire.Receive(7), 5, 0), "that stands behind none of them"
    assert (answers, len(claims)) == ([[], [], [], []], 1)
    for count in (1, 2):
        claims[count - 1]({})
        told = [wire.decode_reasons(answer) for answered in answers for answer in answered]
        assert told == [[1], [0]] * count
    assert home.routed == []


async def test_so_much_is_asked_behind_a_SUBSCRIBE_and_no_more(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SUBSCRIBES_WAITING_MAX", 1)
    monkeypatch.setattr(home, "claim", lambda client_id, filters, done: None)
    home.zones["default"] = Limits(exclusive_subscription=True)
    home.open(1, opening(1))
    home.subscribe(1, b"$exclusive/x")
    assert home.ask(1, wire.Unsubscribe([b"a"], b"1"), 2, 1) == []
    assert home.ask(1, wire.Unsubscribe([b"b"], b"2"), 3, 2) == [b""]
    assert home.ask(1, wire.Unsubscribe([b"c"], b"3"), 4, 3) == [b""], "none passes another"


async def test_what_waited_behind_a_SUBSCRIBE_is_not_done_when_it_is_asked_again(home: Home, claims: Claims) -> None:
    subscribed(home)
    home.subscribe(1, b"$exclusive/x")
    answers = home.ask(1, wire.Unsubscribe([b"a/#"], b"1"), 2, 1)
    assert home.residents.resume(ID, EDGE, 1, opening(1), b"")
    claims[0]({})
    assert (answers, home.routed) == ([], [(SLOT, b"a/#"), (SLOT, b"$exclusive/x")])


async def test_a_SUBSCRIBE_that_is_asked_again_waits_for_the_claim_that_it_made(home: Home, claims: Claims) -> None:
    home.open(1, opening(1))
    exclusive = b"$exclusive/x"
    questions = wire.Subscribe([wire.Wanted(exclusive, 1)], b""), wire.Unsubscribe([exclusive], b"1")
    for number, question in enumerate(questions, start=1):
        home.ask(1, question, number, number - 1)
    assert home.residents.resume(ID, EDGE, 1, opening(1), b"")
    answers = [home.ask(1, question, number, number - 3 and 3) for number, question in enumerate(questions, start=3)]
    assert (answers, len(claims)) == ([[], []], 1), "another claim of the same filter would be refused"
    claims[0]({})
    claims[1]({})
    assert [wire.decode_reasons(answer) for answered in answers for answer in answered] == [[1], [0]]
    assert home.residents.sessions.by_id[ID].subscription(exclusive) is None


# Session present.


async def test_session_present_is_told_to_who_comes_back(home: Home) -> None:
    assert home.open(1, opening(1)) == [wire.LASTS]
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(2)) == [wire.LASTS | wire.PRESENT]
    home.residents.leave(ID, 2, -1, False)
    assert home.open(3, opening(3, clean=True)) == [wire.LASTS]


@pytest.mark.parametrize("clean", [True, False])
async def test_a_CONNECT_that_asks_again_is_told_the_same(home: Home, clean: bool) -> None:
    """Its answer was lost; clean start ended what was there before, not what it began itself."""
    assert home.open(1, opening(1, clean=clean)) == [wire.LASTS]
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    assert home.open(2, opening(1, clean=clean)) == [wire.LASTS]
    assert home.residents.sessions.by_id[ID].subscription(b"a/#") is not None


async def test_a_CONNECT_that_asks_again_for_what_was_there_is_told_so_again(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    for token in (2, 3):
        assert home.open(token, opening(9)) == [wire.LASTS | wire.PRESENT]
        home.residents.leave(ID, token, -1, False)


async def test_a_CONNECT_that_asks_again_after_a_crash_is_told_the_same(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, clean=True))
    later = await another(redis)
    assert later.open(2, opening(1, clean=True)) == [wire.LASTS]
    assert later.open(3, opening(2)) == [wire.LASTS | wire.PRESENT]


async def test_who_ended_its_session_while_the_slot_moved_finds_none(redis: Redis, home: Home) -> None:
    home.open(1, opening(1))
    later = await another(redis)
    later.residents.leave(ID, 1, 0, False, opening(1).nonce)
    assert later.open(2, opening(2)) == [wire.LASTS]


async def test_who_left_in_order_while_the_slot_moved_and_is_back_has_what_it_left(redis: Redis, home: Home) -> None:
    subscribed(home)
    later = await another(redis)
    later.residents.leave(ID, 1, 30, False, opening(1).nonce)
    assert later.open(2, opening(2)) == [wire.LASTS | wire.PRESENT]
    later.take(1)
    await later.settle()
    assert later.payloads() == [b"1"]


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
    assert later.open(3, opening(3)) == [wire.LASTS | wire.PRESENT]


async def test_an_ended_session_is_not_there_for_who_begins_without_one(redis: Redis, home: Home) -> None:
    """That it ended must be durable first, or it is back after a crash."""
    subscribed(home)
    home.disk.holds = True
    home.residents.leave(ID, 1, 0, False)
    answers = home.open(2, None)
    other = home.open(3, None, roommates(1)[0])
    await home.settle()
    assert (answers, other) == ([], [wire.ABSENT]), "others begin while Redis is away"
    await home.commit()
    assert answers == [0]


async def test_a_session_whose_CONNECT_was_never_answered_is_not_present(redis: Redis, home: Home) -> None:
    home.disk.holds = True
    answers = home.open(1, opening(1))
    home.residents.leave(ID, 1, -1, False)
    later = home.open(2, opening(2))
    await home.commit()
    assert (answers, later) == ([], [wire.LASTS])


async def test_a_CONNECT_that_asks_again_has_the_session_that_it_ends_with_its_connection(home: Home) -> None:
    subscribed(home)
    home.residents.leave(ID, 1, -1, False)
    home.take(1)
    for token in (2, 3):
        assert home.open(token, opening(9, expiry_s=0)) == [wire.LASTS | wire.PRESENT]
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
    assert not home.residents.letters.is_loading()
    home.disk.full = True
    assert home.residents.letters.is_loading()


async def test_letters_that_can_not_be_read_are_let_go(home: Home) -> None:
    subscribed(home)
    done: list[bool] = []
    good = publish(4, "a/b", "2", qos=1, packet_id=9)
    letters = [Letter(SOURCE, 1, b"", 4, b"\x32\x02\x00\x09"), Letter(SOURCE, 2, b"", 4, good)]
    home.residents.letters.take(letters, home.epoch, SENDER, done.append)
    await home.settle()
    assert done == [True]
    assert home.payloads() == [b"2"]


async def test_a_session_that_can_not_take_a_letter_keeps_it_from_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(home)
    other = roommates(1)[0]
    home.open(2, opening(2), other)
    home.residents.ask(other, 2, (1, 0), wire.Subscribe([wire.Wanted(b"a/#", 1)], b""), lambda _: None)
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
    home.residents.letters.take_runs([Letter(b"", 0, b"", 4, run)])
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
        assert home.open(token, opening(token), client_id, "edge-2@1") == [wire.LASTS | wire.PRESENT]
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
    assert later.residents.sessions.away[ID].session.expiry_s == 5
    assert later.router.counters.sessions_away == 1


async def test_the_will_of_who_was_lost_while_the_slot_moved_is_published_though_its_client_is_back(
    redis: Redis, home: Home
) -> None:
    """[MQTT-3.1.2-8]"""
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    later.residents.leave(ID, 1, 60, True, opening(1).nonce)
    assert later.open(2, opening(2)) == [wire.LASTS | wire.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]


async def test_who_is_back_before_its_node_says_how_it_left_waits_for_that(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    answers = later.open(2, opening(2, will=will()))
    await later.settle()
    assert answers == []
    later.residents.leave(ID, 1, 60, False, opening(1).nonce)
    await later.settle()
    assert answers == [wire.LASTS | wire.PRESENT]
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
    assert answers == [wire.LASTS | wire.PRESENT]


async def test_a_CONNECT_that_is_asked_for_again_waits_for_nobody(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    assert later.open(2, opening(1, will=will())) == [wire.LASTS]


async def test_who_waits_for_its_node_and_goes_is_not_let_in(redis: Redis, home: Home) -> None:
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    first, second = later.open(2, opening(2)), later.open(3, opening(3))
    later.residents.leave(ID, 2, 60, False, opening(2).nonce)
    later.residents.leave(ID, 1, 60, True, opening(1).nonce)
    await later.settle()
    assert (first, second) == ([], [wire.LASTS | wire.PRESENT])


async def test_those_who_wait_for_their_nodes_are_bounded(
    redis: Redis, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "RETURNING_MAX", 0)
    home.open(1, opening(1, will=will()))
    later = await another(redis)
    assert not later.residents.open(ID, EDGE, 2, opening(2), lambda _: None)


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
    assert later.open(2, opening(2)) == [wire.LASTS]


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
    assert later.open(2, opening(2, expiry_s=7200)) == [wire.LASTS | wire.PRESENT]
    assert [message.topic for message in later.published] == [b"w"]


async def test_a_connection_that_takes_no_more_is_cut_off_and_its_session_stays(home: Home) -> None:
    await overflows(home)
    await home.settle()
    assert home.overflown == [(EDGE, ID, 1)]
    assert home.residents.close(ID), "away"
    assert not home.residents.close(ID)


async def test_a_connection_that_was_cut_off_and_did_not_hear_so_does_not_go_on(home: Home) -> None:
    """It misses the message that found no room."""
    await overflows(home)
    await home.settle()
    assert not home.residents.resume(ID, EDGE, 1, opening(1), b"")
    home.residents.leave(ID, 1, 60, True)
    assert home.open(2, opening(2)) == [wire.LASTS | wire.PRESENT]
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
    assert answers == [wire.LASTS | wire.PRESENT]


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
        assert home.residents.close(ID)
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
    home.residents.crowds.beat(home.router.now_s)
    home.take(*range(limit + 100, limit + 200))


async def test_what_was_lost_on_its_way_to_a_front_goes_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
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
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
    monkeypatch.setattr(bounds, "HOME_TURN_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients)
    for token, client_id in enumerate(clients, start=1):
        home.residents.ask(client_id, token, (1, 0), wire.Subscribe([wire.Wanted(b"a/#", 1)], b""), lambda _: None)
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


async def test_nothing_goes_again_before_its_connection_is_admitted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
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


async def test_a_link_that_is_found_lost_after_its_front_had_said_so_holds_nothing_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HOME_BEHIND_S", 0.0)
    subscribed(home)
    assert home.residents.resume(ID, EDGE, 1, opening(), b"")
    home.residents.cut(EDGE)
    home.take(1)
    await home.settle()
    assert home.payloads() == [b"1"]


async def test_QoS_0_goes_on_to_who_was_there_and_may_have_missed_something(home: Home) -> None:
    subscribed(home)
    run(home, b"1")
    home.residents.cut(EDGE)
    assert home.residents.resume(ID, EDGE, 1, opening(1), b"")
    home.packets()
    run(home, b"2")
    assert [packet[7:] for packet in home.packets()] == [b"2"]


def run(home: Home, payload: bytes) -> None:
    """Of QoS 0."""
    packet = publication(4, 0, False, b"a/b", payload, b"").packet
    home.residents.letters.take_runs([Letter(b"", 0, b"", 4, packet)])
