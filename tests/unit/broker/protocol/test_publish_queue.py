"""Messages that wait keep their order, are bounded, and are acknowledged as soon as they may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq import compiled_modules
from flockmq.bounds import INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.client import ALLOWED, ASKED
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.routing.message_id import origin_of, session_source
from unit.broker.protocol.forwarded import OtherNode, acks, asking, decide, message, other
from unit.broker.protocol.harness import Node, publish, remote

HAS_GARBAGE_COLLECTION = 1 << 14
"""Py_TPFLAGS_HAVE_GC"""


def test_a_message_is_acknowledged_when_every_node_that_wants_it_has_accepted_it(node: Node) -> None:
    one, two, publisher = other(node, b"a"), other(node, b"#"), node.client("p")
    node.feed(publisher, message(1))
    one.waiting[0]()
    node.turn()
    assert acks(publisher) == []
    two.waiting[0]()
    assert node.port.flushes == 1, "acceptance comes between turns: nobody else would write the PUBACK"
    node.turn()
    assert acks(publisher) == [1]


def test_acknowledgements_keep_the_order_of_messages(node: Node) -> None:
    peer, publisher = other(node, b"a"), node.client("p")
    node.feed(publisher, message(1) + message(2) + message(3))
    peer.waiting[2]()
    peer.waiting[1]()
    node.turn()
    assert acks(publisher) == []
    peer.waiting[0]()
    node.turn()
    assert acks(publisher) == [1, 2, 3]
    assert publisher.publish_queue is None


def test_a_peer_that_answers_at_once_is_not_waited_for(node: Node) -> None:
    class Gone(OtherNode):
        def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
            on_accepted()
            return True

    publisher = node.client("p")
    node.router.remote.add(b"a", Gone())
    node.router.changed(b"a")
    assert node.feed(publisher, message(1)) == [b"\x40\x02\x00\x01"]
    assert publisher.publish_queue is None


def test_a_link_without_room_refuses_to_a_5_0_client_and_ends_a_3_1_1_client(node: Node) -> None:
    other(node, b"a").has_room = False
    subscriber, new, old = node.client("s"), node.client("n", 5), node.client("o")
    node.subscribe(subscriber, ("a", 1))
    assert node.feed(new, publish(5, "a", "x", qos=1, packet_id=1)) == [b"\x40\x03\x00\x01\x97"]
    assert node.feed(old, message(1)) == []
    assert old.state == CLOSED
    assert subscriber.packets() == []


def test_what_a_lost_client_published_goes_on(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    node.feed(publisher, message(1, retain=True) + message(2))
    publisher.lost()
    node.turn()
    node.port.inbound[0].logged(Reason.SUCCESS)
    node.turn()
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1", b"2"]
    assert publisher.packets() == []


def test_of_who_was_taken_over_nothing_comes_at_qos_0_behind_what_its_next_connection_publishes(node: Node) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    node.feed(publisher, message(1, retain=True) + message(2, qos=0) + message(3) + message(4, qos=0, retain=True))
    publisher.close(Reason.SESSION_TAKEN_OVER)
    node.turn()
    for inbound in node.port.inbound:
        inbound.logged(Reason.SUCCESS)
    node.turn()
    assert [packet[-1:] for packet in subscriber.packets()] == [b"1", b"3", b"4"]
    assert node.router.counters.dropped_left == 1


def test_of_who_was_taken_over_nothing_comes_at_qos_0_where_what_it_waits_for_ends_with_its_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber, publisher = node.client("s"), node.client("p")
    node.subscribe(subscriber, ("a", 1))
    node.port.hold = True
    node.feed(publisher, message(1, retain=True) + message(2, qos=0))
    monkeypatch.setattr(node.port, "gone", lambda *_: node.port.inbound[0].logged(Reason.UNSPECIFIED_ERROR))
    publisher.close(Reason.SESSION_TAKEN_OVER)
    node.turn()
    assert subscriber.packets() == []
    assert node.router.counters.dropped_left == 1


def test_a_qos_2_repeat_of_a_message_that_waits_is_not_acknowledged_early(node: Node) -> None:
    peer, publisher = other(node, b"a"), node.client("p")
    assert node.feed(publisher, message(7, qos=2) * 2) == []
    peer.waiting[0]()
    node.turn()
    assert publisher.packets() == [b"\x50\x02\x00\x07"]
    assert node.feed(publisher, message(7, qos=2)) == [b"\x50\x02\x00\x07"]
    assert len(peer.taken) == 1


@pytest.mark.parametrize("payload_bytes", [0, 100_000])
def test_the_line_is_bounded_in_messages_and_bytes(node: Node, payload_bytes: int) -> None:
    peer, publisher = other(node, b"a"), node.client("p")
    packet = publish(4, "a", "x" * payload_bytes, qos=1, packet_id=1)
    most = min(INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES // len(packet) + 1)
    for _ in range(2 * most):
        node.feed(publisher, packet)
    assert len(peer.waiting) == most
    answered = 0
    while answered < len(peer.waiting):
        peer.waiting[answered]()
        answered += 1
        node.turn()
    assert answered == 2 * most
    assert (publisher.paused, publisher.publish_queue) == (0, None)
    assert len(publisher.packets()) == answered


def test_a_link_without_room_keeps_a_message_from_no_other_node(node: Node) -> None:
    full, other_node, publisher = other(node, b"a"), other(node, b"#"), node.client("p", 5)
    full.has_room = False
    answer = node.feed(publisher, publish(5, "a", "1", qos=1, packet_id=1))
    assert answer == [b"\x40\x03\x00\x01\x97"]
    assert len(other_node.taken) == 1
    other_node.waiting[0]()
    node.turn()
    assert publisher.packets() == []


def test_the_log_gets_messages_in_their_order_whatever_is_permitted_first(node: Node) -> None:
    publisher = asking(node)
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "1", retain=True) + publish(5, "a", "2", retain=True))
    decide(node, 1)
    assert node.port.inbound == []
    decide(node, 0)
    assert [inbound.message.payload() for inbound in node.port.inbound] == [b"1", b"2"]


def test_what_must_not_be_asked_about_is_not_logged_before_what_must(node: Node) -> None:
    publisher = asking(node)
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "1", retain=True) + publish(5, "b", "2", retain=True))
    assert node.port.inbound == []
    decide(node, 0, allowed=False)
    assert [inbound.message.payload() for inbound in node.port.inbound] == [b"2"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_log_gets_messages_in_their_order_whatever_their_owner_has_to_remember_first(node: Node, qos: int) -> None:
    """Or the older one would be what is retained."""
    publisher = node.client("p")
    remote(publisher)
    node.port.hold = True
    node.feed(publisher, message(1, qos=2, retain=True) + message(2, qos=qos, retain=True))
    first, *others = node.port.inbound
    for inbound in others:
        inbound.remembered()
    assert len(node.port.inbound) == (2 if qos == 2 else 1), "none of them is logged"
    node.port.inbound.clear()
    first.remembered()
    assert [inbound.message.payload() for inbound in node.port.inbound] == [b"1", b"2"]


def test_what_is_to_be_logged_is_not_where_an_earlier_one_is_refused(node: Node) -> None:
    """Its client sends both again."""
    publisher = node.client("p")
    remote(publisher)
    node.port.hold = True
    node.feed(publisher, message(1, qos=2, retain=True) + message(2, qos=1, retain=True))
    (first,) = node.port.inbound
    publisher.lost()
    first.logged(Reason.UNSPECIFIED_ERROR)
    assert node.port.inbound == [first]
    assert publisher.publish_queue is None


def test_a_client_whose_messages_are_replaced_by_smaller_ones_is_read_again(node: Node) -> None:
    publisher = asking(node)
    node.router.intercept([b"a"])
    node.port.replaces = lambda message: publication(5, 0, False, b"a", b"", b"")
    node.feed(publisher, publish(5, "a", "x" * 1_000_000) * 5)
    assert publisher.paused == 1, "the line is full"
    for number in range(5):
        decide(node, number)
    assert (publisher.paused, publisher.publish_queue) == (0, None)


def expiring(left_s: int, retain: bool = False) -> bytes:
    encoded = b"\x02" + left_s.to_bytes(4, "big")
    return encode.publish(5, b"a", b"x", qos=1, packet_id=1, retain=retain, encoded_properties=encoded)


@pytest.mark.parametrize("waited_s", [4, 10])
@pytest.mark.parametrize("awaited", ["authorization", "log", "tables"])
def test_MQTT_3_3_2_6_what_waits_here_expires(node: Node, awaited: str, waited_s: int) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("a", 1))
    router, port = node.router, node.port
    if awaited == "authorization":
        publisher.set_must_authorize(True)
        port.verdicts[b"a"] = ASKED
    port.hold, router.stale = awaited == "log", awaited == "tables"
    assert node.feed(publisher, expiring(10, retain=awaited == "log")) == []
    router.host.now_s += waited_s
    if awaited == "authorization":
        port.asked[-1][2](ALLOWED)
    elif awaited == "log":
        port.inbound.pop().logged(Reason.SUCCESS)
    else:
        router.stale = False
        router.resume_held(1)
    node.turn()
    assert subscriber.packets() == ([expiring(10 - waited_s)] if waited_s < 10 else [])
    assert publisher.packets() == [b"\x40\x02\x00\x01"]
    assert router.counters.dropped_expired == (waited_s == 10)


@pytest.mark.parametrize("waited_s", [4, 10])
def test_MQTT_3_3_2_6_what_waits_before_it_is_retained_is_retained_for_less(node: Node, waited_s: int) -> None:
    publisher = node.client("p", 5)
    publisher.set_must_authorize(True)
    node.port.verdicts[b"a"], node.port.hold = ASKED, True
    node.feed(publisher, expiring(10, retain=True))
    node.router.host.now_s += waited_s
    node.port.asked[-1][2](ALLOWED)
    node.turn()
    assert [pending.message.expiry_s for pending in node.port.inbound] == ([6] if waited_s < 10 else [])
    assert publisher.packets() == ([] if waited_s < 10 else [b"\x40\x02\x00\x01"])


def test_what_has_waited_keeps_to_whom_it_was_dealt_out(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("a", 2))
    remote(publisher)
    node.port.hold = True
    publish_qos2 = encode.publish(5, b"a", b"x", qos=2, packet_id=1, encoded_properties=b"\x02\0\0\0\x0a")
    node.feed(publisher, publish_qos2)
    pending = node.port.inbound.pop()
    pending.message.origin, pending.message.deals = origin_of(session_source(b"8 bytes."), 1), b"deals"
    node.router.host.now_s += 3
    pending.remembered()
    assert pending.message.expiry_s == 7
    assert (pending.message.origin[-1], pending.message.deals) == (1, b"deals")


def test_the_garbage_collector_visits_nothing_of_what_waits_where_it_is_compiled() -> None:
    """There may be hundreds of thousands: a full collection would stop the node for a tenth of a second."""
    for kind in (PendingPublish, Publish):
        is_visited = bool(kind.__flags__ & HAS_GARBAGE_COLLECTION)
        assert is_visited != compiled_modules.is_compiled(kind.__module__)
