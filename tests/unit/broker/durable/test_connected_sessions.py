"""Sessions whose connection, node or link is lost: nothing is lost with it, and nothing goes on twice."""

from __future__ import annotations

import asyncio

import pytest

from flockmq import bounds
from flockmq.bounds import SINK_CONGESTED_MAX_S
from flockmq.session.limits import Limits
from flockmq.session_rpc import messages
from unit.broker.durable.rooms import (
    ID,
    REPLICANT,
    SLOT,
    Owner,
    clients_of_slot,
    request,
    subscribed,
    will,
)
from unit.broker.protocol.harness import publish


async def test_the_will_of_a_connection_that_went_with_its_node_is_published(owner: Owner) -> None:
    owner.open(1, request(will=will()))
    owner.service.node_gone("other@1")
    owner.service.tick()
    assert owner.published == []
    owner.service.node_gone(REPLICANT)
    await owner.settle()
    assert [message.topic for message in owner.published] == [b"w"]
    assert len(owner.published[0].origin) == 16


async def test_the_connections_of_a_node_that_is_gone_leave_some_a_turn(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(8)
    owner.open_all(clients, will=will())
    owner.service.node_gone(REPLICANT)
    away = [0]
    while away[-1] < len(clients):
        await owner.pass_turn()
        away.append(len(owner.service.sessions.away))
    assert away == list(range(len(clients) + 1))
    assert len(owner.published) == len(clients)


async def test_a_node_that_was_purged_and_is_back_before_its_connections_left_keeps_them(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscribed(owner)
    owner.service.node_gone(REPLICANT)
    owner.nodes[0] = again = "replicant-0@2"
    assert owner.service.resume(ID, again, 1, request(1), b"")
    await owner.settle()
    owner.delivered.clear()
    owner.take(1)
    await owner.settle()
    assert [incarnation for incarnation, _, _ in owner.delivered] == [again]
    owner.service.node_gone(again)
    await owner.settle()
    assert list(owner.service.sessions.away) == [ID]


async def test_who_comes_back_before_its_connection_left_with_its_node_has_its_session_and_its_will_is_published(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(8)
    owner.open_all(clients, will=will())
    owner.service.node_gone(REPLICANT)
    await owner.pass_turn()
    for token, client_id in enumerate(clients, start=101):
        assert owner.open(token, request(token), client_id, "replicant-2@1") == [messages.DURABLE | messages.PRESENT]
    await owner.settle()
    assert len(owner.published) == len(clients)
    assert not owner.service.sessions.away


async def test_a_connection_that_takes_no_more_is_cut_off_and_its_session_stays(owner: Owner) -> None:
    await overflows(owner)
    await owner.settle()
    assert owner.overflown == [(REPLICANT, ID, 1)]
    assert ID in owner.service.sessions.away


async def test_a_connection_that_was_cut_off_and_did_not_hear_so_does_not_go_on(owner: Owner) -> None:
    """It misses the message that found no room."""
    await overflows(owner)
    await owner.settle()
    assert not owner.service.resume(ID, REPLICANT, 1, request(1), b"")
    owner.service.leave(ID, 1, 60, True)
    assert owner.open(2, request(2)) == [messages.DURABLE | messages.PRESENT]
    assert owner.service.resume(ID, REPLICANT, 2, request(2), b"")
    assert not owner.service._cut_off


async def test_a_client_that_comes_back_to_a_full_queue_is_admitted_however_much_comes_meanwhile(owner: Owner) -> None:
    await overflows(owner)
    owner.service.leave(ID, 1, 60, True)
    await owner.settle()
    owner.disk.holds = True
    answers = owner.open(2, request(2))
    owner.take(5_000)
    await owner.commit()
    assert answers == [messages.DURABLE | messages.PRESENT]


async def test_a_connection_of_the_owner_itself_that_is_cut_off_is_gone_at_once(owner: Owner) -> None:
    await overflows(owner, owner.incarnation)
    await owner.settle()
    assert owner.overflown == [(owner.incarnation, ID, 1)]
    assert not owner.service._cut_off


@pytest.mark.parametrize("goes", ["away", "for good", "elsewhere"])
async def test_who_was_cut_off_is_forgotten_with_its_connection_or_its_session(owner: Owner, goes: str) -> None:
    await overflows(owner)
    await owner.settle()
    assert list(owner.service._cut_off) == [ID]
    if goes == "away":
        owner.service.leave(ID, 1, 60, True)
    elif goes == "elsewhere":
        owner.service.disown(SLOT)
    else:
        sessions = owner.service.sessions
        sessions.end(sessions.by_id[ID])
        owner.service.tick()
    await owner.settle()
    assert not owner.service._cut_off


async def overflows(owner: Owner, node: str = REPLICANT) -> None:
    """It reads nothing, for as long as publishers are paused for it."""
    owner.open(1, request(1), node=node)
    owner.subscribe(1)
    limit = Limits().max_mqueue_len + Limits().max_inflight
    for first in range(1, limit, 100):
        owner.take(*range(first, first + 100))
    await owner.settle()
    assert owner.overflown == []
    owner.router.host.now_s += SINK_CONGESTED_MAX_S + 0.1
    owner.service.congestion.tick(owner.router.host.now_s)
    owner.take(*range(limit + 100, limit + 200))


async def test_what_was_lost_on_its_way_to_a_session_proxy_goes_again(owner: Owner) -> None:
    owner.service.connected.behind_s = 0.0
    subscribed(owner)
    owner.linked = False
    owner.service.cut(REPLICANT)
    owner.take(1)
    await owner.settle()
    assert owner.packets() == [], "nothing goes there before all of it does"
    owner.linked = True
    await owner.settle()
    assert owner.payloads() == [b"1"]


async def test_nothing_that_is_put_in_the_same_turn_passes_what_goes_again(owner: Owner) -> None:
    owner.service.connected.behind_s = 0.0
    subscribed(owner)
    owner.take(1)
    await owner.settle()
    owner.packets()
    owner.service.cut(REPLICANT)
    session = owner.service.connected.of(1)
    assert session is not None
    session.sink.put(publish(4, "a/b", "2", qos=1, packet_id=2))
    for _ in range(10):
        await asyncio.sleep(0)
    assert owner.payloads() == [b"1"]


async def test_what_was_lost_on_its_way_to_many_goes_again_some_a_turn(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner.service.connected.behind_s = 0.0
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = clients_of_slot(8)
    owner.open_all(clients)
    for token, client_id in enumerate(clients, start=1):
        owner.service.ask(
            client_id,
            token,
            (1, 0),
            messages.SubscribeQuestion([messages.WantedSubscription(b"a/#", 1)], b""),
            lambda _: None,
        )
    owner.service.cut(REPLICANT)
    owner.take(1)
    sent = []
    while sum(sent) < len(clients):
        await owner.pass_turn()
        sent.append(len(owner.packets()))
    assert max(sent) == 1


async def test_a_connection_that_was_held_for_gone_gets_what_waits_when_it_is_durable_that_it_is_there(
    owner: Owner,
) -> None:
    """Or the next owner would not know that it was sent, after a crash."""
    subscribed(owner)
    owner.service.node_gone(REPLICANT)
    await owner.settle()
    owner.take(1)
    owner.disk.holds = True
    assert owner.service.resume(ID, REPLICANT, 1, request(1), b"")
    await owner.settle()
    assert owner.packets() == []
    await owner.commit()
    assert owner.payloads() == [b"1"]


async def test_nothing_goes_again_before_its_connection_is_admitted(owner: Owner) -> None:
    owner.service.connected.behind_s = 0.0
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.take(1)
    owner.disk.holds = True
    answers = owner.open(2, request(2))
    owner.service.cut(REPLICANT)
    await owner.settle()
    assert (answers, owner.packets()) == ([], [])
    await owner.commit()
    await owner.settle()
    assert len(answers) == 1
    assert owner.payloads() == [b"1"]


async def test_MQTT_4_6_0_6_QoS_0_passes_nothing_that_waited_while_its_connection_is_admitted(owner: Owner) -> None:
    """What is sent before that may come behind it all the same: what is answered overtakes it on the link."""
    subscribed(owner)
    owner.service.leave(ID, 1, -1, False)
    owner.take_run("old")
    owner.disk.holds = True
    answers = owner.open(2, request(2))
    owner.take_run("new")
    assert (answers, owner.packets()) == ([], [])
    await owner.commit()
    assert len(answers) == 1
    owner.take_run("newer")
    assert owner.payloads_of_run() == [b"old", b"new", b"newer"]


async def test_a_link_that_is_found_lost_after_its_session_proxy_had_said_so_holds_nothing_back(owner: Owner) -> None:
    owner.service.connected.behind_s = 0.0
    subscribed(owner)
    assert owner.service.resume(ID, REPLICANT, 1, request(), b"")
    owner.service.cut(REPLICANT)
    owner.take(1)
    await owner.settle()
    assert owner.payloads() == [b"1"]


async def test_QoS_0_goes_on_to_who_was_there_and_may_have_missed_something(owner: Owner) -> None:
    subscribed(owner)
    owner.take_run("1")
    owner.service.cut(REPLICANT)
    assert owner.service.resume(ID, REPLICANT, 1, request(1), b"")
    owner.packets()
    owner.take_run("2")
    assert owner.payloads_of_run() == [b"2"]
