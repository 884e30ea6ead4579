"""What waits for a session that lost subscriptions."""

from __future__ import annotations

import pytest

from flockmq.mqtt.message import packet_of, topic_of
from flockmq.session.limits import Limits
from flockmq.session.local_session import LocalSession
from flockmq.session.remove_subscriptions import drop_waiting
from unit.broker.protocol.harness import Client, Node, publish


def waiting(client: Client) -> list[bytes]:
    assert client.session is not None
    return [topic_of(packet_of(entry)) for entry in client.session.queue or ()]


def lost(node: Node, client: Client, *filters: str) -> tuple[int, list[bytes]]:
    session = client.session
    assert isinstance(session, LocalSession)
    names = [filter.encode() for filter in filters]
    for filter in names:
        subscription = session.subscriptions.remove(filter)
        assert subscription is not None
        node.router.remove(subscription)
    dropped, left = drop_waiting(session.queue, session.subscriptions, names, session.take_out)
    return dropped, [entry.share for entry in left]


@pytest.fixture
def node() -> Node:
    return Node(Limits(max_inflight=1))


@pytest.fixture
def client(node: Node) -> Client:
    client = node.client("c", 5)
    node.subscribe(client, ("#", 1))
    node.feed(node.client("p"), publish(4, "under/way", "x", qos=1, packet_id=1))
    node.subscribe(client, ("a/#", 1), ("a/b", 1), ("$share/g/s", 1), ("$share/h/s", 1))
    assert client.session is not None
    node.port.sessions.unsubscribe(client.session, [b"#"])
    return client


def test_what_came_by_them_alone_goes(node: Node, client: Client) -> None:
    publisher = node.client("p2")
    for number, topic in enumerate(("a/b", "a/c", "a/b"), start=1):
        node.feed(publisher, publish(4, topic, "x", qos=1, packet_id=number))
    assert waiting(client) == [b"a/b", b"a/c", b"a/b"]
    assert lost(node, client, "a/#") == (1, [])
    assert waiting(client) == [b"a/b", b"a/b"]
    assert client.session is not None
    assert client.session.queue_bytes == sum(len(packet_of(entry)) for entry in client.session.queue or ())
    assert lost(node, client, "a/b") == (2, [])
    assert waiting(client) == []


def test_what_came_by_a_group_is_for_another_member(node: Node, client: Client) -> None:
    node.feed(node.client("p2"), publish(4, "s", "x", qos=1, packet_id=1))
    assert waiting(client) == [b"s", b"s"]
    assert lost(node, client, "$share/g/s") == (0, [b"$share/g/s"])
    assert waiting(client) == [b"s"]


def test_what_is_under_way_stays(node: Node, client: Client) -> None:
    assert client.session is not None
    assert len(client.session.inflight or ()) == 1
    lost(node, client, "a/#", "a/b")
    assert len(client.session.inflight or ()) == 1
