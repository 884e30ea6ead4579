"""Requests, questions and reports of a node, until their owners heard them."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import client, messages
from flockmq.session_rpc.messages import Admission, OwnerUnreachable, Superseded
from unit.broker.session_rpc.network import Network, Node

ID = b"client"
DURABLE_REQUEST = messages.SessionRequest(5, False, 60, 32, 0, "default", b"a nonce!")
PAIR = b"\4\0\1"


class Connected:
    """One client at `replicant`, its owner at `former`; `asked` are the questions that it put."""

    def __init__(self, network: Network, former: Node, later: Node, replicant: Node) -> None:
        self.network = network
        self.former, self.later, self.replicant = former, later, replicant
        self.answers: list[bytes] = []
        self.token = replicant.clients.held[ID]

    def ask(self, packet_id: int) -> None:
        self.replicant.rpc.client.ask(ID, self.token, messages.ReceiveQuestion(packet_id), self.answers.append)

    def answer(self, node: Node, answer: bytes = b"yes") -> list[int]:
        """Everything that it was asked; returns the packet ids."""
        questions, node.sessions.questions = node.sessions.questions, []
        for _, _, answered in questions:
            answered(answer)
        return [question.packet_id for _, question, _ in questions if isinstance(question, messages.ReceiveQuestion)]


@pytest.fixture
async def connected(network: Network) -> Connected:
    former, later, replicant = await network.start("core-0", "core-1", "replicant-0")
    network.move(range(bounds.SLOTS), former)
    replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    return Connected(network, former, later, replicant)


async def test_a_question_is_answered_once(connected: Connected) -> None:
    connected.ask(1)
    await connected.network.settle()
    assert connected.answer(connected.former) == [1]
    await connected.network.settle()
    assert connected.answers == [b"yes"]


@pytest.mark.parametrize("lost", [messages.ASK, messages.REPLY])
async def test_a_question_that_is_lost_with_its_link_is_put_again(connected: Connected, lost: str) -> None:
    network = connected.network
    network.loses.add(lost)
    connected.ask(1)
    await network.settle()
    connected.answer(connected.former)
    await network.settle()
    assert connected.answers == []
    network.loses.clear()
    network.cut(connected.former, connected.replicant)
    network.mend(connected.former, connected.replicant)
    await network.settle()
    assert connected.answer(connected.former) == [1]
    await network.settle()
    assert connected.answers == [b"yes"]


async def test_questions_move_with_their_slot_in_their_order(connected: Connected) -> None:
    for packet_id in range(1, 6):
        connected.ask(packet_id)
    await connected.network.settle()
    connected.network.move([slot_of(ID)], connected.later)
    await connected.network.settle()
    assert connected.answer(connected.later) == [1, 2, 3, 4, 5]


async def test_a_question_that_its_owner_can_not_answer_is_put_again_before_later_ones(connected: Connected) -> None:
    network = connected.network
    network.holds.add(messages.ASK)
    connected.ask(1)
    network.holds.clear()
    await network.settle()
    network.holds.add(messages.ASK)
    connected.answer(connected.former, b"")
    await network.settle()
    connected.ask(2)
    network.holds.clear()
    await network.settle()
    assert connected.answer(connected.former) == [1, 2]
    await network.settle()
    assert connected.answers == [b"yes", b"yes"]


async def test_subscribes_and_unsubscribes_are_answered_in_their_order_or_put_again_in_it(connected: Connected) -> None:
    """What is put again is done again: it ends as the client asked last."""
    network, replicant, owner = connected.network, connected.replicant, connected.former
    answers: list[tuple[int, bytes]] = []
    removes, makes = (
        messages.UnsubscribeQuestion([b"a"], b"nonce"),
        messages.SubscribeQuestion([messages.WantedSubscription(b"a", 1)], b""),
    )
    for number, question in enumerate((removes, makes, messages.ReceiveQuestion(7))):
        replicant.rpc.client.ask(ID, connected.token, question, partial(lambda *one: answers.append(one), number))
    await network.settle()
    for (_, _, answered), answer in zip(owner.sessions.questions[1:], (b"made", b"number"), strict=True):
        answered(answer)
    owner.sessions.questions.clear()
    await network.settle()
    assert answers == [(2, b"number")], "it waits for no other"
    network.cut(owner, replicant)
    network.mend(owner, replicant)
    await network.settle()
    assert [question for _, question, _ in owner.sessions.questions] == [removes, makes]
    for (_, _, answered), answer in zip(owner.sessions.questions[::-1], (b"made again", b"removed"), strict=True):
        answered(answer)
    await network.settle()
    assert answers[1:] == [(0, b"removed"), (1, b"made again")]
    assert not replicant.rpc.client._questions


async def test_questions_say_which_one_they_stand_behind(connected: Connected) -> None:
    connected.ask(1)
    connected.ask(2)
    await connected.network.settle()
    connected.answer(connected.former)
    await connected.network.settle()
    connected.ask(3)
    await connected.network.settle()
    (first, nobody), (_, behind), (_, again) = connected.former.sessions.places
    assert (nobody, behind, again) == (0, first, 0)


async def test_questions_without_an_owner_wait_for_one(connected: Connected) -> None:
    network = connected.network
    network.move([slot_of(ID)], None)
    connected.ask(1)
    connected.ask(2)
    await network.settle()
    network.move([slot_of(ID)], connected.later)
    await network.settle()
    assert connected.answer(connected.later)[-2:] == [1, 2]
    await network.settle()
    assert connected.answers == [b"yes", b"yes"]


async def test_questions_end_with_their_connection(connected: Connected) -> None:
    connected.ask(1)
    await connected.network.settle()
    connected.replicant.clients.let_go(ID)
    assert connected.answers == [b""]
    connected.answer(connected.former)
    await connected.network.settle()
    assert connected.answers == [b""]


async def test_a_question_of_a_connection_that_is_gone_ends_at_once(connected: Connected) -> None:
    """A verdict on what it published came late."""
    connected.replicant.clients.let_go(ID)
    connected.ask(1)
    await connected.network.settle()
    assert connected.answers == [b""]
    assert connected.former.sessions.questions == []


async def test_who_left_in_order_while_there_was_no_owner_for_half_a_minute_left_so(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as Redis may be away: else its will is published, and the session that it ended is there."""
    network, replicant, token = connected.network, connected.replicant, connected.token
    network.move(range(bounds.SLOTS), None)
    await network.settle()
    replicant.clients.let_go(ID, 0)
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 35)
    await network.settle()
    network.move(range(bounds.SLOTS), connected.later)
    await network.settle()
    assert (ID, token, 0, False) in connected.later.sessions.left


