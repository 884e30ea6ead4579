"""What one user may have at its home: sessions, filters, and what waits."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from flockmq.bounds import QUEUED_MESSAGE_BYTES
from flockmq.durable.session import DurableSession
from flockmq.mqtt.message import packet_of
from flockmq.mqtt.reason import Reason
from flockmq.quotas import NOTHING, UNLIMITED, Held
from flockmq.routing.slots import SlotMessage
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import EDGE, ID, SENDER, SLOT, SOURCE, Home, another, opening, roommates, will
from unit.broker.protocol.harness import publish

EVE, JO = b"eve", b"jo"
NAMES = len(ID + EVE)


def ignore(_: object) -> None:
    """What is answered."""


def begin(home: Home, token: int, client_id: bytes, user: bytes = EVE, asked: messages.Opening | None = None) -> int:
    """What its CONNECT comes to."""
    owned = msgspec.structs.replace(asked or opening(token), user=user)
    return home.residents.open(Attach(client_id, EDGE, token, owned, ignore, user))


def subscribe(home: Home, token: int, client_id: bytes, filter: bytes) -> int:
    """Its reason code, when it is durable."""
    answers: list[bytes] = []
    home.residents.ask(
        client_id,
        token,
        (token, 0),
        messages.SubscribeQuestion([messages.WantedSubscription(filter, 1)], b""),
        answers.append,
    )
    home.disk.commit()
    return messages.decode_reasons(answers[0])[0]


def send(home: Home, number: int, payload: str, topic: str = "a") -> None:
    letter = SlotMessage(SOURCE, number, b"", 4, publish(4, topic, payload, qos=1, packet_id=9))
    home.residents.intake.take([letter], home.epoch, SENDER, ignore)
    home.disk.commit()


def waiting(home: Home, client_id: bytes) -> list[bytes]:
    session = home.residents.sessions.by_id[client_id]
    assert isinstance(session, DurableSession)
    return [packet_of(entry) for entry in session.messages.queue or ()]


async def test_a_user_begins_so_many_sessions_and_others_begin_theirs(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(sessions=2))
    first, second, third, fourth = roommates(4)
    assert [begin(home, 1, first), begin(home, 2, second)] == [messages.ADMITTED, messages.ADMITTED]
    assert begin(home, 3, third) == messages.OVER_QUOTA
    assert begin(home, 4, third, asked=opening(4, expiry_s=0)) == messages.ADMITTED, "one that ends with its connection"
    assert begin(home, 5, fourth, JO) == messages.ADMITTED
    home.residents.leave(first, 1, -1, False)
    assert begin(home, 6, first) == messages.ADMITTED, "who has a session gets back to it"
    assert begin(home, 7, first, asked=opening(7, clean=True)) == messages.ADMITTED, "or to one in its place"
    home.residents.leave(second, 2, 0, False)
    assert begin(home, 8, third) == messages.ADMITTED
    assert home.quotas.of(EVE).sessions == 2


def tell_others(home: Home) -> None:
    home.quotas.largest()
    home.quotas.report_sent()


async def test_sessions_beyond_a_share_begin_when_others_were_told(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(sessions=64))
    home.quotas.must_report = lambda: True
    first, second, third = roommates(3)

    def begin_again(token: int, client_id: bytes) -> int:
        owned = msgspec.structs.replace(opening(token), user=EVE)
        again = partial(begin_again, token, client_id)
        return home.residents.open(Attach(client_id, EDGE, token, owned, ignore, EVE, again))

    assert begin_again(1, first) == messages.ADMITTED
    assert begin_again(2, second) == messages.ADMITTED
    assert begin_again(3, third) == messages.ADMITTED
    assert list(home.residents.sessions.by_id) == [first]
    home.residents.leave(second, 2, 0, False)
    tell_others(home)
    assert list(home.residents.sessions.by_id) == [first, third], "who left meanwhile begins none"
    assert begin(home, 4, second, JO) == messages.ADMITTED, "others don't wait"
    assert home.quotas.of(EVE).sessions == 2


async def test_filters_beyond_a_share_wait_and_what_is_asked_behind_them(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(subscriptions=128))
    home.quotas.must_report = lambda: True
    begin(home, 1, ID)
    answers: list[list[int]] = []

    def ask(number: int, question: messages.Question) -> None:
        home.residents.ask(ID, 1, (number, 0), question, lambda answer: answers.append(messages.decode_reasons(answer)))
        home.disk.commit()

    ask(1, messages.SubscribeQuestion([messages.WantedSubscription(b"%d" % place, 1) for place in range(5)], b""))
    ask(2, messages.UnsubscribeQuestion([b"4"], b"nonce"))
    for _ in range(2):
        assert answers == []
        tell_others(home)
        home.disk.commit()
    assert answers == [[1] * 5, [0]]
    assert home.quotas.of(EVE).subscriptions == 4


async def test_what_a_user_has_at_other_homes_counts(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(sessions=2))
    home.quotas.elsewhere = {EVE: Held(sessions=2)}
    assert begin(home, 1, ID) == messages.OVER_QUOTA
    assert begin(home, 2, ID, JO) == messages.ADMITTED


async def test_a_user_has_so_many_filters_in_all_its_sessions(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(subscriptions=2))
    first, second, third = roommates(3)
    for token, (client_id, user) in enumerate([(first, EVE), (second, EVE), (third, JO)], start=1):
        begin(home, token, client_id, user)
    assert subscribe(home, 1, first, b"a") == subscribe(home, 2, second, b"a") == 1
    assert subscribe(home, 2, second, b"b") == Reason.QUOTA_EXCEEDED
    assert subscribe(home, 2, second, b"a") == 1, "one that it has"
    assert subscribe(home, 3, third, b"b") == 1
    home.residents.leave(first, 1, 0, False)
    assert subscribe(home, 2, second, b"b") == 1


async def test_what_waits_for_a_user_loses_its_own_oldest_messages_for_new_ones(home: Home) -> None:
    message = QUEUED_MESSAGE_BYTES + 110
    first, second, third = roommates(3)
    home.quotas.limit(UNLIMITED._replace(queued_bytes=4 * (message * 2 + len(first + second + EVE + EVE)) // 3 + 1))
    for token, (client_id, user) in enumerate([(first, EVE), (second, EVE), (third, JO)], start=1):
        begin(home, token, client_id, user)
        subscribe(home, token, client_id, client_id)
        home.residents.leave(client_id, token, -1, False)
    for number in range(1, 4):
        send(home, number, str(number) * 100, first.decode())
    assert [packet[-1:] for packet in waiting(home, first)] == [b"2", b"3"], "the oldest went"
    assert home.router.counters.dropped_queue_full == 1
    send(home, 4, "x" * 100, second.decode())
    assert (len(waiting(home, first)), len(waiting(home, second))) == (2, 0), "no other session has to go short for it"
    assert home.router.counters.dropped_queue_full == 2
    for number in range(5, 7):
        send(home, number, "x" * 100, third.decode())
    assert len(waiting(home, third)) == 2, "another user's"


async def test_who_reads_is_given_the_last_of_the_quota_and_cut_off_beyond_it(home: Home) -> None:
    size = QUEUED_MESSAGE_BYTES + 107
    home.quotas.limit(UNLIMITED._replace(queued_bytes=4 * size))
    begin(home, 1, ID)
    subscribe(home, 1, ID, b"a")
    for number in range(1, 4):
        send(home, number, "x" * 100)
    assert home.overflown == []
    for number in range(4, 6):
        send(home, number, "x" * 100)
    assert [client_id for _, client_id, _ in home.overflown] == [ID]
    assert ID in home.residents.sessions.by_id, "its session goes on"


async def test_what_is_acknowledged_is_given_back(home: Home) -> None:
    begin(home, 1, ID)
    subscribe(home, 1, ID, b"a")
    eve = home.quotas.of(EVE)
    assert eve.here() == Held(1, NAMES, 1, 1)
    send(home, 1, "x" * 100)
    assert eve.queued_bytes > 100
    home.residents.report(EDGE, 1, pair(PUBACK, 1))
    assert eve.here() == Held(1, NAMES, 1, 1)
    home.residents.leave(ID, 1, 0, False)
    assert eve.here() == NOTHING


async def test_a_will_takes_a_part_of_what_may_wait(home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(queued_bytes=25))
    assert begin(home, 1, ID, asked=opening(1, will=will())) == messages.ADMITTED
    assert home.quotas.of(EVE).queued_bytes == NAMES + len(will().message.packet)
    (other,) = roommates(1)
    assert begin(home, 2, other, asked=opening(2, will=will())) == messages.OVER_QUOTA
    assert begin(home, 3, other, JO, opening(3, will=will())) == messages.ADMITTED


async def test_the_next_home_counts_what_it_reads(redis: Redis, home: Home) -> None:
    begin(home, 1, ID)
    subscribe(home, 1, ID, b"a")
    home.residents.leave(ID, 1, -1, False)
    send(home, 1, "x" * 100)
    counted = home.quotas.of(EVE).here()
    assert counted.sessions == counted.subscriptions == 1
    assert counted.queued_bytes > 100
    successor = await another(redis)
    assert successor.quotas.of(EVE).here() == counted
    home.residents.disown(SLOT)
    await home.settle()
    assert home.quotas.of(EVE).here() == NOTHING


@pytest.mark.parametrize("user", [EVE, None])
async def test_a_session_of_nobody_becomes_its_users(home: Home, user: bytes | None) -> None:
    home.open(1, opening(1))
    home.subscribe(1)
    home.residents.leave(ID, 1, -1, False)
    owned = msgspec.structs.replace(opening(2), user=user)
    home.residents.open(Attach(ID, EDGE, 2, owned, ignore, user))
    assert home.quotas.of(EVE).here()[:3:2] == ((0, 0) if user is None else (1, 1))


async def test_what_is_noted_of_exchanges_takes_a_part_of_what_may_wait(redis: Redis, home: Home) -> None:
    home.quotas.limit(UNLIMITED._replace(queued_bytes=NAMES + 3 * QUEUED_MESSAGE_BYTES))
    begin(home, 1, ID)
    subscribe(home, 1, ID, b"a")
    eve = home.quotas.of(EVE)

    def ask(number: int, question: messages.Question) -> list[bytes]:
        answers: list[bytes] = []
        home.residents.ask(ID, 1, (number, 0), question, answers.append)
        home.disk.commit()
        return [messages.decode_origin(answers[0])] if isinstance(question, messages.ReceiveQuestion) else answers

    assert ask(2, messages.ReceiveQuestion(1)) != [b""]
    assert eve.queued_bytes == NAMES + QUEUED_MESSAGE_BYTES
    assert ask(3, messages.UnsubscribeQuestion([b"a", *[b"b"] * 60], b"nonce"))
    assert eve.queued_bytes == NAMES + 2 * QUEUED_MESSAGE_BYTES + len(b"nonce") + 61
    assert ask(4, messages.ReceiveQuestion(2)) == [b""], "as where too many wait for their PUBREL"
    successor = await another(redis)
    assert successor.quotas.of(EVE).queued_bytes == eve.queued_bytes
