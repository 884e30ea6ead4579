"""The wills of clean sessions: their owner publishes them when their node is gone."""

from __future__ import annotations

import msgspec
import pytest

from flockmq import bounds
from flockmq.mqtt.message import Publish
from flockmq.rlog.retained_order import author_of
from flockmq.routing.slots import slot_of
from flockmq.session_rpc import messages
from flockmq.session_rpc.clean_session_wills import PendingWill, will_origin
from unit.broker.session_rpc.clients import CLEAN_REQUEST, DURABLE_REQUEST, ID, WILL, owner_of, token_of
from unit.broker.session_rpc.network import Network, Node


def published(core: Node) -> list[Publish]:
    wills: list[Publish] = []
    core.rpc.server.on_will = lambda left: wills.append(left.will.message)
    return wills


async def clean_session(network: Network, replicant: Node, request: messages.SessionRequest = CLEAN_REQUEST) -> int:
    answers = replicant.clients.connect(ID, request)
    await network.settle()
    return token_of(answers)


async def test_an_owner_publishes_the_will_of_a_session_that_died_with_its_node(network: Network) -> None:
    """[MQTT-3.1.2-8]"""
    core, replicant = await network.start("core-0", "replicant-0")
    wills = published(core)
    token = await clean_session(network, replicant)
    assert core.sessions.opened == [(ID, replicant.incarnation, None)], "there is none here"
    await network.settle()
    assert wills == []
    network.purge(replicant)
    await network.settle()
    ((topic, payload, origin, author),) = [(one.topic, one.payload(), one.origin, one.author) for one in wills]
    assert (topic, payload) == (b"w", b"gone")
    assert (origin, author) == (will_origin(CLEAN_REQUEST.nonce), author_of(ID, token, is_will=True))
    assert (len(core.rpc.server.wills), core.rpc.server.wills.waiting_bytes) == (0, 0)


