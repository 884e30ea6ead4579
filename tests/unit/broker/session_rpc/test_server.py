"""One connection a client id, whatever becomes of links and homes; sessions are told what became of connections."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any

import msgspec
import pytest

from flockmq import bounds
from flockmq.mqtt.message import Publish, publication
from flockmq.rlog.retained_order import author_of
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.attach_result import Admission, AttachError, OtherUser, OwnerFull, OwnerUnreachable, Superseded
from flockmq.session_rpc.clean_session_wills import PendingWill, will_origin
from flockmq.session_rpc.ports import Attach
from unit.broker.session_rpc.network import TURNS, Network, Node

ID = b"client"
LASTING = messages.Opening(5, False, 60, 32, 0, "default", b"a nonce!")


def home_of(network: Network, client_id: bytes = ID) -> Node:
    return network.nodes[network.owners[slot_of(client_id)]]


def token_of(answers: list[Admission | AttachError]) -> int:
    (answer,) = answers
    assert isinstance(answer, Admission)
    return answer.token


async def test_a_newer_connection_is_admitted_when_the_older_is_gone(network: Network) -> None:
    _, _, first, second = await network.start("core-0", "core-1", "edge-0", "edge-1")
    older = first.clients.connect(ID)
    await network.settle()
    first.clients.holds_on = True
    newer = second.clients.connect(ID)
    await network.settle()
    assert newer == []
    assert first.clients.kicked == [(ID, token_of(older))]
    first.clients.let_go(ID)
    await network.settle()
    assert token_of(newer) > token_of(older)


async def test_of_two_that_wait_the_older_hears_that_it_is_superseded(network: Network) -> None:
    _, first, second, third = await network.start("core-0", "edge-0", "edge-1", "edge-2")
    first.clients.connect(ID)
    await network.settle()
    first.clients.holds_on = True
    loser = second.clients.connect(ID)
    await network.settle()
    winner = third.clients.connect(ID)
    await network.settle()
    assert isinstance(loser[0], Superseded)
    first.clients.let_go(ID)
    await network.settle()
    assert token_of(winner)


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_who_loses_its_place_before_it_hears_that_it_has_it_hears_that_it_is_superseded(
    network: Network, is_loaded: bool
) -> None:
    core, second, third = await network.start("core-0", "edge-0", "edge-1")
    if is_loaded:
        core.sessions.answers_late = True
    else:
        core.sessions.loaded.discard(slot_of(ID))
    loser = second.clients.connect(ID, LASTING)
    await network.settle()
    winner = third.clients.connect(ID, LASTING)
    await network.settle()
    core.sessions.load(slot_of(ID))
    core.sessions.answer()
    await network.settle()
    assert [type(answer) for answer in loser] == [Superseded]
    assert token_of(winner)


async def test_a_session_is_opened_before_its_connection_is_admitted_and_left_when_it_is_gone(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    answers = edge.clients.connect(ID, LASTING)
    await network.settle()
    token = token_of(answers)
    assert answers == [Admission(token, True, False)]
    assert core.sessions.opened == [(ID, edge.incarnation, LASTING)]
    edge.clients.let_go(ID, 7, with_will=True)
    await network.settle()
    assert core.sessions.left == [(ID, token, 7, True)]


async def test_a_home_hears_which_opening_it_was_that_left(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    edge.homes.client.detach(ID, token, 7, nonce=LASTING.nonce)
    await network.settle()
    assert core.sessions.nonces == [LASTING.nonce]


async def test_nobody_is_admitted_before_the_sessions_of_the_slot_are_there(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    slot = slot_of(ID)
    core.sessions.loaded.discard(slot)
    answers = edge.clients.connect(ID, LASTING)
    await network.settle()
    assert answers == []
    core.sessions.load(slot)
    await network.settle()
    assert isinstance(answers[0], Admission)


async def test_the_clients_of_a_home_itself_need_no_link(network: Network) -> None:
    (core,) = await network.start("core-0")
    assert token_of(core.clients.connect(ID))
    assert network.said == []


@pytest.mark.parametrize("lost", [messages.ATTACH, messages.ANSWER])
async def test_a_note_that_is_lost_with_its_link_costs_only_time(network: Network, lost: str) -> None:
    core, edge = await network.start("core-0", "edge-0")
    network.loses.add(lost)
    answers = edge.clients.connect(ID)
    await network.settle()
    assert answers == []
    network.loses.clear()
    network.cut(core, edge)
    network.mend(core, edge)
    await network.settle()
    assert edge.clients.held == {ID: token_of(answers)}
    assert len(core.homes.server.registry) == 1


async def test_without_a_link_an_attach_waits_for_it(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    network.cut(core, edge)
    answers = edge.clients.connect(ID)
    await network.settle()
    assert answers == []
    network.mend(core, edge)
    await network.settle()
    assert token_of(answers)


async def test_without_a_home_an_attach_ends_in_an_error(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ATTACH_WAIT_S", 0.0)
    core, edge = await network.start("core-0", "edge-0")
    network.cut(core, edge)
    answers = edge.clients.connect(ID)
    await network.settle()
    assert [type(answer) for answer in answers] == [OwnerUnreachable]


async def test_one_that_is_not_closed_in_time_is_not_waited_for(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    core.homes.server.kick_wait_s = 0.0
    older = first.clients.connect(ID, LASTING)
    await network.settle()
    first.clients.holds_on = True
    newer = second.clients.connect(ID, msgspec.structs.replace(LASTING, nonce=b"another"))
    await network.settle()
    assert token_of(newer)
    assert core.sessions.left == [(ID, token_of(older), -1, True)], "and its will is due"


async def test_a_CONNECT_that_is_asked_for_again_waits_in_vain_for_itself_and_has_no_will_due(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    core.homes.server.kick_wait_s = 0.0
    edge.clients.holds_on = True
    older = edge.clients.connect(ID, LASTING)
    await network.settle()
    again = edge.clients.connect(ID, LASTING)
    await network.settle()
    assert token_of(again)
    assert (ID, token_of(older), -1, False) in core.sessions.left
    assert (ID, token_of(older), -1, True) not in core.sessions.left


async def test_who_asks_again_and_again_waits_no_longer_for_one_that_is_not_closed(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    await connected(network, first)
    first.clients.holds_on = True
    second.clients.connect(ID, LASTING)
    await network.settle()
    [waiting] = core.homes.server._waiting.values()
    core.homes.server._take_attach(second.incarnation, (99, ID, LASTING))
    [another] = core.homes.server._waiting.values()
    assert another is not waiting
    assert another.deadline == waiting.deadline


async def test_one_behind_a_cut_link_is_not_waited_for_and_goes_when_it_is_back(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    core.homes.server.kick_unlinked_s = 0.0
    first.clients.connect(ID)
    await network.settle()
    network.cut(core, first)
    newer = second.clients.connect(ID)
    await network.settle()
    assert token_of(newer)
    assert ID in first.clients.held
    network.mend(core, first)
    await network.settle()
    assert not first.clients.held
    assert second.clients.held == {ID: token_of(newer)}


async def test_a_kick_that_is_lost_with_its_link_is_said_again_when_the_connection_registers(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    older = token_of(await connected(network, first))
    network.loses.add(messages.KICK)
    newer = second.clients.connect(ID, LASTING)
    await network.settle()
    assert newer == []
    network.loses.clear()
    network.cut(core, first)
    network.mend(core, first)
    await network.settle()
    assert first.clients.kicked == [(ID, older)]
    assert core.sessions.resumed == [], "it is on its way out"
    assert second.clients.held == {ID: token_of(newer)}


async def test_connections_of_a_purged_node_are_not_waited_for(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    first.clients.connect(ID)
    await network.settle()
    first.clients.holds_on = True
    newer = second.clients.connect(ID)
    await network.settle()
    await network.lose_node(first)
    await network.settle()
    assert token_of(newer)
    assert core.sessions.gone == [first.incarnation]


async def test_a_new_home_hears_who_is_connected_and_all_that_is_not_settled(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, edge))
    edge.clients.owed[token] = b"\4\0\1"
    network.move([slot_of(ID)], later)
    await network.settle()
    assert later.sessions.resumed == [(ID, edge.incarnation, token, b"\4\0\1")]
    newer = edge.clients.connect(ID)
    await network.settle()
    assert edge.clients.kicked == [(ID, token)]
    assert token_of(newer) > token


async def test_a_home_that_is_linked_again_hears_it_too(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    edge.clients.owed[token] = b"\4\0\1"
    network.cut(core, edge)
    network.mend(core, edge)
    await network.settle()
    assert core.sessions.resumed == [(ID, edge.incarnation, token, b"\4\0\1")]


async def test_a_connection_whose_session_ended_meanwhile_is_closed(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    core.sessions.ended = True
    network.cut(core, edge)
    network.mend(core, edge)
    await network.settle()
    assert edge.clients.kicked == [(ID, token)]


async def test_who_registers_before_the_sessions_are_there_waits(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, edge))
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    assert later.sessions.resumed == []
    later.sessions.load((slot + 1) % bounds.SLOTS)
    assert later.sessions.resumed == []
    later.sessions.load(slot)
    assert later.sessions.resumed == [(ID, edge.incarnation, token, b"")]


async def test_who_registers_and_goes_before_the_sessions_are_there_is_gone(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, edge))
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    edge.clients.let_go(ID)
    await network.settle()
    later.sessions.load(slot)
    assert later.sessions.resumed == [(ID, edge.incarnation, token, b"")]
    assert later.sessions.left[-1] == (ID, token, -1, False)
    assert len(later.homes.server.registry) == 0


async def test_a_node_that_registers_and_is_purged_before_the_sessions_are_there_holds_nothing(
    network: Network,
) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    await connected(network, edge)
    later.sessions.loads_at_once = False
    network.move([slot], later)
    await network.settle()
    await network.lose_node(edge)
    later.sessions.load(slot)
    assert later.sessions.resumed == []
    assert len(later.homes.server.registry) == 0


async def test_what_finds_no_room_before_the_sessions_are_there_is_asked_for_again(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    other = next(client_id for client_id in (b"%d" % n for n in range(99_999)) if slot_of(client_id) == slot)
    kept = edge.clients.connect(other, LASTING)
    gone = edge.clients.connect(ID, LASTING)
    await network.settle()
    later.sessions.loads_at_once = False
    monkeypatch.setattr(bounds, "REGISTERS_EARLY_MAX", 0)
    network.move([slot], later)
    await network.settle()
    edge.clients.let_go(ID, 7, with_will=True)
    await network.settle()
    assert dict(later.homes.dropped())["unloaded"] == 3
    later.sessions.left.clear()
    later.sessions.load(slot)
    await network.settle()
    assert later.sessions.resumed == [(other, edge.incarnation, token_of(kept), b"")]
    assert later.sessions.left == [(ID, token_of(gone), 7, True)]


async def test_a_node_that_was_purged_and_is_linked_yet_has_no_clients_here(network: Network) -> None:
    core, edge, other = await network.start("core-0", "edge-0", "edge-1")
    await connected(network, edge)
    core.sessions.loaded.discard(slot_of(b"1"))
    waits = edge.clients.connect(b"1")
    await network.settle()
    network.purge(edge)
    answers = edge.clients.connect(b"2", LASTING)
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    core.sessions.load(slot_of(b"1"))
    await network.settle()
    assert waits == answers == []
    assert core.sessions.resumed == []
    assert [client_id for client_id, _, _ in core.sessions.opened] == [ID]
    newer = other.clients.connect(ID)
    await network.settle()
    assert token_of(newer)
    assert edge.clients.kicked == []


async def test_what_a_node_says_before_it_is_known_as_a_member_is_heard_when_it_is(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    network.purge(edge)
    edge.homes.rename(edge.incarnation)
    answers = edge.clients.connect(b"1", LASTING)
    await network.settle()
    assert core.sessions.resumed == []
    network.members.add(edge.incarnation)
    await network.settle()
    assert core.sessions.resumed == [(ID, edge.incarnation, token, b"")]
    assert token_of(answers)


async def test_of_two_connections_the_older_goes_before_its_node_is_known_as_a_member(network: Network) -> None:
    """A purged node may take long to be one again, and its home to hear so."""
    core, edge, other = await network.start("core-0", "edge-0", "edge-1")
    token = token_of(await connected(network, edge))
    network.cut(core, edge)
    network.purge(edge)
    newer = token_of(await connected(network, other))
    network.mend(core, edge)
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    assert edge.clients.kicked == [(ID, token)]
    network.members.add(edge.incarnation)
    await network.settle()
    assert other.clients.held == {ID: newer}
    assert core.sessions.resumed == []


async def test_who_would_wait_for_a_store_that_is_full_is_refused_and_holds_nothing(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    core.sessions.full = True
    answers = edge.clients.connect(ID, LASTING)
    await network.settle()
    assert [type(answer) for answer in answers] == [OwnerFull]
    assert len(core.homes.server.registry) == 0
    core.sessions.full = False
    assert isinstance((await connected(network, edge))[0], Admission)


@pytest.mark.parametrize("bound", ["ATTACHES_MAX", "ATTACHES_MAX_BYTES"])
async def test_attaches_that_wait_at_their_home_for_its_sessions_are_bounded(
    network: Network, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    core.sessions.loaded.clear()
    waits = first.clients.connect(b"1", LASTING)
    await network.settle()
    monkeypatch.setattr(bounds, bound, 1)
    core.homes.server._take_attach(second.incarnation, (1, b"2", LASTING))
    assert len(core.homes.server.registry) == 1
    core.sessions.load(slot_of(b"1"))
    await network.settle()
    assert token_of(waits)
    core.homes.server._take_attach(second.incarnation, (2, b"2", LASTING))
    assert len(core.homes.server.registry) == 2, "there is room again"


async def test_an_attach_moves_with_its_slot(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    slot = slot_of(ID)
    network.move(range(bounds.SLOTS), former)
    former.sessions.loaded.discard(slot)
    answers = edge.clients.connect(ID, LASTING)
    await network.settle()
    network.move([slot], later)
    await network.settle()
    assert token_of(answers)
    assert former.sessions.opened == []
    assert later.sessions.opened == [(ID, edge.incarnation, LASTING)]


async def test_who_is_gone_while_its_slot_moves_is_gone_there_too(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, edge))
    network.loses.add(messages.DETACH)
    edge.clients.let_go(ID, with_will=True)
    await network.settle()
    network.loses.clear()
    network.move([slot_of(ID)], later)
    await network.settle()
    assert (ID, token, -1, True) in later.sessions.left


async def test_deliveries_come_by_the_way_of_their_node(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    core.homes.server.deliver(core.incarnation, 1, b"here")
    core.homes.server.deliver(edge.incarnation, 2, b"there")
    await network.settle()
    assert core.clients.packets == [(core.incarnation, 1, b"here")]
    assert edge.clients.packets == [(core.incarnation, 2, b"there")]
    network.cut(core, edge)
    core.homes.server.deliver(edge.incarnation, 2, b"lost")
    await network.settle()
    assert core.sessions.cuts == [edge.incarnation] * 2, "the link, and what found none"


async def test_a_session_without_room_has_its_connection_cut_off(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    core.homes.server.overflow(edge.incarnation, ID, 7)
    await network.settle()
    assert edge.clients.overflown == [(ID, 7)]


async def test_all_nodes_hear_of_a_crowded_slot_from_its_home(network: Network) -> None:
    core, other, edge = await network.start("core-0", "core-1", "edge-0")
    heard: list[tuple[Node, int, bool]] = []
    for node in (core, other, edge):
        node.homes.client.on_congestion = partial(lambda *one: heard.append(one), node)
    network.move([3], core)
    core.homes.server.congested(3, True)
    await network.settle()
    assert sorted(heard, key=lambda one: one[0].incarnation) == [(core, 3, True), (other, 3, True), (edge, 3, True)]
    heard.clear()
    network.cut(core, edge)
    core.homes.server.congested(3, False)
    other.homes.server.congested(3, True)
    await network.settle()
    network.mend(core, edge)
    await network.settle()
    assert [one[0] for one in heard] == [core, other], "not who isn't linked, nor of somebody else's slot"


async def test_all_nodes_hear_from_its_home_who_takes_messages_at_once(network: Network) -> None:
    core, other, edge = await network.start("core-0", "core-1", "edge-0")
    heard: list[tuple[int, bool, list[bytes]]] = []
    for node in (core, other, edge):
        node.homes.client.on_memory_report = lambda *said: heard.append(said)
    network.move([3], core)
    core.homes.server.report_memory(3, False, [b"a/#"])
    other.homes.server.report_memory(3, True, [])
    await network.settle()
    assert heard == [(3, False, [b"a/#"])] * 3, "not of somebody else's slot"


async def connected(network: Network, node: Node, opening: messages.Opening = LASTING) -> list[Admission | AttachError]:
    answers = node.clients.connect(ID, opening)
    await network.settle()
    return answers


async def test_a_home_that_may_have_been_purged_admits_nobody(network: Network) -> None:
    core, edge, other = await network.start("core-0", "edge-0", "edge-1")
    older = edge.clients.connect(ID)
    await network.settle()
    core.member.is_confirmed_member = False
    newer = other.clients.connect(ID, LASTING)
    await network.settle()
    assert newer == []
    assert edge.clients.kicked == []
    core.member.is_confirmed_member = True
    await network.settle()
    assert token_of(newer) > token_of(older)


async def test_who_waited_at_a_home_that_may_have_been_purged_since_is_not_admitted_by_it(network: Network) -> None:
    core, edge, other = await network.start("core-0", "edge-0", "edge-1")
    edge.clients.connect(ID)
    await network.settle()
    edge.clients.holds_on = True
    newer = other.clients.connect(ID, LASTING)
    await network.settle()
    core.member.is_confirmed_member = False
    edge.clients.let_go(ID)
    await network.settle()
    assert newer == []
    assert core.sessions.opened == [(ID, edge.incarnation, None)]
    core.member.is_confirmed_member = True
    await network.settle()
    assert token_of(newer)
    assert core.sessions.opened[1:] == [(ID, other.incarnation, LASTING)]


async def test_one_that_can_not_be_helped_holds_up_no_other_of_its_note(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, edge = await network.start("core-0", "edge-0")
    fail_for(core, "open", b"1", monkeypatch)
    answers = [edge.clients.connect(b"%d" % number) for number in range(3)]
    await network.settle()
    assert [len(answer) for answer in answers] == [1, 0, 1]


async def test_one_that_can_not_be_opened_holds_up_no_other_that_waited_for_the_slot(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, edge = await network.start("core-0", "edge-0")
    slot, others = slot_of(ID), roommates(2)
    core.sessions.loaded.discard(slot)
    answers = [edge.clients.connect(client_id) for client_id in (ID, *others)]
    await network.settle()
    fail_for(core, "open", ID, monkeypatch)
    core.sessions.load(slot)
    await network.settle()
    assert [len(answer) for answer in answers] == [0, 1, 1]


async def test_one_that_can_not_be_registered_holds_up_no_other_and_no_question(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later = await network.start("core-0", "core-1")
    network.move(range(bounds.SLOTS), former)
    clients = [ID, *roommates(2)]
    answers = [later.clients.connect(client_id, LASTING) for client_id in clients]
    await network.settle()
    later.homes.client.ask(clients[2], token_of(answers[2]), messages.ReceiveQuestion(1), lambda _: None)
    fail_for(later, "resume", ID, monkeypatch)
    network.move([slot_of(ID)], later)
    await network.settle()
    assert [client_id for client_id, _, _, _ in later.sessions.resumed] == clients[1:]
    assert [client_id for client_id, _, _ in later.sessions.questions] == [clients[2]]


async def test_one_that_registered_early_and_can_not_be_helped_holds_up_no_other(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    network.move(range(bounds.SLOTS), former)
    clients = [ID, *roommates(1)]
    for client_id in clients:
        edge.clients.connect(client_id, LASTING)
    await network.settle()
    later.sessions.loads_at_once = False
    network.move([slot_of(ID)], later)
    await network.settle()
    fail_for(later, "resume", ID, monkeypatch)
    later.sessions.load(slot_of(ID))
    assert [client_id for client_id, _, _, _ in later.sessions.resumed] == clients[1:]


async def test_what_a_node_says_that_is_no_member_again_is_forgotten_in_time(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    await connected(network, edge)
    network.purge(edge)
    early, clock = core.homes.server._early, [0.0]
    early._now = lambda: clock[0]
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    assert len(early) == 1
    clock[0] = bounds.EARLY_KEPT_S - 1
    await network.settle()
    clock[0] = bounds.EARLY_KEPT_S + 1
    early.sweep(core.homes.server._accepts_notes, core.homes.server.is_linked)
    assert len(early) == 0
    core.sessions.resumed.clear()
    network.members.add(edge.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID], "now that it is one, it is asked"
    await network.settle()
    assert len(core.sessions.resumed) == 1, "once"


async def test_what_a_node_said_before_it_was_heard_comes_before_what_it_says_since(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    network.purge(edge)
    for pairs in (b"before", b"since"):
        core.homes.server._take_register(edge.incarnation, (ID, messages.pack_token(token), LASTING, pairs))
        network.members.add(edge.incarnation)
    await network.settle()
    assert [pairs for _, _, _, pairs in core.sessions.resumed] == [b"before", b"since"]


async def test_what_was_said_of_a_slot_long_before_its_row_came_is_asked_for_again(network: Network) -> None:
    """The core was cut off from Redis, so it didn't see its own slots."""
    core, edge = await network.start("core-0", "edge-0")
    await connected(network, edge)
    slot, early, clock = slot_of(ID), core.homes.server._early, [0.0]
    network.tell(core, {slot: "core-1@1"})
    early._now = lambda: clock[0]
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    clock[0] = bounds.EARLY_KEPT_S + 1
    early.sweep(core.homes.server._accepts_notes, core.homes.server.is_linked)
    assert (len(early), core.sessions.resumed) == (0, [])
    network.tell(core, {slot: core.incarnation})
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def test_what_is_said_of_slots_to_a_core_that_is_back_waits_until_its_own_table_says_that_it_has_them(
    network: Network,
) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token, slot = token_of(await connected(network, edge)), slot_of(ID)
    network.rename(core, "core-0@2")
    core.homes.rename(core.incarnation)
    network.tell(edge, {slot: core.incarnation})  # the core's own table is behind
    await network.settle()
    assert core.sessions.resumed == [], "by sessions of its former incarnation"
    for owner in ("core-1@1", core.incarnation):
        network.tell(core, {slot: owner})
    await network.settle()
    assert core.sessions.resumed == [(ID, edge.incarnation, token, b"")]


