"""What one user may have at its owner: sessions, filters, and what waits."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from flockmq.bounds import QUEUED_MESSAGE_BYTES
from flockmq.default_callbacks import ignore
from flockmq.durable.session import DurableSession
from flockmq.mqtt.message import packet_of
from flockmq.mqtt.reason import Reason
from flockmq.quotas import NOTHING, UNLIMITED, Held
from flockmq.routing.slots import SlotMessage
from flockmq.session.remote_session import PUBACK, pair
from flockmq.session_rpc import messages
from flockmq.session_rpc.ports import Attach
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import (
    ID,
    REPLICANT,
    SENDER,
    SLOT,
    SOURCE,
    Owner,
    another,
    clients_of_slot,
    request,
    will,
)
from unit.broker.protocol.harness import publish

EVE, JO = b"eve", b"jo"
NAMES = len(ID + EVE)


def begin(
    owner: Owner, token: int, client_id: bytes, user: bytes = EVE, asked: messages.SessionRequest | None = None
) -> int:
    """What its CONNECT comes to."""
    owned = msgspec.structs.replace(asked or request(token), user=user)
    return owner.service.open(Attach(client_id, REPLICANT, token, owned, ignore, user))


def subscribe(owner: Owner, token: int, client_id: bytes, filter: bytes) -> int:
    """Its reason code, when it is durable."""
    answers: list[bytes] = []
    owner.service.ask(
        client_id,
        token,
        (token, 0),
        messages.SubscribeQuestion([messages.WantedSubscription(filter, 1)], b""),
        answers.append,
    )
    owner.disk.commit()
    return messages.decode_reasons(answers[0])[0]


def send(owner: Owner, number: int, payload: str, topic: str = "a") -> None:
    slot_message = SlotMessage(SOURCE, number, b"", 4, publish(4, topic, payload, qos=1, packet_id=9))
    owner.service.intake.take([slot_message], owner.epoch, SENDER, ignore)
    owner.disk.commit()


def waiting(owner: Owner, client_id: bytes) -> list[bytes]:
    session = owner.service.sessions.by_id[client_id]
    assert isinstance(session, DurableSession)
    return [packet_of(entry) for entry in session.messages.queue or ()]


async def test_a_user_begins_so_many_sessions_and_others_begin_theirs(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(sessions=2))
    first, second, third, fourth = clients_of_slot(4)
    assert [begin(owner, 1, first), begin(owner, 2, second)] == [messages.ADMITTED, messages.ADMITTED]
    assert begin(owner, 3, third) == messages.OVER_QUOTA
    assert begin(owner, 4, third, asked=request(4, expiry_s=0)) == messages.ADMITTED, (
        "one that ends with its connection"
    )
    assert begin(owner, 5, fourth, JO) == messages.ADMITTED
    owner.service.leave(first, 1, -1, False)
    assert begin(owner, 6, first) == messages.ADMITTED, "who has a session gets back to it"
    assert begin(owner, 7, first, asked=request(7, clean=True)) == messages.ADMITTED, "or to one in its place"
    owner.service.leave(second, 2, 0, False)
    assert begin(owner, 8, third) == messages.ADMITTED
    assert owner.quotas.of(EVE).sessions == 2


def tell_others(owner: Owner) -> None:
    owner.quotas.largest()
    owner.quotas.report_sent()


async def test_sessions_beyond_a_share_begin_when_others_were_told(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(sessions=64))
    owner.quotas.must_report = lambda: True
    first, second, third = clients_of_slot(3)

    def begin_again(token: int, client_id: bytes) -> int:
        owned = msgspec.structs.replace(request(token), user=EVE)
        again = partial(begin_again, token, client_id)
        return owner.service.open(Attach(client_id, REPLICANT, token, owned, ignore, EVE, again))

    assert begin_again(1, first) == messages.ADMITTED
    assert begin_again(2, second) == messages.ADMITTED
    assert begin_again(3, third) == messages.ADMITTED
    assert list(owner.service.sessions.by_id) == [first]
    owner.service.leave(second, 2, 0, False)
    tell_others(owner)
    assert list(owner.service.sessions.by_id) == [first, third], "who left meanwhile begins none"
    assert begin(owner, 4, second, JO) == messages.ADMITTED, "others don't wait"
    assert owner.quotas.of(EVE).sessions == 2


async def test_filters_beyond_a_share_wait_and_what_is_asked_behind_them(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(subscriptions=128))
    owner.quotas.must_report = lambda: True
    begin(owner, 1, ID)
    answers: list[list[int]] = []

    def ask(number: int, question: messages.Question) -> None:
        owner.service.ask(ID, 1, (number, 0), question, lambda answer: answers.append(messages.decode_reasons(answer)))
        owner.disk.commit()

    ask(1, messages.SubscribeQuestion([messages.WantedSubscription(b"%d" % place, 1) for place in range(5)], b""))
    ask(2, messages.UnsubscribeQuestion([b"4"], b"nonce"))
    for _ in range(2):
        assert answers == []
        tell_others(owner)
        owner.disk.commit()
    assert answers == [[1] * 5, [0]]
    assert owner.quotas.of(EVE).subscriptions == 4


async def test_what_a_user_has_at_other_owners_counts(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(sessions=2))
    owner.quotas.elsewhere = {EVE: Held(sessions=2)}
    assert begin(owner, 1, ID) == messages.OVER_QUOTA
    assert begin(owner, 2, ID, JO) == messages.ADMITTED


async def test_a_user_has_so_many_filters_in_all_its_sessions(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(subscriptions=2))
    first, second, third = clients_of_slot(3)
    for token, (client_id, user) in enumerate([(first, EVE), (second, EVE), (third, JO)], start=1):
        begin(owner, token, client_id, user)
    assert subscribe(owner, 1, first, b"a") == subscribe(owner, 2, second, b"a") == 1
    assert subscribe(owner, 2, second, b"b") == Reason.QUOTA_EXCEEDED
    assert subscribe(owner, 2, second, b"a") == 1, "one that it has"
    assert subscribe(owner, 3, third, b"b") == 1
    owner.service.leave(first, 1, 0, False)
    assert subscribe(owner, 2, second, b"b") == 1


async def test_what_waits_for_a_user_loses_its_own_oldest_messages_for_new_ones(owner: Owner) -> None:
    message = QUEUED_MESSAGE_BYTES + 110
    first, second, third = clients_of_slot(3)
    owner.quotas.limit(UNLIMITED._replace(queued_bytes=4 * (message * 2 + len(first + second + EVE + EVE)) // 3 + 1))
    for token, (client_id, user) in enumerate([(first, EVE), (second, EVE), (third, JO)], start=1):
        begin(owner, token, client_id, user)
        subscribe(owner, token, client_id, client_id)
        owner.service.leave(client_id, token, -1, False)
    for number in range(1, 4):
        send(owner, number, str(number) * 100, first.decode())
    assert [packet[-1:] for packet in waiting(owner, first)] == [b"2", b"3"], "the oldest went"
    assert owner.router.counters.dropped_queue_full == 1
    send(owner, 4, "x" * 100, second.decode())
    assert (len(waiting(owner, first)), len(waiting(owner, second))) == (2, 0), (
        "no other session has to go short for it"
    )
    assert owner.router.counters.dropped_queue_full == 2
    for number in range(5, 7):
        send(owner, number, "x" * 100, third.decode())
    assert len(waiting(owner, third)) == 2, "another user's"


async def test_who_reads_is_given_the_last_of_the_quota_and_cut_off_beyond_it(owner: Owner) -> None:
    size = QUEUED_MESSAGE_BYTES + 107
    owner.quotas.limit(UNLIMITED._replace(queued_bytes=4 * size))
    begin(owner, 1, ID)
    subscribe(owner, 1, ID, b"a")
    for number in range(1, 4):
        send(owner, number, "x" * 100)
    assert owner.overflown == []
    for number in range(4, 6):
        send(owner, number, "x" * 100)
    assert [client_id for _, client_id, _ in owner.overflown] == [ID]
    assert ID in owner.service.sessions.by_id, "its session goes on"


async def test_what_is_acknowledged_is_given_back(owner: Owner) -> None:
    begin(owner, 1, ID)
    subscribe(owner, 1, ID, b"a")
    eve = owner.quotas.of(EVE)
    assert eve.here() == Held(1, NAMES, 1, 1)
    send(owner, 1, "x" * 100)
    assert eve.queued_bytes > 100
    owner.service.report(REPLICANT, 1, pair(PUBACK, 1))
    assert eve.here() == Held(1, NAMES, 1, 1)
    owner.service.leave(ID, 1, 0, False)
    assert eve.here() == NOTHING


async def test_a_will_takes_a_part_of_what_may_wait(owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(queued_bytes=25))
    assert begin(owner, 1, ID, asked=request(1, will=will())) == messages.ADMITTED
    assert owner.quotas.of(EVE).queued_bytes == NAMES + len(will().message.packet)
    (other,) = clients_of_slot(1)
    assert begin(owner, 2, other, asked=request(2, will=will())) == messages.OVER_QUOTA
    assert begin(owner, 3, other, JO, request(3, will=will())) == messages.ADMITTED


async def test_the_next_owner_counts_what_it_reads(redis: Redis, owner: Owner) -> None:
    begin(owner, 1, ID)
    subscribe(owner, 1, ID, b"a")
    owner.service.leave(ID, 1, -1, False)
    send(owner, 1, "x" * 100)
    counted = owner.quotas.of(EVE).here()
    assert counted.sessions == counted.subscriptions == 1
    assert counted.queued_bytes > 100
    successor = await another(redis)
    assert successor.quotas.of(EVE).here() == counted
    owner.service.disown(SLOT)
    await owner.settle()
    assert owner.quotas.of(EVE).here() == NOTHING


@pytest.mark.parametrize("user", [EVE, None])
async def test_a_session_of_nobody_becomes_its_users(owner: Owner, user: bytes | None) -> None:
    owner.open(1, request(1))
    owner.subscribe(1)
    owner.service.leave(ID, 1, -1, False)
    owned = msgspec.structs.replace(request(2), user=user)
    owner.service.open(Attach(ID, REPLICANT, 2, owned, ignore, user))
    assert owner.quotas.of(EVE).here()[:3:2] == ((0, 0) if user is None else (1, 1))


async def test_what_is_noted_of_exchanges_takes_a_part_of_what_may_wait(redis: Redis, owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(queued_bytes=NAMES + 3 * QUEUED_MESSAGE_BYTES))
    begin(owner, 1, ID)
    subscribe(owner, 1, ID, b"a")
    eve = owner.quotas.of(EVE)

    def ask(number: int, question: messages.Question) -> list[bytes]:
        answers: list[bytes] = []
        owner.service.ask(ID, 1, (number, 0), question, answers.append)
        owner.disk.commit()
        return [messages.decode_origin(answers[0])] if isinstance(question, messages.ReceiveQuestion) else answers

    assert ask(2, messages.ReceiveQuestion(1)) != [b""]
    assert eve.queued_bytes == NAMES + QUEUED_MESSAGE_BYTES
    assert ask(3, messages.UnsubscribeQuestion([b"a", *[b"b"] * 60], b"nonce"))
    assert eve.queued_bytes == NAMES + 2 * QUEUED_MESSAGE_BYTES + len(b"nonce") + 61
    assert ask(4, messages.ReceiveQuestion(2)) == [b""], "as where too many wait for their PUBREL"
    successor = await another(redis)
    assert successor.quotas.of(EVE).queued_bytes == eve.queued_bytes


async def test_the_nonce_of_a_SUBSCRIBE_counts_here_and_at_the_next_owner(redis: Redis, owner: Owner) -> None:
    owner.quotas.limit(UNLIMITED._replace(queued_bytes=10_000))
    begin(owner, 1, ID)
    owner.subscribe(1, nonce=b"a nonce!")
    owner.disk.commit()
    assert owner.quotas.of(EVE).queued_bytes == NAMES + len(b"a nonce!")
    assert (await another(redis)).quotas.of(EVE).queued_bytes == NAMES + len(b"a nonce!")
