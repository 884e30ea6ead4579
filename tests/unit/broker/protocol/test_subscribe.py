"""SUBSCRIBE and UNSUBSCRIBE: SUBACK tells the truth, and what a subscription does to messages."""

from __future__ import annotations

import pytest

from flockmq.bounds import CLIENT_FILTERS_MAX_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.packets import NO_LOCAL, SubscribeEntry
from flockmq.mqtt.properties import Properties
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


def test_while_a_node_has_no_memory_for_more_filters_only_those_are_granted_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    client = node.client("c", 5)
    node.subscribe(client, ("a", 0))
    monkeypatch.setattr(node.port, "takes_filters", lambda: False)
    assert node.subscribe(client, ("a", 1), ("b", 0)) == [encode.suback(5, 1, [1, Reason.QUOTA_EXCEEDED])]


def test_one_client_has_so_many_shared_subscriptions_at_most() -> None:
    node = Node(Limits(max_shared_subscriptions=1))
    client, other = node.client("c", 5), node.client("o", 5)
    shared, another = "$share/g/a", "$share/g/b"
    assert node.subscribe(client, (shared, 0), ("a", 0)) == [encode.suback(5, 1, [0, 0])]
    assert node.subscribe(client, (another, 0), (shared, 1)) == [encode.suback(5, 1, [Reason.QUOTA_EXCEEDED, 1])]
    assert node.subscribe(other, (another, 0)) == [encode.suback(5, 1, [0])]
    node.feed(client, encode.unsubscribe(5, 2, [shared.encode()]))
    assert node.subscribe(client, (another, 0)) == [encode.suback(5, 1, [0])]


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


def test_MQTT_3_8_4_3_a_subscription_replaces_one_with_the_same_filter(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.subscribe(subscriber, ("a", 0))
    node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=3))
    assert subscriber.packets() == [publish(4, "a", "x")]
    assert node.router.counters.subscriptions == 1


def test_MQTT_3_3_5_1_overlapping_subscriptions_deliver_once_with_the_highest_qos(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a/#", 0), ("a/+", 2), ("a/b", 1))
    node.feed(publisher, publish(4, "a/b", "x", qos=2, packet_id=3))
    assert subscriber.packets() == [publish(4, "a/b", "x", qos=2, packet_id=3)]


def test_suback_waits_until_the_cluster_routes(node: Node) -> None:
    subscriber = node.client("s")
    node.port.hold = True
    assert node.subscribe(subscriber, ("a", 1), ("b", 0)) == []
    (routed,) = node.port.unanswered
    assert node.port.routing == [b"a", b"b"]
    routed(0, False)
    node.turn()
    assert subscriber.packets() == [b"\x90\x04\x00\x01\x01\x00"]


def test_a_filter_that_the_cluster_refuses_is_gone_and_its_code_says_why(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.port.hold = True
    node.subscribe(subscriber, ("a", 1))
    node.port.unanswered[0](Reason.QUOTA_EXCEEDED, False)
    node.turn()
    assert subscriber.packets() == [encode.suback(5, 1, [Reason.QUOTA_EXCEEDED])]
    node.feed(publisher, publish(4, "a", "x"))
    assert subscriber.packets() == []


def test_shared_subscriptions_are_refused_where_the_zone_has_none() -> None:
    node = Node(Limits(shared_subscription=False))
    answer = node.subscribe(node.client("s", 5), ("$share/g/a", 1))
    assert answer == [encode.suback(5, 1, [Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED])]


def test_unsubscribe_says_what_existed_and_drops_the_route(node: Node) -> None:
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("a", 1))
    answer = node.feed(subscriber, encode.unsubscribe(5, 2, [b"a", b"b"]))
    assert answer == [encode.unsuback(5, 2, [Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED])]
    assert node.port.dropped == [b"a"]


def test_a_route_stays_while_another_client_needs_it(node: Node) -> None:
    one, other = node.client("1"), node.client("2")
    for client in (one, other):
        node.subscribe(client, ("a", 1))
    node.feed(one, encode.unsubscribe(4, 2, [b"a"]))
    assert node.port.dropped == []
    other.lost()
    assert node.port.dropped == [b"a"]


def test_no_local_keeps_a_clients_own_messages_away(node: Node) -> None:
    one, other = node.client("1", 5), node.client("2", 5)
    for client in (one, other):
        node.subscribe(client, ("a", 0x04))
    node.feed(one, publish(5, "a", "x"))
    assert one.packets() == []
    assert other.packets() == [publish(5, "a", "x")]


def test_retain_as_published_keeps_the_flag(node: Node) -> None:
    as_published, plain, publisher = node.client("1", 5), node.client("2", 5), node.client("p", 5)
    node.subscribe(as_published, ("a", 0x08))
    node.subscribe(plain, ("a", 0))
    node.feed(publisher, publish(5, "a", "x", retain=True))
    assert as_published.packets() == [publish(5, "a", "x", retain=True)]
    assert plain.packets() == [publish(5, "a", "x")]


def test_MQTT_3_3_4_3_the_identifiers_of_all_matching_subscriptions_are_sent(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 4)
    for filter, identifier in (("a/+", 1), ("a/b", 2)):
        own = Properties()
        own.subscription_identifier = identifier
        node.feed(subscriber, encode.subscribe(5, 1, [SubscribeEntry(filter.encode(), 0)], own))
    node.feed(publisher, publish(4, "a/b", "x"))
    (packet,) = subscriber.packets()
    assert packet == encode.publish(5, b"a/b", b"x", encoded_properties=b"\x0b\x02\x0b\x01")


def test_retained_messages_are_sent_by_retain_handling(node: Node) -> None:
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("always", 0x00), ("if-new", 0x10), ("never", 0x20))
    assert [held.filter for held in node.port.given] == [b"always", b"if-new"]
    node.port.given.clear()
    node.subscribe(subscriber, ("always", 0x00), ("if-new", 0x10), ("never", 0x20))
    assert [held.filter for held in node.port.given] == [b"always"]