@pytest.mark.parametrize("is_evicted", [False, True])
async def test_the_next_owner_is_told_long_after_the_former_one_who_left_but_not_whose_will_may_be_out(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, is_evicted: bool
) -> None:
    """Redis may have been away, and what the former one was told is lost with it."""
    network, token, replicant = connected.network, connected.token, connected.replicant
    if is_evicted:
        replicant.rpc.client.evict(ID, replicant.clients.held.pop(ID), 0, b"nonce", 30.0, None)
    else:
        replicant.clients.let_go(ID, 0)
    await network.settle()
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 35)
    network.move(range(bounds.SLOTS), connected.later)
    await network.settle()
    left = (ID, token, 0, is_evicted)
    assert left in connected.former.sessions.left
    assert (left in connected.later.sessions.left) != is_evicted


async def test_who_is_registered_waits_for_no_core_without_a_link(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for that one may wait for long."""
    monkeypatch.setattr(bounds, "NOTES_BATCH_MAX", 1)
    monkeypatch.setattr(bounds, "NOTES_RETRY_S", 0.0)
    network, replicant, other = connected.network, connected.replicant, connected.later
    replicant.clients.connect(b"gone", DURABLE_REQUEST)
    replicant.clients.connect(b"stays", DURABLE_REQUEST)
    await network.settle()
    network.move([slot_of(b"gone")], other)
    await network.settle()
    network.cut(replicant, other)
    replicant.clients.let_go(b"gone")
    await network.settle()
    network.cut(replicant, connected.former)
    network.mend(replicant, connected.former)
    await network.settle()
    assert {client_id for client_id, _, _, _ in connected.former.sessions.resumed} == {ID, b"stays"}


async def test_who_left_long_ago_is_forgotten(connected: Connected, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = connected.replicant.rpc.client
    connected.replicant.clients.let_go(ID)
    assert len(asked._detached) == 1
    monkeypatch.setattr(client, "DETACHED_KEPT_S", -1.0)
    await connected.network.settle()
    assert len(asked._detached) == 0


async def test_an_attach_that_supersedes_another_as_both_are_asked_again_holds_up_nothing(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "NOTES_BATCH_MAX", 1)
    monkeypatch.setattr(bounds, "NOTES_RETRY_S", 0.0)
    former, later, third, replicant = await network.start("core-0", "core-1", "core-2", "replicant-0")
    clients = {slot_of(ID), slot_of(b"other")}
    network.move(set(range(bounds.SLOTS)) - clients, third)
    network.move(clients, former)
    replicant.clients.connect(ID)
    later.clients.connect(b"other", DURABLE_REQUEST)
    await network.settle()
    replicant.clients.holds_on = True
    later.clients.connect(ID)
    answers: list[bytes] = []
    later.rpc.client.ask(b"other", later.clients.held[b"other"], messages.SubscribeQuestion([], b""), answers.append)
    await network.settle()
    former.sessions.questions.clear()
    later.member.choked = True  # registering pauses
    await network.lose_node(former)
    network.move(clients, later)
    await network.settle()
    later.clients.connect(ID)  # it tries again, and asks the new owner at once
    await network.settle()
    later.member.choked = False
    await network.settle()
    assert later.sessions.questions, "what was asked of the former owner is asked of the new one"


async def test_a_connection_that_can_not_be_registered_holds_up_no_other(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, clients = connected.network, connected.replicant.clients
    clients.connect(b"other", DURABLE_REQUEST)
    await network.settle()

    def unsettled(token: int) -> bytes:
        if token == connected.token:
            raise RuntimeError(token)
        return b""

    monkeypatch.setattr(clients, "unsettled", unsettled)
    network.move(range(bounds.SLOTS), connected.later)
    await network.settle()
    assert [client_id for client_id, _, _, _ in connected.later.sessions.resumed] == [b"other"]


async def test_reports_come_in_their_order_and_are_the_clients_to_repeat(connected: Connected) -> None:
    network = connected.network
    connected.replicant.rpc.client.report(ID, connected.token, PAIR)
    connected.replicant.rpc.client.report(ID, connected.token, PAIR * 2)
    await network.settle()
    reported = [(connected.replicant.incarnation, connected.token, PAIR * count) for count in (1, 2)]
    assert connected.former.sessions.reports == reported
    network.cut(connected.former, connected.replicant)
    connected.replicant.rpc.client.report(ID, connected.token, PAIR)
    connected.replicant.clients.unsettled_pairs[connected.token] = PAIR
    await network.settle()
    network.mend(connected.former, connected.replicant)
    await network.settle()
    assert connected.former.sessions.reports == reported, "it is registered with all that isn't settled"
    assert connected.former.sessions.resumed[-1][3] == PAIR


async def test_who_is_kicked_though_it_left_is_said_to_have_left_as_it_did(connected: Connected) -> None:
    """What was said of that is lost with the link, and its will with it otherwise."""
    network, replicant, owner = connected.network, connected.replicant, connected.former
    network.loses.add(messages.DETACH)
    replicant.clients.let_go(ID, with_will=True)
    await network.settle()
    network.loses.clear()
    replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert owner.sessions.left[-1] == (ID, connected.token, -1, True)
    assert replicant.clients.held[ID] > connected.token


async def test_who_is_kicked_though_it_was_sent_away_is_said_to_have_been(connected: Connected) -> None:
    """Its will is held back then: the connection that has it kicked may be refused in the end."""
    network, replicant, owner = connected.network, connected.replicant, connected.former
    network.loses.add(messages.EVICT)
    replicant.rpc.client.evict(ID, replicant.clients.held.pop(ID), 60, b"a nonce!", 30.0, None)
    await network.settle()
    network.loses.clear()
    replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert owner.sessions.left[-1] == (ID, connected.token, 60, True)
    assert owner.sessions.holds[-1] == pytest.approx(30.0, abs=0.5)


async def test_a_kick_that_overtakes_the_admission_is_heeded(connected: Connected) -> None:
    """The answer came by the former owner, the kick by the later one."""
    network, replicant = connected.network, connected.replicant
    replicant.clients.let_go(ID)
    await network.settle()
    network.holds.add(messages.ANSWER)
    answers = replicant.clients.connect(ID)
    await network.settle()
    token = (1 << 100) + 5
    connected.former.rpc.notes.send(replicant.incarnation, messages.KICK, (ID, messages.pack_token(token)))
    await network.settle()
    network.holds.clear()
    await network.settle()
    assert [type(answer) for answer in answers] == [Superseded]
    assert not replicant.clients.held


async def test_attaches_that_wait_are_bounded(connected: Connected, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ATTACHES_MAX", 2)
    connected.network.holds.add(messages.ATTACH)
    answers = [connected.replicant.clients.connect(b"%d" % number) for number in range(3)]
    assert [len(answer) for answer in answers] == [0, 0, 1]
    assert isinstance(answers[2][0], OwnerUnreachable)
    connected.network.holds.clear()
    await connected.network.settle()
    assert all(isinstance(answer[0], Admission) for answer in answers[:2])


async def test_attaches_that_wait_are_bounded_with_their_wills(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ATTACHES_MAX_BYTES", 1000)
    connected.network.holds.add(messages.ATTACH)
    request = messages.SessionRequest(4, False, 60, 32, 0, "default", bytes(8), messages.WillRow(0, 4, bytes(1000)))
    answers = [connected.replicant.clients.connect(b"%d" % number, request) for number in range(2)]
    assert [len(answer) for answer in answers] == [0, 1]
    connected.network.holds.clear()
    await connected.network.settle()
    assert isinstance(answers[0][0], Admission)
    assert connected.replicant.clients.connect(b"2", request) == []


async def test_a_client_id_that_is_granted_when_nobody_waits_for_it_is_let_go(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    network.holds.add(messages.ANSWER)
    monkeypatch.setattr(bounds, "ATTACH_WAIT_S", 0.0)
    answers = replicant.clients.connect(b"client")
    await network.settle()
    replicant.rpc.tick_once(asyncio.get_running_loop().time())
    assert [type(answer) for answer in answers] == [OwnerUnreachable]
    assert len(core.rpc.server.registry) == 1
    network.holds.clear()
    await network.settle()
    assert len(core.rpc.server.registry) == 0


@pytest.mark.parametrize(("present", "expiry_s"), [(False, 0), (True, -1)])
async def test_a_session_that_began_for_a_client_that_was_refused_ends_and_one_that_was_there_stays(
    network: Network, monkeypatch: pytest.MonkeyPatch, present: bool, expiry_s: int
) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.sessions.present = present
    network.holds.add(messages.ANSWER)
    monkeypatch.setattr(bounds, "ATTACH_WAIT_S", 0.0)
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    replicant.rpc.tick_once(asyncio.get_running_loop().time())
    assert [type(answer) for answer in answers] == [OwnerUnreachable]
    network.holds.clear()
    await network.settle()
    assert [left[2:] for left in core.sessions.left] == [(expiry_s, False)]
    assert core.sessions.nonces == [DURABLE_REQUEST.nonce]


async def test_who_is_admitted_by_the_former_owner_while_others_are_registered_is_known_to_the_next(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, replicant, later = connected.network, connected.replicant, connected.later
    monkeypatch.setattr(bounds, "NOTES_BATCH_MAX", 1)
    network.holds.add(messages.ANSWER)
    replicant.clients.connect(b"other", DURABLE_REQUEST)
    await network.settle()
    replicant.member.choked = True
    network.move(range(bounds.SLOTS), later)
    await network.settle()
    network.holds.clear()
    await network.settle()
    replicant.member.choked = False
    await asyncio.sleep(2 * bounds.NOTES_RETRY_S)
    await network.settle()
    assert later.rpc.server.registry.holds(b"other", replicant.incarnation, replicant.clients.held[b"other"])


async def test_who_goes_while_owners_take_no_more_is_not_registered(
    connected: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Registering waits for links; a connection that is gone by then was detached, and must not come back."""
    monkeypatch.setattr(client, "NOTE_BYTES", 1)
    monkeypatch.setattr(bounds, "NOTES_RETRY_S", 0.0)
    replicant, network = connected.replicant, connected.network
    replicant.clients.connect(b"gone", DURABLE_REQUEST)
    replicant.clients.connect(b"stays", DURABLE_REQUEST)
    await network.settle()
    replicant.member.choked = True
    network.move(range(bounds.SLOTS), connected.later)
    await network.settle()
    assert connected.later.sessions.resumed == []
    replicant.clients.let_go(b"gone")
    replicant.member.choked = False
    while len(connected.later.sessions.resumed) < 2:
        await network.settle()
    await network.settle()
    assert [client_id for client_id, _, _, _ in connected.later.sessions.resumed] == [ID, b"stays"]
