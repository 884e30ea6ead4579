"""SUBACK tells the truth, whatever else the client asked for meanwhile."""

from __future__ import annotations

from flockmq.bounds import CLIENT_FILTERS_MAX_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Node, publish


def test_a_late_refusal_leaves_a_later_subscription_of_the_filter_alone() -> None:
    node = Node()
    client, publisher = node.client("c", 5), node.client("p")
    node.port.hold = True
    node.subscribe(client, ("a", 0))
    node.subscribe(client, ("a", 1))
    first, second = node.port.unanswered
    first(Reason.UNSPECIFIED_ERROR, False)
    second(Reason.SUCCESS, False)
    node.turn()
    assert [packet[-1] for packet in client.packets()] == [Reason.UNSPECIFIED_ERROR, 1]
    node.feed(publisher, publish(4, "a", "x"))
    assert len(client.packets()) == 1


def test_a_filter_twice_in_one_packet_is_one_subscription() -> None:
    node = Node()
    client, publisher = node.client("c"), node.client("p")
    assert node.subscribe(client, ("a", 0), ("a", 1)) == [b"\x90\x04\x00\x01\x00\x01"]
    node.feed(publisher, publish(4, "a", "x"))
    assert len(client.packets()) == 1
    assert node.router.counters.subscriptions == 1
    client.lost()
    assert len(node.router.local) == 0


def test_a_shape_whose_last_subscription_is_gone_makes_room_for_another() -> None:
    node = Node(Limits(max_wildcard_shapes=2))
    client = node.client("s", 5)
    node.subscribe(client, ("keep", 0))
    for number in range(4):
        filter = "a/" * number + "+"
        assert node.subscribe(client, (filter, 0)) == [encode.suback(5, 1, [0])]
        node.feed(client, encode.unsubscribe(5, 2, [filter.encode()]))
    node.subscribe(client, ("+", 0), ("+", 1), ("b/+", 0), ("c/+", 0))
    assert node.subscribe(client, ("a/b/+", 0)) == [encode.suback(5, 1, [Reason.QUOTA_EXCEEDED])]
    node.feed(client, encode.unsubscribe(5, 2, [b"b/+"]))
    assert node.subscribe(client, ("d/+", 0), ("a/b/+", 0)) == [encode.suback(5, 1, [0, Reason.QUOTA_EXCEEDED])]


def test_one_clients_filters_have_so_many_bytes_at_most() -> None:
    node = Node()
    client, other = node.client("c", 5), node.client("o", 5)
    long = [f"{number}/{'x' * 60_000}" for number in range(CLIENT_FILTERS_MAX_BYTES // 60_000 + 1)]
    answers = [node.subscribe(client, (filter, 1))[0][-1] for filter in long]
    first = answers.index(Reason.QUOTA_EXCEEDED)
    assert set(answers[:first]) == {1}
    assert first * 60_000 > CLIENT_FILTERS_MAX_BYTES - 65_535
    assert node.subscribe(client, (long[0], 0))[0][-1] == 0, "the same filter again is no more"
    assert node.subscribe(other, (long[-1], 1))[0][-1] == 1
    node.feed(client, encode.unsubscribe(5, 9, [long[0].encode()]))
    client.packets()
    assert node.subscribe(client, (long[-1], 1))[0][-1] == 1
