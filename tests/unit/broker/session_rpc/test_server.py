"""One connection a client id, whatever becomes of links: who is admitted, and who has to go."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from flockmq import bounds
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.messages import Admission, OwnerFull, OwnerUnreachable, Superseded
from unit.broker.session_rpc.clients import DURABLE_REQUEST, ID, connected, token_of
from unit.broker.session_rpc.network import TURNS, Network


async def test_a_newer_connection_is_admitted_when_the_older_is_gone(network: Network) -> None:
    _, _, first, second = await network.start("core-0", "core-1", "replicant-0", "replicant-1")
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
    _, first, second, third = await network.start("core-0", "replicant-0", "replicant-1", "replicant-2")
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
    core, second, third = await network.start("core-0", "replicant-0", "replicant-1")
    if is_loaded:
        core.sessions.answers_late = True
    else:
        core.sessions.loaded.discard(slot_of(ID))
    loser = second.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    winner = third.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    core.sessions.load(slot_of(ID))
    core.sessions.answer()
    await network.settle()
    assert [type(answer) for answer in loser] == [Superseded]
    assert token_of(winner)


async def test_a_session_is_opened_before_its_connection_is_admitted_and_left_when_it_is_gone(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    token = token_of(answers)
    assert answers == [Admission(token, True, False)]
    assert core.sessions.opened == [(ID, replicant.incarnation, DURABLE_REQUEST)]
    replicant.clients.let_go(ID, 7, with_will=True)
    await network.settle()
    assert core.sessions.left == [(ID, token, 7, True)]


async def test_an_owner_hears_which_request_it_was_that_left(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = token_of(await connected(network, replicant))
    replicant.rpc.client.detach(ID, token, 7, nonce=DURABLE_REQUEST.nonce)
    await network.settle()
    assert core.sessions.nonces == [DURABLE_REQUEST.nonce]


async def test_nobody_is_admitted_before_the_sessions_of_the_slot_are_there(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    slot = slot_of(ID)
    core.sessions.loaded.discard(slot)
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert answers == []
    core.sessions.load(slot)
    await network.settle()
    assert isinstance(answers[0], Admission)


async def test_the_clients_of_an_owner_itself_need_no_link(network: Network) -> None:
    (core,) = await network.start("core-0")
    assert token_of(core.clients.connect(ID))
    assert network.said == []


@pytest.mark.parametrize("lost", [messages.ATTACH, messages.ANSWER])
async def test_a_note_that_is_lost_with_its_link_costs_only_time(network: Network, lost: str) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    network.loses.add(lost)
    answers = replicant.clients.connect(ID)
    await network.settle()
    assert answers == []
    network.loses.clear()
    network.cut(core, replicant)
    network.mend(core, replicant)
    await network.settle()
    assert replicant.clients.held == {ID: token_of(answers)}
    assert len(core.rpc.server.registry) == 1


async def test_what_wasnt_sent_yet_when_a_link_was_lost_doesnt_pass_what_is_sent_again(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.rpc.server.deliver(replicant.incarnation, 1, b"new")
    network.cut(core, replicant)
    network.mend(core, replicant)
    core.rpc.server.deliver(replicant.incarnation, 1, b"again")
    await network.settle()
    assert core.sessions.cuts == [replicant.incarnation]
    assert replicant.clients.packets == [(core.incarnation, 1, b"again")]


async def test_without_a_link_an_attach_waits_for_it(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    network.cut(core, replicant)
    answers = replicant.clients.connect(ID)
    await network.settle()
    assert answers == []
    network.mend(core, replicant)
    await network.settle()
    assert token_of(answers)


async def test_without_an_owner_an_attach_ends_in_an_error(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ATTACH_WAIT_S", 0.0)
    core, replicant = await network.start("core-0", "replicant-0")
    network.cut(core, replicant)
    answers = replicant.clients.connect(ID)
    await network.settle()
    assert [type(answer) for answer in answers] == [OwnerUnreachable]


async def test_one_that_is_not_closed_in_time_is_not_waited_for(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    core.rpc.server.kick_wait_s = 0.0
    older = first.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    first.clients.holds_on = True
    newer = second.clients.connect(ID, msgspec.structs.replace(DURABLE_REQUEST, nonce=b"another"))
    await network.settle()
    assert token_of(newer)
    assert core.sessions.left == [(ID, token_of(older), -1, True)], "and its will is due"


async def test_a_CONNECT_that_is_asked_for_again_waits_in_vain_for_itself_and_has_no_will_due(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.rpc.server.kick_wait_s = 0.0
    replicant.clients.holds_on = True
    older = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    again = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert token_of(again)
    assert (ID, token_of(older), -1, False) in core.sessions.left
    assert (ID, token_of(older), -1, True) not in core.sessions.left


async def test_who_asks_again_and_again_waits_no_longer_for_one_that_is_not_closed(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    await connected(network, first)
    first.clients.holds_on = True
    second.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    [waiting] = core.rpc.server._waiting.values()
    core.rpc.server._take_attach(second.incarnation, (99, ID, DURABLE_REQUEST))
    [another] = core.rpc.server._waiting.values()
    assert another is not waiting
    assert another.deadline == waiting.deadline


async def test_one_behind_a_cut_link_is_not_waited_for_and_goes_when_it_is_back(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    core.rpc.server.kick_unlinked_s = 0.0
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


@pytest.mark.parametrize("is_purged", [False, True])
async def test_MQTT_3_1_4_3_one_behind_a_cut_link_goes_though_the_newer_one_has_ended(
    network: Network, is_purged: bool
) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    core.rpc.server.kick_unlinked_s = 0.0
    first.clients.connect(ID)
    await network.settle()
    network.cut(core, first)
    if is_purged:
        network.purge(first)
    second.clients.connect(ID)
    await network.settle()
    second.clients.let_go(ID)
    await network.settle()
    if is_purged:
        network.rename(first, "replicant-0@2")
    network.mend(core, first)
    await network.settle()
    assert not first.clients.held
    assert len(core.rpc.server.registry) == core.rpc.server.registry.unconfirmed_ends() == 0


async def test_a_kick_that_is_lost_with_its_link_is_said_again_when_the_connection_registers(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    older = token_of(await connected(network, first))
    network.loses.add(messages.KICK)
    newer = second.clients.connect(ID, DURABLE_REQUEST)
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
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    first.clients.connect(ID)
    await network.settle()
    first.clients.holds_on = True
    newer = second.clients.connect(ID)
    await network.settle()
    await network.lose_node(first)
    await network.settle()
    assert token_of(newer)
    assert core.sessions.gone == [first.incarnation]


async def test_who_would_wait_for_a_store_that_is_full_is_refused_and_holds_nothing(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.sessions.full = True
    answers = replicant.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert [type(answer) for answer in answers] == [OwnerFull]
    assert len(core.rpc.server.registry) == 0
    core.sessions.full = False
    assert isinstance((await connected(network, replicant))[0], Admission)


@pytest.mark.parametrize("bound", ["ATTACHES_MAX", "ATTACHES_MAX_BYTES"])
async def test_attaches_that_wait_at_their_owner_for_its_sessions_are_bounded(
    network: Network, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    core.sessions.loaded.clear()
    waits = first.clients.connect(b"1", DURABLE_REQUEST)
    await network.settle()
    monkeypatch.setattr(bounds, bound, 1)
    core.rpc.server._take_attach(second.incarnation, (1, b"2", DURABLE_REQUEST))
    assert len(core.rpc.server.registry) == 1
    core.sessions.load(slot_of(b"1"))
    await network.settle()
    assert token_of(waits)
    core.rpc.server._take_attach(second.incarnation, (2, b"2", DURABLE_REQUEST))
    assert len(core.rpc.server.registry) == 2, "there is room again"


async def test_an_owner_that_may_have_been_purged_admits_nobody(network: Network) -> None:
    core, replicant, other = await network.start("core-0", "replicant-0", "replicant-1")
    older = replicant.clients.connect(ID)
    await network.settle()
    core.member.fencing.is_confirmed_member = False
    newer = other.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    assert newer == []
    assert replicant.clients.kicked == []
    core.member.fencing.is_confirmed_member = True
    await network.settle()
    assert token_of(newer) > token_of(older)


async def test_who_waited_at_an_owner_that_may_have_been_purged_since_is_not_admitted_by_it(network: Network) -> None:
    core, replicant, other = await network.start("core-0", "replicant-0", "replicant-1")
    replicant.clients.connect(ID)
    await network.settle()
    replicant.clients.holds_on = True
    newer = other.clients.connect(ID, DURABLE_REQUEST)
    await network.settle()
    core.member.fencing.is_confirmed_member = False
    replicant.clients.let_go(ID)
    await network.settle()
    assert newer == []
    assert core.sessions.opened == [(ID, replicant.incarnation, None)]
    core.member.fencing.is_confirmed_member = True
    await network.settle()
    assert token_of(newer)
    assert core.sessions.opened[1:] == [(ID, other.incarnation, DURABLE_REQUEST)]


async def test_sweeping_goes_on_whatever_fails(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    network.sweep_s = 0.0
    core, replicant = await network.start("core-0", "replicant-0")
    await connected(network, replicant)
    sweeps, failures = core.rpc.server._early.sweep, [RuntimeError("once")]

    def fails_once(*args: Any) -> None:
        if failures:
            raise failures.pop()
        sweeps(*args)

    monkeypatch.setattr(core.rpc.server._early, "sweep", fails_once)
    await network.settle()
    assert not failures
    await network.lose_node(replicant)
    for _ in range(2 * bounds.SLOTS // TURNS):
        await network.settle()
    assert len(core.rpc.server.registry) == 0
