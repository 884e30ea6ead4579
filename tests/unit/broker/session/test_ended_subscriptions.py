"""Of a session that ended nothing is left, but its many filters go one slice after the other."""

from __future__ import annotations

import pytest

from flockmq import bounds
from flockmq.bounds import ENDED_FILTERS_A_STEP, ENDED_FILTERS_AT_ONCE
from flockmq.clock import SYSTEM
from flockmq.session.ended_subscriptions import EndedSubscriptions
from flockmq.session.local_session import LocalSession
from flockmq.time_slices import TimeSlices
from unit.broker.protocol.harness import Client, Node, publish

MANY = 3 * ENDED_FILTERS_A_STEP


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(bounds, "SLOT_WORK_MAX_S", 0.0)  # one step an iteration
    return Node()


def subscribed(node: Node, name: str, count: int, *others: str) -> Client:
    client = node.client(name)
    node.subscribe(client, *((filter, 1) for filter in (*others, *(f"many/{at}/+" for at in range(count)))))
    return client


def iterate(node: Node) -> None:
    soon = node.soon.copy()
    node.soon.clear()
    for call in soon:
        call()


def count(node: Node) -> int:
    return node.router.counters.subscriptions


def waiting(node: Node) -> int:
    return node.port.sessions.ended.waiting


def test_a_few_filters_are_removed_at_once(node: Node) -> None:
    subscribed(node, "c", ENDED_FILTERS_AT_ONCE).lost()
    assert (count(node), len(node.router.local), node.soon) == (0, 0, [])
    assert len(node.port.dropped) == ENDED_FILTERS_AT_ONCE


def test_many_are_removed_some_in_each_iteration(node: Node) -> None:
    subscribed(node, "c", MANY).lost()
    for left in range(MANY, 0, -ENDED_FILTERS_A_STEP):
        assert (count(node), len(node.router.local), waiting(node)) == (left, left, left)
        assert len(node.port.dropped) == MANY - left, "the route of one that waits stays"
        iterate(node)
    assert (count(node), waiting(node)) == (0, 0)
    assert len(node.port.dropped) == MANY
    iterate(node)
    assert node.soon == []


def test_who_ended_gets_nothing_though_its_filters_wait(node: Node) -> None:
    publisher, other = node.client("p"), node.client("other")
    client = subscribed(node, "c", MANY)
    node.subscribe(other, ("many/7/x", 1))
    node.feed(publisher, publish(4, "many/7/x", "before"))
    assert len(client.packets()) == len(other.packets()) == 1
    client.lost()
    node.turn()
    for qos in (0, 1):
        node.feed(publisher, publish(4, "many/7/x", "after", qos=qos, packet_id=qos))
        assert len(other.packets()) == 1
    assert (client.packets(), client.out_bytes) == ([], 0)
    assert node.router.counters.messages_sent == 4


def test_a_shared_group_has_no_member_that_ended(node: Node) -> None:
    subscribed(node, "c", MANY, "$share/g/t").lost()
    assert waiting(node) == MANY
    assert not node.router.shared.groups
    assert node.port.dropped == [b"$share/g/t"]


def test_who_comes_back_at_once_keeps_its_filters(node: Node) -> None:
    subscribed(node, "c", MANY).lost()
    iterate(node)
    back = subscribed(node, "c", MANY)
    while node.soon:
        iterate(node)
    assert (count(node), len(node.router.local)) == (MANY, MANY)
    assert len(node.port.dropped) == ENDED_FILTERS_A_STEP, "what was removed before it was back, and has a route again"
    for at in (0, MANY - 1):
        node.feed(node.client(f"p{at}"), publish(4, f"many/{at}/x", "x"))
        assert len(back.packets()) == 1


def test_beyond_the_bound_a_sessions_filters_are_removed_at_once(node: Node) -> None:
    ended = EndedSubscriptions(node.router, TimeSlices(node.soon.append, SYSTEM), MANY)
    sessions = [subscribed(node, name, MANY).session for name in ("a", "b")]
    for session in sessions:
        assert isinstance(session, LocalSession)
        ended.take(session, node.port.dropped.extend)
    assert (ended.waiting, count(node)) == (MANY, MANY)
    while node.soon:
        iterate(node)
    assert (ended.waiting, count(node)) == (0, 0)
