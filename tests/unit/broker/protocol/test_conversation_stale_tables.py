"""While the node's tables may be old, nothing of QoS ≥ 1 is matched by them; all else goes on."""

from __future__ import annotations

import pytest

from flockmq.bounds import HELD_MAX_BYTES, INBOUND_BYTES, INBOUND_LINE_MAX
from flockmq.mqtt.packets import Connect
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish


@pytest.fixture
def node() -> Node:
    node = Node()
    node.router.stale = True
    return node


def message(number: int, qos: int = 1, topic: str = "a", retain: bool = False) -> bytes:
    return publish(4, topic, str(number), qos=qos, packet_id=number if qos else 0, retain=retain)


def answers(client: Client) -> list[tuple[int, int]]:
    """(packet type, packet id) of acknowledgements."""
    return [(packet[0], packet[3]) for packet in client.packets()]


def log(node: Node, publisher: Client, packet: bytes) -> None:
    """What is retained: the log has it, and nobody was sent it."""
    node.port.hold = True
    node.feed(publisher, packet)
    node.port.inbound[0].logged(0)


def freshen(node: Node, at_once: int = 100) -> bool:
    node.router.stale = False
    more = node.router.resume_held(at_once)
    node.turn()
    return more


@pytest.mark.parametrize(("qos", "answer"), [(1, 0x40), (2, 0x50)])
def test_a_message_waits_and_then_reaches_who_subscribed_meanwhile(node: Node, qos: int, answer: int) -> None:
    publisher, subscriber = node.client("p"), node.client("s")
    assert node.feed(publisher, message(1, qos)) == []
    node.subscribe(subscriber, ("a", 0))
    assert not freshen(node)
    assert answers(publisher) == [(answer, 1)]
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1"]


def test_known_heads_leave_the_fast_path_too(node: Node) -> None:
    publisher, subscriber = node.client("p"), node.client("s")
    node.subscribe(subscriber, ("a", 1))
    node.router.stale = False
    node.feed(publisher, message(1))
    subscriber.packets()
    node.router.stale = True
    assert node.feed(publisher, message(2) + message(3)) == []
    assert subscriber.packets() == []
    freshen(node)
    assert answers(publisher) == [(0x40, 2), (0x40, 3)]
    assert [packet[-1:] for packet in subscriber.packets()] == [b"2", b"3"]
    assert [packet[:2] for packet in node.feed(publisher, message(4))] == [b"\x40\x02"]


def test_qos_0_goes_on_at_once_but_for_what_comes_behind_a_message_that_waits(node: Node) -> None:
    publisher, other, subscriber = node.client("p"), node.client("o"), node.client("s")
    node.subscribe(subscriber, ("a", 0))
    node.feed(other, message(1, qos=0))
    node.feed(publisher, message(2) + message(3, qos=0))
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1"]
    freshen(node)
    assert [packet[-1:] for packet in subscriber.packets()] == [b"2", b"3"]


def test_a_retained_message_is_logged_at_once_and_matched_later(node: Node) -> None:
    publisher, subscriber = node.client("p"), node.client("s")
    log(node, publisher, message(1, retain=True))
    node.turn()
    assert publisher.packets() == []
    node.subscribe(subscriber, ("a", 0))
    freshen(node)
    assert answers(publisher) == [(0x40, 1)]


def test_a_client_is_read_no_further_than_the_bound_allows(node: Node) -> None:
    publisher = node.client("p")
    node.feed(publisher, b"".join(message(1 + number % 200) for number in range(INBOUND_LINE_MAX + 5)))
    assert publisher.paused
    freshen(node)
    assert not publisher.paused
    assert len(answers(publisher)) == INBOUND_LINE_MAX + 5


def test_clients_go_on_in_their_order_some_at_a_time_and_wait_again_if_the_tables_are_stale_again(node: Node) -> None:
    publishers = [node.client(f"p{number}") for number in range(5)]
    for publisher in publishers:
        node.feed(publisher, message(1))
    assert freshen(node, at_once=2)
    node.router.stale = True
    assert not node.router.resume_held(100)
    assert [len(answers(publisher)) for publisher in publishers] == [1, 1, 0, 0, 0]
    assert not freshen(node)
    assert [len(answers(publisher)) for publisher in publishers] == [0, 0, 1, 1, 1]


def test_a_message_counts_even_if_its_client_is_gone_by_then(node: Node) -> None:
    publisher, subscriber = node.client("p"), node.client("s")
    node.feed(publisher, message(1))
    publisher.lost()
    node.subscribe(subscriber, ("a", 0))
    freshen(node)
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1"]


LARGE = "x" * 1_000_000
HALF = HELD_MAX_BYTES // 2 // len(LARGE)
"""So many such messages are about half of what may wait."""