async def test_of_a_slot_that_was_taken_again_every_node_says_what_it_has(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    await connected(network, edge)
    core.homes.server.retaken(slot_of(ID))
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def registered_in_vain(network: Network, monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """A core, and a node with a client that was purged and tells of it again, for which there is no room."""
    core, edge = await network.start("core-0", "edge-0")
    await connected(network, edge)
    network.purge(edge)
    monkeypatch.setattr(bounds, "REGISTERS_EARLY_MAX", 0)
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    return [core, edge]


async def test_who_finds_no_room_at_slots_that_are_there_is_asked_when_it_is_a_member(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, edge = await registered_in_vain(network, monkeypatch)
    assert core.sessions.resumed == []
    network.members.add(edge.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]


async def test_who_is_missed_and_loses_its_link_is_not_asked(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says all again by itself."""
    core, edge = await registered_in_vain(network, monkeypatch)
    assert core.homes.server._early.missed_slots() == [slot_of(ID)]
    network.cut(core, edge)
    assert core.homes.server._early.missed_slots() == []


async def test_who_leaves_before_its_node_is_a_member_is_not_there_when_it_is(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = token_of(await connected(network, edge))
    network.purge(edge)
    edge.homes.rename(edge.incarnation)  # registers all
    await network.settle()
    edge.clients.let_go(ID, 0)
    await network.settle()
    core.sessions.left.clear()
    network.members.add(edge.incarnation)
    await network.settle()
    assert [client_id for client_id, _, _, _ in core.sessions.resumed] == [ID]
    assert core.sessions.left == [(ID, token, 0, False)], "behind it"


async def test_sweeping_goes_on_whatever_fails(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.sweep_s = 0.0
    core, edge = await network.start("core-0", "edge-0")
    await connected(network, edge)
    sweeps, failures = core.homes.server._early.sweep, [RuntimeError("once")]

    def fails_once(*args: Any) -> None:
        if failures:
            raise failures.pop()
        sweeps(*args)

    monkeypatch.setattr(core.homes.server._early, "sweep", fails_once)
    await network.settle()
    assert not failures
    await network.lose_node(edge)
    for _ in range(2 * bounds.SLOTS // TURNS):
        await network.settle()
    assert len(core.homes.server.registry) == 0


async def test_who_left_before_a_slot_is_loaded_left_before_its_client_is_back(network: Network) -> None:
    former, later, edge = await network.start("core-0", "core-1", "edge-0")
    network.move(range(bounds.SLOTS), former)
    token = token_of(await connected(network, edge))
    later.sessions.loads_at_once = False
    network.move([slot_of(ID)], later)
    await network.settle()
    edge.clients.let_go(ID, 0)
    answers = edge.clients.connect(ID, LASTING)
    await network.settle()
    later.sessions.left.clear()
    opened: list[bool] = []
    later.sessions.on_open = lambda: opened.append((ID, token, 0, False) in later.sessions.left)
    later.sessions.load(slot_of(ID))
    await network.settle()
    assert token_of(answers)
    assert opened == [True]


def roommates(count: int) -> list[bytes]:
    """Client ids of the slot of `ID`."""
    ids = (b"%d" % number for number in range(count * 10 * bounds.SLOTS))
    return list(islice((client_id for client_id in ids if slot_of(client_id) == slot_of(ID)), count))


def fail_for(node: Node, method: str, client_id: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    does = getattr(node.sessions, method)

    def fails_once(asked: bytes | Attach, *rest: Any) -> Any:
        if client_id == (asked.client_id if isinstance(asked, Attach) else asked):
            raise RuntimeError(client_id)
        return does(asked, *rest)

    monkeypatch.setattr(node.sessions, method, fails_once)


WILL = messages.WillRow(0, 4, publication(4, 1, True, b"w", b"gone", b"").packet)
GUEST = messages.Opening(4, True, 0, 32, 0, "default", b"a nonce!", WILL)
"""Of a session that is at its node."""


def published(core: Node) -> list[Publish]:
    wills: list[Publish] = []
    core.homes.server.on_will = lambda left: wills.append(left.will.message)
    return wills


async def guest(network: Network, edge: Node, opening: messages.Opening = GUEST) -> int:
    answers = edge.clients.connect(ID, opening)
    await network.settle()
    return token_of(answers)


async def test_a_home_publishes_the_will_of_a_session_that_died_with_its_node(network: Network) -> None:
    """[MQTT-3.1.2-8]"""
    core, edge = await network.start("core-0", "edge-0")
    wills = published(core)
    token = await guest(network, edge)
    assert core.sessions.opened == [(ID, edge.incarnation, None)], "there is none here"
    await network.settle()
    assert wills == []
    network.purge(edge)
    await network.settle()
    ((topic, payload, origin, author),) = [(one.topic, one.payload(), one.origin, one.author) for one in wills]
    assert (topic, payload) == (b"w", b"gone")
    assert (origin, author) == (will_origin(GUEST.nonce), author_of(ID, token, is_will=True))
    assert (len(core.homes.server.wills), core.homes.server.wills.waiting_bytes) == (0, 0)


async def test_a_home_says_of_whom_a_will_is_and_why_it_may_be(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    lefts: list[PendingWill] = []
    core.homes.server.on_will = lefts.append
    row = msgspec.structs.replace(WILL, authorization=b"why")
    await guest(network, edge, msgspec.structs.replace(GUEST, will=row, user=b"jo"))
    network.purge(edge)
    await network.settle()
    assert [(left.client_id, left.user, left.will.authorization) for left in lefts] == [(ID, b"jo", b"why")]


async def test_the_will_of_who_left_is_its_nodes_affair(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    wills = published(core)
    await guest(network, edge)
    edge.clients.let_go(ID)
    await network.settle()
    network.purge(edge)
    await network.settle()
    assert wills == []


async def test_nodes_tell_the_next_home_which_wills_there_are(network: Network) -> None:
    first, second, edge = await network.start("core-0", "core-1", "edge-0")
    await guest(network, edge)
    home = home_of(network)
    heir = second if home is first else first
    network.move([slot_of(ID)], heir)
    await network.settle()
    assert (len(home.homes.server.wills), len(heir.homes.server.wills)) == (0, 1)
    wills = published(heir)
    network.purge(edge)
    await network.settle()
    assert [will.payload() for will in wills] == [b"gone"]


async def test_a_will_comes_before_its_client_is_let_in_whose_node_is_waited_for_in_vain(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    core.homes.server.kick_wait_s = 0.0
    wills = published(core)
    await guest(network, first)
    first.clients.holds_on = True
    newer = second.clients.connect(ID)
    await network.settle()
    assert token_of(newer)
    assert [will.payload() for will in wills] == [b"gone"]


async def test_a_clean_CONNECT_that_is_asked_for_again_has_no_will_due(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    core.homes.server.kick_wait_s = 0.0
    wills = published(core)
    await guest(network, edge)
    edge.clients.holds_on = True
    again = edge.clients.connect(ID, GUEST)
    await network.settle()
    assert token_of(again)
    assert wills == []


async def test_homes_are_told_of_wills_when_all_nodes_know_that_they_keep_them(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    answers = edge.clients.connect(ID)
    await network.settle()
    edge.clients.openings[token_of(answers)] = GUEST
    edge.homes.client.register_wills()
    await network.settle()
    assert len(core.homes.server.wills) == 1


async def test_wills_that_find_no_room_are_counted(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OWNER_WILLS_MAX", 0)
    core, edge = await network.start("core-0", "edge-0")
    await guest(network, edge)
    assert (len(core.homes.server.wills), core.homes.server.wills.dropped) == (0, 1)


def owned(user: bytes, *, lasts: bool) -> messages.Opening:
    return msgspec.structs.replace(LASTING if lasts else GUEST, will=None, user=user)


@pytest.mark.parametrize("lasts", [True, False])
async def test_another_users_connection_is_refused_and_closes_none(network: Network, lasts: bool) -> None:
    _, first, second = await network.start("core-0", "edge-0", "edge-1")
    held = token_of(await connected(network, first, owned(b"jo", lasts=lasts)))
    (answer,) = await connected(network, second, owned(b"eve", lasts=not lasts))
    assert isinstance(answer, OtherUser)
    assert (first.clients.kicked, first.clients.held) == ([], {ID: held})
    newer = await connected(network, second, owned(b"jo", lasts=lasts))
    assert token_of(newer) > held, "the same user takes it over"


async def test_a_client_id_that_nobody_has_is_anybodys(network: Network) -> None:
    _, edge = await network.start("core-0", "edge-0")
    await connected(network, edge, owned(b"jo", lasts=False))
    edge.clients.let_go(ID)
    assert token_of(await connected(network, edge, owned(b"eve", lasts=False)))


async def test_the_next_home_of_a_slot_knows_whose_its_client_ids_are(network: Network) -> None:
    first, second, edge, other = await network.start("core-0", "core-1", "edge-0", "edge-1")
    await connected(network, edge, owned(b"jo", lasts=False))
    network.move([slot_of(ID)], second if home_of(network) is first else first)
    await network.settle()
    (answer,) = await connected(network, other, owned(b"eve", lasts=False))
    assert isinstance(answer, OtherUser)
    assert edge.clients.kicked == []


async def test_who_was_faster_than_an_older_connection_of_another_user_goes_again(network: Network) -> None:
    """A slot moved, and its new home hears of the older one too late."""
    first, second, edge, other, third = await network.start("core-0", "core-1", "edge-0", "edge-1", "edge-2")
    held = token_of(await connected(network, edge, owned(b"jo", lasts=False)))
    heir = second if home_of(network) is first else first
    network.cut(edge, heir)
    network.move([slot_of(ID)], heir)
    await network.settle()
    other.clients.holds_on = True
    assert token_of(await connected(network, other, owned(b"eve", lasts=False)))
    waiting = await connected(network, third, owned(b"eve", lasts=False))
    assert waiting == []
    network.mend(edge, heir)
    await network.settle()
    assert {client_id for client_id, _ in other.clients.kicked} == {ID}
    assert [type(answer) for answer in waiting] == [OtherUser]
    assert (edge.clients.kicked, edge.clients.held) == ([], {ID: held})


async def test_a_connection_goes_whose_client_id_another_users_session_has(network: Network) -> None:
    first, second, edge = await network.start("core-0", "core-1", "edge-0")
    await connected(network, edge, owned(b"jo", lasts=False))
    heir = second if home_of(network) is first else first
    heir.sessions.users[ID] = b"eve"
    network.move([slot_of(ID)], heir)
    await network.settle()
    assert len(edge.clients.kicked) == 1


@pytest.mark.parametrize("fails", ["own", "disown"])
async def test_a_slot_that_cannot_follow_its_move_keeps_no_other_from_it(
    network: Network, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    one, other = await network.start("core-0", "core-1")
    slots = [slot for slot, owner in enumerate(network.owners) if owner == one.incarnation][:3]
    breaks = other if fails == "own" else one
    right = getattr(breaks.sessions, fails)

    def broken(slot: int) -> None:
        if slot == slots[0]:
            raise ValueError("it can't")
        right(slot)

    monkeypatch.setattr(breaks.sessions, fails, broken)
    network.move(slots, other)
    assert set(slots) & one.sessions.loaded == ({slots[0]} if fails == "disown" else set())
    assert set(slots) & other.sessions.loaded == set(slots) - ({slots[0]} if fails == "own" else set())


# --- clients that their nodes sent to others --------------------------------------------------------------------------


def evict(edge: Node, token: int, opening: messages.Opening) -> None:
    guest = opening if messages.is_clean_session(opening) else None
    del edge.clients.held[ID]
    edge.homes.client.evict(ID, token, opening.expiry_s, opening.nonce, 30.0, guest)


async def test_the_will_of_a_clean_session_that_is_sent_away_is_its_homes_to_hold_back(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    wills = published(core)
    evict(edge, token := await guest(network, edge), GUEST)
    assert edge.homes.client.has_sent_evictions()
    await network.settle()
    ((left, hold_s),) = core.sessions.held
    assert (left.client_id, left.will.message.payload(), hold_s) == (ID, b"gone", pytest.approx(30.0, abs=0.5))
    assert left.will.message.origin == will_origin(GUEST.nonce)
    assert left.will.message.author == author_of(ID, token, is_will=True)
    assert not core.homes.server.is_connected(ID)
    network.purge(edge)
    await network.settle()
    assert wills == [], "it is published once"


async def test_a_session_that_lasts_is_left_with_its_will_held_back(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    evict(edge, token := await guest(network, edge, LASTING), LASTING)
    await network.settle()
    assert core.sessions.left == [(ID, token, 60, True)]
    assert core.sessions.holds == [pytest.approx(30.0, abs=0.5)]
    assert core.sessions.held == []


async def test_who_is_sent_away_and_is_let_in_before_its_home_hears_it_comes_behind_that(network: Network) -> None:
    core, first, second = await network.start("core-0", "edge-0", "edge-1")
    token = await guest(network, first)
    network.holds.add(messages.EVICT)
    evict(first, token, GUEST)
    newer = second.clients.connect(ID, GUEST)
    await network.settle()
    assert core.sessions.held == [], "the kick was answered, and nobody is owed a will"
    assert token_of(newer)
    network.holds.clear()
    await network.settle()
    assert core.sessions.held == [], "it is back"


async def test_the_next_home_is_told_too_who_was_sent_away(network: Network) -> None:
    first, second, edge = await network.start("core-0", "core-1", "edge-0")
    home = home_of(network)
    heir = second if home is first else first
    token = await guest(network, edge)
    network.loses.add(messages.EVICT)
    evict(edge, token, GUEST)
    await network.settle()
    network.loses.clear()
    heir.sessions.loads_at_once = False
    network.move([slot_of(ID)], heir)
    await network.settle()
    assert heir.sessions.held == [], "its sessions aren't there yet"
    heir.sessions.load(slot_of(ID))
    await network.settle()
    assert [left.client_id for left, _ in heir.sessions.held] == [ID]


async def test_without_a_home_nobody_was_told_yet(network: Network) -> None:
    core, edge = await network.start("core-0", "edge-0")
    token = await guest(network, edge)
    network.move([slot_of(ID)], None)
    evict(edge, token, GUEST)
    await network.settle()
    assert not edge.homes.client.has_sent_evictions()
    network.move([slot_of(ID)], core)
    await network.settle()
    assert edge.homes.client.has_sent_evictions()
    assert len(core.sessions.held) == 1