@pytest.mark.parametrize(
    ("handling", "reasons", "order", "given"),
    [
        ((0x10, 0x10), (Reason.UNSPECIFIED_ERROR, 0), (0, 1), [1]),
        ((0x10, 0x10), (0, 0), (0, 1), [0]),
        ((0x10, 0x10), (0, 0), (1, 0), [1]),
        ((0x10, 0x10), (Reason.UNSPECIFIED_ERROR, 0), (1, 0), [1]),
        ((0x10, 0x10), (0, Reason.UNSPECIFIED_ERROR), (0, 1), [0]),
        ((0x10, 0x20), (Reason.UNSPECIFIED_ERROR, 0), (0, 1), []),
        ((0x20, 0x10), (Reason.UNSPECIFIED_ERROR, 0), (0, 1), [1]),
        ((0x20, 0x10), (0, 0), (0, 1), []),
        ((0x00, 0x10), (Reason.UNSPECIFIED_ERROR, 0), (0, 1), [1]),
    ],
)
def test_MQTT_3_3_1_10_of_two_subscribes_under_way_the_first_that_is_granted_gets_retained_messages(
    node: Node, handling: tuple[int, int], reasons: tuple[int, int], order: tuple[int, int], given: list[int]
) -> None:
    """`given`: after the answers to which of them."""
    subscriber = node.client("s", 5)
    node.port.hold = True
    for options in handling:
        node.subscribe(subscriber, ("a", options))
    routed, got = node.port.unanswered, []
    for number in order:
        routed[number](reasons[number], False)
        got += [number] * len(node.port.given)
        node.port.given.clear()
    assert got == given


def test_who_unsubscribes_while_a_subscribe_is_under_way_gets_retained_messages_for_the_next_one(node: Node) -> None:
    subscriber = node.client("s", 5)
    node.port.hold = True
    node.subscribe(subscriber, ("a", 0x10))
    node.feed(subscriber, encode.unsubscribe(5, 2, [b"a"]))
    node.subscribe(subscriber, ("a", 0x10))
    first, second = node.port.unanswered
    first(0, False)
    node.port.given.clear()
    second(0, False)
    assert [held.filter for held in node.port.given] == [b"a"]


def test_what_follows_a_retained_message_waits_for_it(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    answer = node.feed(
        publisher, publish(4, "a", "1", qos=1, packet_id=1, retain=True) + publish(4, "a", "2", qos=1, packet_id=2)
    )
    assert answer == []
    assert subscriber.packets() == []
    node.port.inbound[0].logged(0)
    node.turn()
    assert publisher.packets() == [b"\x40\x02\x00\x01", b"\x40\x02\x00\x02"]
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1", b"2"]


def test_a_retained_message_that_the_log_refuses_is_not_delivered(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p", 5)
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "1", qos=1, packet_id=1, retain=True))
    node.port.inbound[0].logged(Reason.QUOTA_EXCEEDED)
    node.turn()
    assert publisher.packets() == [b"\x40\x03\x00\x01\x97"]
    assert subscriber.packets() == []


@pytest.mark.parametrize("qos", [0, 2])
@pytest.mark.parametrize("order", [1, -1])
def test_MQTT_3_8_3_3_beside_no_local_its_own_messages_come_by_the_other_subscription_alone(
    node: Node, order: int, qos: int
) -> None:
    client, another = node.client("c", 5), node.client("d", 5)
    identified = [("a/+", NO_LOCAL | 2, 1), ("a/#", 1, 2), ("+/b", NO_LOCAL | 0, 3)][::order]
    for filter, options, identifier in identified:
        own = Properties()
        own.subscription_identifier = identifier
        node.feed(client, encode.subscribe(5, 1, [SubscribeEntry(filter.encode(), options)], own))
    packet = publish(5, "a/b", "x", qos=qos, packet_id=1 if qos else 0)
    alone = encode.publish(5, b"a/b", b"x", qos=min(qos, 1), packet_id=1, encoded_properties=b"\x0b\x02")
    assert [answer for answer in node.feed(client, packet) if answer[0] >> 4 == 3] == [alone]
    client.feed(b"\x40\x02\0\1")
    node.feed(another, packet)
    (received,) = client.packets()
    assert received[0] >> 1 & 3 == qos
    assert sum(received.count(b"\x0b" + bytes((identifier,))) for _, _, identifier in identified) == 3