def large(number: int, qos: int = 1, topic: str = "a", retain: bool = False) -> bytes:
    return publish(4, topic, f"{number} {LARGE}", qos=qos, packet_id=number, retain=retain)


def numbers(client: Client) -> list[int]:
    """Of the messages that came."""
    return [int(packet[7:20].partition(b" ")[0]) for packet in client.packets()]


def test_of_what_clients_left_behind_the_oldest_goes_when_too_much_waits(node: Node) -> None:
    subscriber, router = node.client("s"), node.router
    node.subscribe(subscriber, ("a", 0))
    for number in range(1, 2 * HALF):
        publisher = node.client(f"p{number}")
        node.feed(publisher, large(number))
        publisher.lost()
        assert router.held.bytes <= HELD_MAX_BYTES // 2
    left = len(router.held.queues)
    assert HALF - 2 <= left <= HALF
    assert router.counters.dropped_left == 2 * HALF - 1 - left
    came = []
    while freshen(node, at_once=1):
        came += numbers(subscriber)
    assert came + numbers(subscriber) == list(range(2 * HALF - left, 2 * HALF))
    assert (router.held.bytes, len(router.held.left)) == (0, 0)


def test_clients_are_not_read_when_much_waits_and_cut_off_when_too_much_does(node: Node) -> None:
    publishers = [node.client(f"p{number}") for number in range(HALF + 10)]
    for publisher in publishers:
        node.feed(publisher, large(1))
    assert not publishers[HALF - 10].paused
    assert publishers[-1].paused
    for publisher in publishers:
        publisher.paused = 0
        node.feed(publisher, large(2))
    assert publishers[-1].has_ended()
    assert not publishers[0].has_ended()
    assert node.router.held.bytes <= HELD_MAX_BYTES
    freshen(node)
    assert answers(publishers[0]) == [(0x40, 1), (0x40, 2)]
    assert not publishers[0].queue_paused


def test_who_is_cut_off_by_what_another_had_waiting_holds_up_nobody() -> None:
    """What it had waiting itself is given up, because much waits."""
    node = Node(Limits(max_inflight=1, max_mqueue_len=1))
    node.router.stale = True
    publisher, subscriber = node.client("p"), node.client("s")
    node.subscribe(subscriber, ("a", 1))
    node.feed(publisher, message(1) + message(2) + message(3))
    node.feed(subscriber, large(1, topic="b"))
    others = [node.client(f"p{number}") for number in range(HALF + 1)]
    for other in others:
        node.feed(other, large(1, topic="b"))
    freshen(node)
    assert subscriber.has_ended()
    assert node.router.counters.dropped_left == 1
    assert [answers(other) for other in others] == [[(0x40, 1)]] * len(others)
    assert node.router.held.bytes == 0


def test_messages_count_for_more_than_their_bytes(node: Node) -> None:
    publisher = node.client("p")
    node.feed(publisher, message(1))
    node.feed(publisher, message(2, qos=0))
    assert node.router.held.bytes == 2 * INBOUND_BYTES + len(message(1)) + len(message(2, qos=0))


def test_qos_0_behind_a_message_that_is_given_up_is_delivered(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("b", 0))
    node.feed(publisher, large(1) + publish(4, "b", "7 ", qos=0))
    publisher.lost()
    for number in range(HALF + 1):
        node.feed(node.client(f"p{number}"), large(1))
    assert [packet[-2:] for packet in subscriber.packets()] == [b"7 "]
    assert node.router.counters.dropped_left == 1


def test_a_message_of_qos_2_that_was_given_up_may_come_again(node: Node) -> None:
    durable = Connect(4, b"p", clean_start=False)
    publisher, subscriber = node.client("p", connect=durable), node.client("s")
    node.subscribe(subscriber, ("a", 0))
    node.feed(publisher, large(1, qos=2))
    publisher.lost()
    for number in range(HALF + 1):
        node.feed(node.client(f"p{number}"), large(2, topic="b"))
    again = node.client("p", connect=durable)
    node.feed(again, large(1, qos=2))
    freshen(node)
    assert (0x50, 1) in answers(again)
    assert numbers(subscriber) == [1]


def test_what_the_log_has_is_given_up_by_nobody(node: Node) -> None:
    """Whoever subscribes is sent it, so whoever has subscribed is to be, too."""
    subscriber, publisher = node.client("s"), node.client("p")
    log(node, publisher, large(1, retain=True))
    publisher.lost()
    for number in range(HALF + 1):
        node.feed(node.client(f"p{number}"), large(2, topic="b"))
    node.port.hold = False
    node.subscribe(subscriber, ("a", 0))
    freshen(node)
    assert numbers(subscriber) == [1]
