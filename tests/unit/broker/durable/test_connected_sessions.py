"""Sessions whose connection, node or link is lost: nothing is lost with it, and nothing goes on twice."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.bounds import SINK_CONGESTED_MAX_S
from flockmq.session.limits import Limits
from flockmq.session_rpc import messages
from unit.broker.durable.rooms import (
    EDGE,
    ID,
    SLOT,
    Home,
    opening,
    roommates,
    subscribed,
    will,
)


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
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
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
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
    clients = roommates(8)
    home.open_all(clients, will=will())
    home.residents.node_gone(EDGE)
    await home.pass_turn()
    for token, client_id in enumerate(clients, start=101):
        assert home.open(token, opening(token), client_id, "edge-2@1") == [messages.DURABLE | messages.PRESENT]
    await home.settle()
    assert len(home.published) == len(clients)
    assert not home.residents.sessions.away


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
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)
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
