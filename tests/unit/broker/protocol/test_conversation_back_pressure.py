"""A subscriber that doesn't keep up pauses its publishers, and for a while only."""

from __future__ import annotations

from flockmq.bounds import PARTIAL_COUNTED_BYTES, RECEIVERS_PER_READ_MAX, SHARED_GROUP_RECEIVERS
from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.client import Principal
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish


def congested(node: Node, subscriber: Client, publisher: Client) -> None:
    """Fill the subscriber's queue until its publishers pause."""
    packet_id = 1
    while publisher.paused == 0:
        node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=packet_id))
        packet_id += 1


def test_a_congested_subscriber_pauses_its_publisher_until_it_acknowledges() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    congested(node, subscriber, publisher)
    acknowledged = 0
    waiting = subscriber.packets()
    while publisher.paused:
        assert waiting, "the publisher stays paused"
        waiting = node.feed(subscriber, b"\x40\x02" + waiting[0][5:7])
        acknowledged += 1
    assert acknowledged == 1


def test_a_subscriber_that_makes_no_progress_holds_its_publisher_for_a_while_only() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    congested(node, subscriber, publisher)
    (slow,) = node.router.pauses.slow
    assert slow.check_progress(node.router.host.now_s + 0.4)
    assert publisher.paused == 1
    assert slow.check_progress(node.router.host.now_s + 0.6)
    assert publisher.paused == 0
    assert node.router.counters.slow_readers == 1


def test_a_session_without_room_ends_rather_than_missing_a_message() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=10))
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("a", 1))
    for i in range(12):
        node.feed(node.client(f"p{i}"), publish(4, "a", "x", qos=1, packet_id=1))
    assert subscriber.packets()[-1] == encode.disconnect(5, Reason.QUOTA_EXCEEDED)
    assert subscriber.state == CLOSED


def test_a_publisher_whose_messages_have_very_many_receivers_rests_between_two() -> None:
    node = Node()
    member, publisher, other = node.client("m"), node.client("p"), node.client("o")
    for group in range(RECEIVERS_PER_READ_MAX // SHARED_GROUP_RECEIVERS + 1):
        node.subscribe(member, (f"$share/{group}/many/#", 0))
    node.feed(publisher, b"".join(publish(4, f"many/{number}", "x") for number in range(3)))
    received = [node.router.counters.messages_received]
    node.feed(other, publish(4, "quiet", "x"))
    resting = node.router.pauses.resting
    while resting:
        assert list(resting) == [publisher]
        resting.popleft().unpause()
        node.feed(publisher, b"")
        received.append(node.router.counters.messages_received)
    assert received == [1, 3, 4]
    assert publisher.paused == 0


def test_packets_that_never_become_whole_end_the_connections_of_their_user_alone() -> None:
    node = Node()
    node.router.partials.max_bytes = 8 * PARTIAL_COUNTED_BYTES
    packet = publish(5, "a", "x" * 4 * PARTIAL_COUNTED_BYTES, qos=1, packet_id=1)
    many = [node.client(f"many-{number}", 5) for number in range(8)]
    other = node.client("other", 5)
    other.principal = Principal(b"other")
    node.feed(other, packet[: 2 * PARTIAL_COUNTED_BYTES])
    for client in many:
        client.principal = Principal(b"many")
        node.feed(client, packet[:PARTIAL_COUNTED_BYTES])
    assert [client.state == CLOSED for client in many] == [True] * 2 + [False] * 6, "the first ones"
    assert many[0].close_reason == Reason.QUOTA_EXCEEDED
    assert node.feed(other, packet[2 * PARTIAL_COUNTED_BYTES :]), "it is acknowledged"
    assert node.router.partials.bytes == 6 * PARTIAL_COUNTED_BYTES