async def test_an_owner_says_of_whom_a_will_is_and_why_it_may_be(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    lefts: list[PendingWill] = []
    core.rpc.server.on_will = lefts.append
    row = msgspec.structs.replace(WILL, authorization=b"why")
    await clean_session(network, replicant, msgspec.structs.replace(CLEAN_REQUEST, will=row, user=b"jo"))
    network.purge(replicant)
    await network.settle()
    assert [(left.client_id, left.user, left.will.authorization) for left in lefts] == [(ID, b"jo", b"why")]


async def test_the_will_of_who_left_is_its_nodes_affair(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    wills = published(core)
    await clean_session(network, replicant)
    replicant.clients.let_go(ID)
    await network.settle()
    network.purge(replicant)
    await network.settle()
    assert wills == []


async def test_nodes_tell_the_next_owner_which_wills_there_are(network: Network) -> None:
    first, second, replicant = await network.start("core-0", "core-1", "replicant-0")
    await clean_session(network, replicant)
    owner = owner_of(network)
    next_owner = second if owner is first else first
    network.move([slot_of(ID)], next_owner)
    await network.settle()
    assert (len(owner.rpc.server.wills), len(next_owner.rpc.server.wills)) == (0, 1)
    wills = published(next_owner)
    network.purge(replicant)
    await network.settle()
    assert [will.payload() for will in wills] == [b"gone"]


async def test_a_will_comes_before_its_client_is_let_in_whose_node_is_waited_for_in_vain(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    core.rpc.server.kick_wait_s = 0.0
    wills = published(core)
    await clean_session(network, first)
    first.clients.holds_on = True
    newer = second.clients.connect(ID)
    await network.settle()
    assert token_of(newer)
    assert [will.payload() for will in wills] == [b"gone"]


async def test_a_clean_CONNECT_that_is_asked_for_again_has_no_will_due(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    core.rpc.server.kick_wait_s = 0.0
    wills = published(core)
    await clean_session(network, replicant)
    replicant.clients.holds_on = True
    again = replicant.clients.connect(ID, CLEAN_REQUEST)
    await network.settle()
    assert token_of(again)
    assert wills == []


async def test_owners_are_told_of_wills_when_all_nodes_know_that_they_keep_them(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    answers = replicant.clients.connect(ID)
    await network.settle()
    replicant.clients.requests[token_of(answers)] = CLEAN_REQUEST
    replicant.rpc.client.register_wills()
    await network.settle()
    assert len(core.rpc.server.wills) == 1


async def test_wills_that_find_no_room_are_counted(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OWNER_WILLS_MAX", 0)
    core, replicant = await network.start("core-0", "replicant-0")
    await clean_session(network, replicant)
    assert (len(core.rpc.server.wills), core.rpc.server.wills.dropped) == (0, 1)


async def test_one_users_wills_leave_room_for_others(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    kept = core.rpc.server.wills
    many, other = (msgspec.structs.replace(CLEAN_REQUEST, user=user) for user in (b"many", b"other"))
    kept.keep(b"0", replicant.incarnation, 1, many)
    monkeypatch.setattr(bounds, "OWNER_WILLS_OF_USER_MAX_BYTES", 2 * kept.waiting_bytes)
    for number in range(1, 9):
        kept.keep(b"%d" % number, replicant.incarnation, 1, many)
    kept.keep(b"9", replicant.incarnation, 1, other)
    assert (len(kept), kept.dropped) == (3, 7)
    for number in range(10):
        kept.drop(slot_of(b"%d" % number), 1)
    assert (len(kept), kept.waiting_bytes, kept._bytes_of) == (0, 0, {})


def evict(replicant: Node, token: int, request: messages.SessionRequest) -> None:
    clean_session = request if messages.is_clean_session(request) else None
    del replicant.clients.held[ID]
    replicant.rpc.client.evict(ID, token, request.expiry_s, request.nonce, 30.0, clean_session)


async def test_the_will_of_a_clean_session_that_is_sent_away_is_its_owners_to_hold_back(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    wills = published(core)
    evict(replicant, token := await clean_session(network, replicant), CLEAN_REQUEST)
    assert replicant.rpc.client.has_sent_evictions()
    await network.settle()
    ((left, hold_s),) = core.sessions.held
    assert (left.client_id, left.will.message.payload(), hold_s) == (ID, b"gone", pytest.approx(30.0, abs=0.5))
    assert left.will.message.origin == will_origin(CLEAN_REQUEST.nonce)
    assert left.will.message.author == author_of(ID, token, is_will=True)
    assert not core.rpc.server.is_connected(ID)
    network.purge(replicant)
    await network.settle()
    assert wills == [], "it is published once"


async def test_a_durable_session_is_left_with_its_will_held_back(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    evict(replicant, token := await clean_session(network, replicant, DURABLE_REQUEST), DURABLE_REQUEST)
    await network.settle()
    assert core.sessions.left == [(ID, token, 60, True)]
    assert core.sessions.holds == [pytest.approx(30.0, abs=0.5)]
    assert core.sessions.held == []


async def test_who_is_sent_away_was_let_in_so_what_its_CONNECT_cancelled_stays_cancelled(network: Network) -> None:
    """Else a client that two nodes send away, one after the other, has the will of the first connection published."""
    core, replicant = await network.start("core-0", "replicant-0")
    token = await clean_session(network, replicant)
    del replicant.clients.held[ID]
    replicant.rpc.client.evict(ID, token, -1, CLEAN_REQUEST.nonce, 30.0, CLEAN_REQUEST)
    await network.settle()
    assert core.sessions.left == [(ID, token, 0, False)], "-1 is of one that was refused"
    assert core.sessions.nonces == [CLEAN_REQUEST.nonce]


async def test_who_is_sent_away_and_is_let_in_before_its_owner_hears_it_comes_behind_that(network: Network) -> None:
    core, first, second = await network.start("core-0", "replicant-0", "replicant-1")
    token = await clean_session(network, first)
    core.rpc.server.kick_wait_s = 0.0
    network.holds.add(messages.EVICT)
    evict(first, token, CLEAN_REQUEST)
    newer = second.clients.connect(ID, CLEAN_REQUEST)
    await network.settle()
    assert token_of(newer)
    network.holds.clear()
    await network.settle()
    assert core.sessions.held == [], "it is back"
    assert set(core.sessions.cancelled) == {(ID, will_origin(CLEAN_REQUEST.nonce))}, "for good"


async def test_the_next_owner_is_told_too_who_was_sent_away(network: Network) -> None:
    first, second, replicant = await network.start("core-0", "core-1", "replicant-0")
    owner = owner_of(network)
    next_owner = second if owner is first else first
    token = await clean_session(network, replicant)
    network.loses.add(messages.EVICT)
    evict(replicant, token, CLEAN_REQUEST)
    await network.settle()
    network.loses.clear()
    next_owner.sessions.loads_at_once = False
    network.move([slot_of(ID)], next_owner)
    await network.settle()
    assert next_owner.sessions.held == [], "its sessions aren't there yet"
    next_owner.sessions.load(slot_of(ID))
    await network.settle()
    assert [left.client_id for left, _ in next_owner.sessions.held] == [ID]


async def test_without_an_owner_nobody_was_told_yet(network: Network) -> None:
    core, replicant = await network.start("core-0", "replicant-0")
    token = await clean_session(network, replicant)
    network.move([slot_of(ID)], None)
    evict(replicant, token, CLEAN_REQUEST)
    await network.settle()
    assert not replicant.rpc.client.has_sent_evictions()
    network.move([slot_of(ID)], core)
    await network.settle()
    assert replicant.rpc.client.has_sent_evictions()
    assert len(core.sessions.held) == 1
