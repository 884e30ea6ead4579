"""Who is paused for whom, for how long, and that each pause comes back."""

from __future__ import annotations

import pytest

from flockmq.bounds import LAGGING_MAX_S, SINK_CONGESTED_MAX_S, SINK_HELD_MAX_S
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish


@pytest.fixture
def node() -> Node:
    return Node(Limits(max_inflight=1, max_mqueue_len=10))


def congested(node: Node) -> tuple[Client, Client]:
    """A 5.0 subscriber whose queue is so full that its publisher pauses."""
    subscriber, publisher = node.client("s", 5), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    packet_id = 0
    while publisher.paused == 0:
        packet_id += 1
        node.feed(publisher, publish(4, "a", "x", qos=1, packet_id=packet_id))
    return subscriber, publisher


def test_a_client_that_is_gone_holds_nobody(node: Node) -> None:
    subscriber, publisher = congested(node)
    subscriber.lost()
    node.turn()
    assert (publisher.paused, len(node.router.pauses.slow)) == (0, 0)


def test_a_publisher_that_is_gone_is_not_resumed(node: Node) -> None:
    subscriber, publisher = congested(node)
    publisher.lost()
    subscriber.lost()
    node.turn()
    assert publisher.state == CLOSED


def test_a_client_that_reads_steadily_but_too_slowly_holds_its_publishers_for_a_while_only(node: Node) -> None:
    subscriber, publisher = congested(node)
    began_s = node.router.host.now_s
    while subscriber.flow == CONGESTED:
        node.router.host.now_s += SINK_CONGESTED_MAX_S / 2
        assert subscriber.stall is not None
        subscriber.stall.progress_s = node.router.host.now_s
        subscriber.check_progress(node.router.host.now_s)
    assert node.router.host.now_s - began_s == pytest.approx(SINK_HELD_MAX_S, abs=SINK_CONGESTED_MAX_S)
    assert publisher.paused == 0


def test_a_client_that_lags_and_reads_nothing_is_cut_off(node: Node) -> None:
    subscriber, _ = congested(node)
    assert subscriber.check_progress(SINK_CONGESTED_MAX_S + 0.1)
    assert subscriber.flow == LAGGING
    assert subscriber.check_progress(LAGGING_MAX_S)
    assert not subscriber.check_progress(LAGGING_MAX_S + 0.1)
    assert subscriber.close_reason == Reason.QUOTA_EXCEEDED


def test_a_client_that_congests_again_and_again_is_judged_once(node: Node) -> None:
    client = node.client("c")
    for _ in range(10):
        client.congest()
        client.progressed()
    client.congest()
    assert len(node.router.pauses.slow) == 1
    assert client.flow == CONGESTED


def test_a_client_is_not_paused_for_itself(node: Node) -> None:
    """Its acknowledgements come behind its messages: if it were not read, it would never drain."""
    client = node.client("c", 5)
    node.subscribe(client, ("a", 1))
    for packet_id in range(1, 8):
        node.feed(client, publish(5, "a", "x", qos=1, packet_id=packet_id))
    assert client.is_congested()
    assert client.paused == 0


def test_a_choked_client_is_not_read_until_what_waits_drained(node: Node) -> None:
    client = node.client("c")
    client.stuck = True
    client.put(b"\0" * 1024 * 1024)
    client.stop_reading()
    client.stop_reading()
    node.feed(client, encode.PINGREQ * 10)
    assert client.out_bytes == 1024 * 1024
    client.stuck = False
    client.flush()
    client.written = b""
    client.progressed()
    assert client.flow == FLOWING
    node.turn()
    assert client.packets() == [encode.PINGRESP] * 10


def test_a_pause_does_not_count_against_the_keep_alive(node: Node) -> None:
    client = node.client("c", connect=Connect(4, b"c", keep_alive_s=1))
    client.pause()
    node.router.host.now_s = 100.0
    assert not client.overdue(100.0)
    client.unpause()
    assert not client.overdue(101.4)
    assert client.overdue(101.6)


def test_the_time_before_connect_does_not_count_against_the_keep_alive(node: Node) -> None:
    client = node.opened()
    node.router.host.now_s = 10.0
    node.feed(client, encode.connect(Connect(4, b"c", keep_alive_s=1)))
    assert not client.overdue(11.0)


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_its_own_messages_end_gets_nothing_behind_the_end(version: int) -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=2))
    client = node.client("c", version)
    node.subscribe(client, ("a", 1))
    burst = b"".join(publish(version, "a", "x", qos=1, packet_id=number) for number in range(1, 10))
    packets = node.feed(client, burst)
    assert client.state == CLOSED
    acknowledged = [packet for packet in packets if packet[0] == 0x40]
    if version == 5:
        assert packets[-1] == encode.disconnect(5, Reason.QUOTA_EXCEEDED)
    assert len(acknowledged) <= 3, "what it was not given isn't acknowledged"


def test_subscribes_that_wait_for_the_log_are_bounded(node: Node) -> None:
    client = node.client("c")
    node.port.hold = True
    for number in range(100):
        node.subscribe(client, (f"f/{number}", 0))
    assert len(node.port.unanswered) == 64
    for _ in range(100):
        node.port.unanswered.pop(0)(0, False)
        node.turn()
    assert client.paused == 0
    assert len(client.packets()) == 100
    assert client.state == CONNECTED


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_dropped_for_a_lagging_client_is_counted_as_dropped_only(node: Node, version: int) -> None:
    lagging, other, publisher = node.client("l", version), node.client("o"), node.client("p")
    node.subscribe(lagging, ("a", 0))
    node.subscribe(other, ("a", 0))
    lagging.congest()
    lagging.check_progress(node.router.host.now_s + SINK_CONGESTED_MAX_S + 0.1)
    node.feed(publisher, publish(4, "a", "x") * 5)
    assert (len(lagging.packets()), len(other.packets())) == (0, 5)
    assert node.router.counters.messages_sent == 5
    assert node.router.counters.dropped_slow_reader == 5


@pytest.mark.parametrize("qos", [0, 1])
def test_MQTT_3_14_4_1_who_is_disconnected_as_a_groups_member_gets_nothing_more_of_the_message(qos: int) -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=1))
    subscriber = node.client("s", 5)
    node.subscribe(subscriber, ("$share/g/t", 1), ("t", qos))
    for name in ("p", "q", "r"):
        if subscriber.state == CONNECTED:
            node.feed(node.client(name, 5), publish(5, "t", name, qos=1, packet_id=1))
    assert subscriber.packets()[-1] == encode.disconnect(5, Reason.QUOTA_EXCEEDED)


def test_MQTT_3_14_4_1_nor_who_is_disconnected_for_what_another_one_left_to_its_group() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=1))
    members = [node.client(name, 5) for name in ("a", "b")]
    for member in members:
        node.subscribe(member, ("$share/g/u", 1), ("t", 1))
    for number, topic in enumerate(("u", "u", "t", "t")):
        node.feed(node.client(f"p{number}", 5), publish(5, topic, "x", qos=1, packet_id=1))
    for member in members:
        assert member.packets()[-1] == encode.disconnect(5, Reason.QUOTA_EXCEEDED)
