"""What clients ask of their sessions: answered when it is durable, in its order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq import bounds
from flockmq.default_callbacks import ignore
from flockmq.durable.session import DurableSession
from flockmq.durable.session_fields import SUBSCRIBED
from flockmq.routing.message_id import number_of, source_of
from flockmq.routing.slots import SlotMessage
from flockmq.routing.subscriber import Subscription
from flockmq.session.limits import Limits
from flockmq.session_rpc import messages
from unit.broker.durable.redis import Redis
from unit.broker.durable.rooms import ID, REPLICANT, SENDER, SLOT, Owner, another, clients_of_slot, request, subscribed
from unit.broker.protocol.harness import publish


async def test_a_SUBSCRIBE_is_answered_when_it_is_routed_and_durable(owner: Owner) -> None:
    owner.open(1, request())
    owner.disk.holds = True
    answers = owner.subscribe(1)
    await owner.settle()
    assert answers == []
    assert owner.routed == [(SLOT, b"a/#")]
    await owner.commit()
    assert [messages.decode_reasons(answer) for answer in answers] == [[1]]


async def test_a_route_goes_when_it_is_durable_that_nobody_wants_it(owner: Owner) -> None:
    subscribed(owner)
    owner.disk.holds = True
    answers = owner.ask(1, messages.UnsubscribeQuestion([b"a/#", b"never"], b"1"))
    assert (answers, owner.routed) == ([], [(SLOT, b"a/#")])
    await owner.commit()
    assert [messages.decode_reasons(answer) for answer in answers] == [[0, 0x11]]
    assert owner.routed == []


async def test_a_QoS_2_message_gets_its_origin_when_that_is_durable_and_the_same_again(owner: Owner) -> None:
    owner.open(1, request())
    owner.disk.holds = True
    first = owner.ask(1, messages.ReceiveQuestion(7))
    await owner.settle()
    assert first == []
    await owner.commit()
    again, other = owner.ask(1, messages.ReceiveQuestion(7)), owner.ask(1, messages.ReceiveQuestion(8))
    await owner.commit()
    assert first == again != other
    assert len(messages.decode_origin(first[0])) == 16


async def test_to_whom_a_QoS_2_message_was_dealt_first_is_told_again_by_the_next_owner_too(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request())
    (first,) = owner.ask(1, messages.ReceiveQuestion(7, b"to one"))
    (again,) = owner.ask(1, messages.ReceiveQuestion(7, b"to another"))
    assert first == again
    assert messages.decode_origin(first)[16:] == b"to one"
    await owner.commit()
    later = await another(redis)
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    await later.settle()
    assert later.ask(1, messages.ReceiveQuestion(7, b"to another")) == [first]


async def test_a_QoS_2_message_that_comes_again_behind_a_new_one_is_no_repeat_of_it(owner: Owner) -> None:
    """Its connection ended before its origin was there, so it went nowhere."""
    subscriber = clients_of_slot(1)[0]
    owner.open(9, request(9), subscriber)
    owner.service.ask(
        subscriber, 9, (1, 0), messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 2)], b""), ignore
    )
    owner.open(1, request(1))
    owner.ask(1, messages.ReceiveQuestion(1))
    owner.service.leave(ID, 1, 60, True)
    owner.open(2, request(2))
    owner.packets()
    for number, packet_id in enumerate((2, 1, 1), start=1):
        (answer,) = owner.ask(2, messages.ReceiveQuestion(packet_id), number, number - 1)
        origin = messages.decode_origin(answer)
        packet = publish(4, "a/b", str(packet_id), qos=2, packet_id=9)
        slot_message = SlotMessage(source_of(origin), number_of(origin), b"", 4, packet)
        owner.service.intake.take([slot_message], owner.epoch, SENDER, ignore)
    assert owner.payloads() == [b"2", b"1"]


async def test_a_message_is_numbered_behind_those_that_its_client_published_before(owner: Owner) -> None:
    """Or it would be taken for a repeat: the owner that was asked first didn't answer, and may have answered later ones
    that were on their way."""
    owner.open(1, request())
    assert owner.ask(1, messages.ReceiveQuestion(8), number=11, behind=10) == [b""], (
        "10 isn't answered, and wasn't heard here"
    )
    numbers = []
    for packet_id, number, behind in ((7, 12, 0), (8, 13, 12), (9, 14, 13), (10, 20, 0)):
        answers = owner.ask(1, messages.ReceiveQuestion(packet_id), number, behind)
        await owner.settle()
        numbers.append(messages.decode_origin(answers[0]))
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 4


async def test_an_owner_that_has_a_connection_anew_hears_its_questions_from_the_first_on(owner: Owner) -> None:
    owner.open(1, request())
    owner.ask(1, messages.ReceiveQuestion(7), number=10)
    owner.service.resume(ID, REPLICANT, 1, request(), b"")
    assert owner.ask(1, messages.ReceiveQuestion(8), number=11, behind=10) == [b""]


async def test_who_has_no_session_here_is_told_to_ask_again(owner: Owner) -> None:
    assert owner.ask(1, messages.ReceiveQuestion(7)) == [b""]


# Behind a SUBSCRIBE that waits for its claim.


Claims = list[Callable[[dict[bytes, int]], None]]


@pytest.fixture
def claims(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> Claims:
    """Of exclusive filters, that wait for their answer."""
    made: Claims = []
    monkeypatch.setattr(owner, "claim", lambda client_id, filters, done, user: made.append(done))
    owner.zones["default"] = Limits(exclusive_subscription=True)
    return made


async def test_what_is_asked_behind_a_SUBSCRIBE_that_waits_for_its_claim_is_done_behind_it(
    owner: Owner, claims: Claims
) -> None:
    owner.open(1, request(1))
    exclusive = b"$exclusive/x"
    subscribe = messages.SubscribeQuestion([messages.WantedSubscription(exclusive, 1)], b"")
    questions = [
        subscribe,
        messages.UnsubscribeQuestion([exclusive], b"1"),
        subscribe,
        messages.UnsubscribeQuestion([exclusive], b"2"),
    ]
    answers = [owner.ask(1, question, number, number - 1) for number, question in enumerate(questions, start=1)]
    assert owner.ask(1, messages.ReceiveQuestion(7), 5, 0), "that stands behind none of them"
    assert (answers, len(claims)) == ([[], [], [], []], 1)
    for count in (1, 2):
        claims[count - 1]({})
        told = [messages.decode_reasons(answer) for answered in answers for answer in answered]
        assert told == [[1], [0]] * count
    assert owner.routed == []


async def test_so_much_is_asked_behind_a_SUBSCRIBE_and_no_more(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SUBSCRIBES_WAITING_MAX", 1)
    monkeypatch.setattr(owner, "claim", lambda client_id, filters, done, user: None)
    owner.zones["default"] = Limits(exclusive_subscription=True)
    owner.open(1, request(1))
    owner.subscribe(1, b"$exclusive/x")
    assert owner.ask(1, messages.UnsubscribeQuestion([b"a"], b"1"), 2, 1) == []
    assert owner.ask(1, messages.UnsubscribeQuestion([b"b"], b"2"), 3, 2) == [b""]
    assert owner.ask(1, messages.UnsubscribeQuestion([b"c"], b"3"), 4, 3) == [b""], "none passes another"


async def test_what_waited_behind_a_SUBSCRIBE_is_not_done_when_it_is_asked_again(owner: Owner, claims: Claims) -> None:
    subscribed(owner)
    owner.subscribe(1, b"$exclusive/x")
    answers = owner.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"1"), 2, 1)
    assert owner.service.resume(ID, REPLICANT, 1, request(1), b"")
    claims[0]({})
    assert (answers, owner.routed) == ([], [(SLOT, b"a/#"), (SLOT, b"$exclusive/x")])


async def test_a_SUBSCRIBE_that_is_asked_again_waits_for_the_claim_that_it_made(owner: Owner, claims: Claims) -> None:
    owner.open(1, request(1))
    exclusive = b"$exclusive/x"
    questions = (
        messages.SubscribeQuestion([messages.WantedSubscription(exclusive, 1)], b""),
        messages.UnsubscribeQuestion([exclusive], b"1"),
    )
    for number, question in enumerate(questions, start=1):
        owner.ask(1, question, number, number - 1)
    assert owner.service.resume(ID, REPLICANT, 1, request(1), b"")
    answers = [owner.ask(1, question, number, number - 3 and 3) for number, question in enumerate(questions, start=3)]
    assert (answers, len(claims)) == ([[], []], 1), "another claim of the same filter would be refused"
    claims[0]({})
    claims[1]({})
    assert [messages.decode_reasons(answer) for answered in answers for answer in answered] == [[1], [0]]
    assert owner.service.sessions.by_id[ID].subscriptions.find(exclusive) is None


async def test_a_SUBSCRIBE_of_a_former_connection_undoes_no_UNSUBSCRIBE_of_the_next_one(
    owner: Owner, claims: Claims
) -> None:
    exclusive = b"$exclusive/x"
    owner.open(1, request(1))
    assert owner.subscribe(1, exclusive) == []
    owner.open(2, request(2))
    assert owner.ask(2, messages.UnsubscribeQuestion([exclusive], b"1")) != []
    claims[0]({})
    assert owner.service.sessions.by_id[ID].subscriptions.find(exclusive) is None


NEVER_RETAINED = 2 << 4
"""Retain Handling 2."""


async def test_a_subscription_awaits_what_is_retained_until_it_was_sent(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    owner.subscribe(1, b"a/#")
    owner.subscribe(1, b"b/#")
    first = owner.awaiting_retained[0][0]
    gave(first)
    owner.service.leave(ID, 1, -1, False)
    later = await another(redis)
    assert [(subscription.filter, saw_all) for subscription, saw_all in later.awaiting_retained] == [(b"b/#", False)]
    later.open(2, request(2))
    later.ask(2, messages.SubscribeQuestion([messages.WantedSubscription(b"b/#", 1 | NEVER_RETAINED)], b""))
    [_, (again, _)] = later.awaiting_retained
    assert again is not later.awaiting_retained[0][0], "who asks for it anew gets it by the new one"
    gave(again)
    last = Owner(redis, "core-2@1", 3)
    await last.own(SLOT)
    assert last.awaiting_retained == []


async def test_what_is_awaited_is_written_again_and_ends_with_its_subscription(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    owner.subscribe(1, b"a/#")
    owner.subscribe(1, b"b/#")
    owner.disk.holds = True
    redis.slots.clear()
    owner.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"1"))
    await owner.commit()
    await owner.commit()
    owner.disk.holds = False
    owner.subscribe(1, b"a/#", 1 | NEVER_RETAINED)
    gave(owner.awaiting_retained[0][0])
    assert [subscription.filter for subscription, _ in (await another(redis)).awaiting_retained] == [b"b/#"]


def gave(subscription: Subscription) -> None:
    assert isinstance(subscription.session, DurableSession)
    subscription.session.retained_sent(subscription)


async def test_a_SUBSCRIBE_is_known_to_the_next_owner_until_its_client_has_another_connection(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request())
    owner.subscribe(1, nonce=b"nonce 01")
    gave(owner.awaiting_retained[0][0])
    later = await another(redis)
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    assert later.subscribe(1, nonce=b"nonce 01") == [messages.encode([1])]
    assert later.awaiting_retained == [], "the first owner crashed amid its answer"
    later.service.leave(ID, 1, -1, False)
    later.open(2, request(2))
    assert SUBSCRIBED not in redis.slot(SLOT).sessions[ID]
    later.subscribe(2, nonce=b"nonce 01")
    assert len(later.awaiting_retained) == 1


async def test_a_SUBSCRIBE_that_is_known_is_written_again(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    owner.subscribe(1, nonce=b"nonce 01")
    owner.disk.holds = True
    redis.slots.clear()
    owner.subscribe(1, b"b", nonce=b"nonce 02")
    await owner.commit()
    await owner.commit()
    assert redis.slot(SLOT).sessions[ID][SUBSCRIBED] == b"nonce 01nonce 02"


async def test_of_SUBSCRIBEs_no_more_are_kept_than_one_client_has_under_way(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    nonces = [b"nonce %02d" % number for number in range(bounds.SUBSCRIBES_WAITING_MAX + 3)]
    for nonce in nonces:
        owner.subscribe(1, nonce=nonce)
    assert redis.slot(SLOT).sessions[ID][SUBSCRIBED] == b"".join(nonces[3:])


async def test_a_SUBSCRIBE_is_not_noted_where_it_gets_nothing_or_a_node_would_not_understand_it(
    redis: Redis, owner: Owner
) -> None:
    owner.open(1, request())
    owner.subscribe(1, qos=1 | NEVER_RETAINED, nonce=b"nonce 01")
    owner.knows = False
    owner.subscribe(1, nonce=b"nonce 02")
    owner.knows = True
    owner.subscribe(1)
    assert SUBSCRIBED not in redis.slot(SLOT).sessions[ID]


async def test_what_an_UNSUBSCRIBE_removed_it_is_told_however_often_it_asks(redis: Redis, owner: Owner) -> None:
    """[MQTT-3.11.3]"""
    subscribed(owner)
    question = messages.UnsubscribeQuestion([b"a/#", b"never"], b"nonce")
    answer = owner.ask(1, question)
    assert messages.decode_reasons(answer[0]) == [0, 0x11]
    assert owner.ask(1, question) == answer
    later = await another(redis)
    later.service.resume(ID, REPLICANT, 1, request(1), b"")
    assert later.ask(1, question) == answer, "the first owner crashed amid its answer"
    assert later.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"other")) == [messages.encode([0x11])]
    later.service.leave(ID, 1, -1, False)
    later.open(2, request(2))
    assert [field for field in redis.slot(SLOT).sessions[ID] if field[:1] == b"u"] == []


async def test_an_UNSUBSCRIBE_that_asks_again_behind_its_SUBSCRIBE_removes_what_that_made_again(owner: Owner) -> None:
    """The answers to both were lost."""
    owner.open(1, request(1))
    question = messages.UnsubscribeQuestion([b"a/#"], b"nonce")
    for _ in range(2):
        owner.subscribe(1)
        assert owner.ask(1, question) == [messages.encode([0])]
        assert owner.service.sessions.by_id[ID].subscriptions.find(b"a/#") is None


async def test_of_UNSUBSCRIBEs_no_more_are_kept_than_one_client_has_under_way(redis: Redis, owner: Owner) -> None:
    owner.open(1, request())
    for number in range(bounds.SUBSCRIBES_WAITING_MAX + 3):
        owner.subscribe(1)
        owner.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"%d" % number))
    kept = [field for field in redis.slot(SLOT).sessions[ID] if field[:1] == b"u"]
    assert len(kept) == bounds.SUBSCRIBES_WAITING_MAX
    assert owner.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"0")) == [messages.encode([0x11])]
    assert owner.ask(1, messages.UnsubscribeQuestion([b"a/#"], b"3")) == [messages.encode([0])]
