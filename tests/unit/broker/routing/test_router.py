"""What is cached is what the indexes would answer, and what is kept is bounded."""

from __future__ import annotations

import pytest

from flockmq.bounds import HEADS_PER_TOPIC_MAX, MATCH_CACHE_MAX_TOPIC_BYTES
from unit.broker.protocol.harness import Node, publish


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [4, 5])
def test_a_topic_too_long_for_the_cache_follows_the_subscriptions(version: int, qos: int) -> None:
    node = Node()
    subscriber, publisher = node.client("s", version), node.client("p", version)
    topic = "x/" + "y" * MATCH_CACHE_MAX_TOPIC_BYTES
    packet = publish(version, topic, "1", qos=qos, packet_id=qos)
    node.feed(publisher, packet)
    node.subscribe(subscriber, ("x/#", 1))
    node.feed(publisher, packet)
    assert subscriber.packets() == [packet]
    subscriber.lost()
    node.turn()
    node.feed(publisher, packet)
    assert subscriber.packets() == []


def test_topics_with_the_same_subscribers_share_a_fan_out() -> None:
    node = Node()
    node.subscribe(node.client("s"), ("x/+", 0))
    assert node.router.route(b"x/1").fanout is node.router.route(b"x/2").fanout


def test_a_change_of_filters_makes_a_new_fan_out() -> None:
    node = Node()
    node.subscribe(node.client("s"), ("x/+", 0))
    older = node.router.route(b"x/1").fanout
    node.subscribe(node.client("t"), ("x/1", 0))
    assert node.router.route(b"x/1").fanout is not older
    assert len(node.router.route(b"x/1").fanout.deliveries) == 2
    assert len(node.router.route(b"x/2").fanout.deliveries) == 1


def test_a_full_cache_forgets_the_oldest_topic_and_messages_go_on() -> None:
    node = Node()
    matches = node.router.matches
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("#", 0))
    packets = [publish(4, "t/old", "x" * size) for size in range(HEADS_PER_TOPIC_MAX)]
    node.feed(publisher, b"".join(packets))
    matches.max_bytes = matches.size_bytes
    node.feed(publisher, publish(4, "t/new", "x"))
    assert not node.router.knows(b"t/old")
    assert len(matches.heads4) == 1
    matches.clear()
    node.feed(publisher, b"".join(packets))
    assert len(matches.heads4) == HEADS_PER_TOPIC_MAX, "the topic's heads are recognised again"
    assert len(subscriber.packets()) == 2 * HEADS_PER_TOPIC_MAX + 1
