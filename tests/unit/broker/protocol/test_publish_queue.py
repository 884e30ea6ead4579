"""Messages that wait keep their order, are bounded, and are acknowledged as soon as they may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq import compiled_modules
from flockmq.bounds import INBOUND_LINE_MAX, INBOUND_LINE_MAX_BYTES
from flockmq.mqtt import encode
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.client import ALLOWED, ASKED
from flockmq.protocol.pending_publish import PendingPublish
from flockmq.protocol.publish_queue import queue_of
from flockmq.rlog.schema import SharedMembers
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routing.message_id import origin_of, session_source
from flockmq.routing.targets import NodeTarget
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish, remote

HAS_GARBAGE_COLLECTION = 1 << 14
"""Py_TPFLAGS_HAVE_GC"""


class OtherNode(NodeTarget):
    """Takes what is forwarded; accepts when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bytes] = []
        self.waiting: list[Callable[[], None]] = []
        self.has_room = True
        self.takes_once = False

    def put_run(self, version: int, chunk: bytes) -> None:
        self.taken.append(chunk)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        if not self.has_room:
            return False
        self.has_room = not self.takes_once
        self.taken.append(packet)
        self.waiting.append(on_accepted)
        return True

    def put_logged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> None:
        self.taken.append(packet)
        self.waiting.append(on_accepted)

    def takes(self, packet_bytes: int) -> bool:
        return self.has_room

    def flush(self) -> None:
        pass


def other(node: Node, filter: bytes) -> OtherNode:
    peer = OtherNode()
    node.router.remote.add(filter, peer)
    node.router.changed(filter)
    return peer


def message(number: int, qos: int = 1, retain: bool = False) -> bytes:
    return publish(4, "a", str(number), qos=qos, packet_id=number if qos else 0, retain=retain)


def acks(client: Client) -> list[int]:
    return [packet[3] for packet in client.packets()]


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


def asking(node: Node, version: int = 5) -> Client:
    """A client whose every message to `a` is asked about."""
    node.port.verdicts = {b"a": ASKED}
    publisher = node.client("p", version)
    publisher.set_must_authorize(True)
    return publisher


def decide(node: Node, number: int, allowed: bool = True) -> None:
    node.port.asked[number][2](allowed)
    node.turn()


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


def of_session(number: int) -> bytes:
    return origin_of(session_source(bytes(8)), number)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("origin", [of_session(10), b""])
def test_behind_a_refused_message_whose_client_is_gone_none_is_delivered(
    node: Node, version: int, origin: bytes
) -> None:
    """Subscribers take none below the last number that they took, and the client sends the refused one again, which may
    have had its number, and nobody here heard of it."""
    peer, publisher = other(node, b"a"), node.client("p", version)
    node.port.hold = True
    packets = [publish(version, "a", str(number), qos=2, packet_id=number, retain=True) for number in (1, 2, 3)]
    node.feed(publisher, b"".join(packets))
    first, second, third = node.port.inbound
    first.message.origin, second.message.origin, third.message.origin = origin, of_session(11), of_session(12)
    publisher.lost()
    second.logged(Reason.SUCCESS)
    first.logged(Reason.UNSPECIFIED_ERROR)
    third.logged(Reason.SUCCESS)
    assert peer.taken == []


def test_what_has_an_origin_is_for_all_or_for_nobody(node: Node) -> None:
    """It is refused, and may come again under another origin."""
    full, other_node, publisher = other(node, b"a"), other(node, b"#"), node.client("p", 5)
    full.has_room = False
    assert with_origin(node, publisher) == [b"\x50\x03\x00\x01\x97"]
    assert other_node.taken == []


def test_a_refused_QoS_2_message_is_for_nobody_where_its_session_is_clean(node: Node) -> None:
    """Its client may publish it again."""
    full, other_node = other(node, b"a"), other(node, b"#")
    subscriber, publisher = node.client("s"), node.client("p", 5)
    node.subscribe(subscriber, ("a", 2))
    full.has_room = False
    assert node.feed(publisher, publish(5, "a", "1", qos=2, packet_id=1)) == [b"\x50\x03\x00\x01\x97"]
    assert (other_node.taken, subscriber.packets()) == ([], [])


def group_of(node: Node, *peers: OtherNode) -> None:
    """A shared subscription of the topic with a member on each of these nodes."""
    names = {f"{number}@0": peer for number, peer in enumerate(peers)}
    node.router.shared.find_peer = names.get
    shares = RemoteSharedMembers(node.router, "me@0")
    shares.go_live()
    for name in names:
        shares.put((b"$share/g/a", name), SharedMembers(1, 0), None)


def named(message: Publish) -> Publish:
    message.origin = of_session(10)
    return message


def with_origin(node: Node, publisher: Client, packet_id: int = 1) -> list[bytes]:
    """Publish a QoS 2 message with an id. Returns what its client hears."""
    node.router.intercept([b"a"])
    node.port.replaces = named
    return node.feed(publisher, publish(5, "a", "1", qos=2, packet_id=packet_id))


def test_what_has_an_origin_is_for_nobody_where_a_group_has_no_room(node: Node) -> None:
    subscriber, full, publisher = other(node, b"#"), OtherNode(), node.client("p", 5)
    group_of(node, full)
    full.has_room = False
    assert with_origin(node, publisher) == [b"\x50\x03\x00\x01\x97"]
    assert subscriber.taken == []


def test_what_has_an_origin_goes_to_whoever_of_a_group_has_room(node: Node) -> None:
    subscriber, publisher = other(node, b"#"), node.client("p", 5)
    full, roomy = OtherNode(), OtherNode()
    group_of(node, full, roomy)
    full.has_room = False
    with_origin(node, publisher)
    assert [len(peer.taken) for peer in (subscriber, full, roomy)] == [1, 0, 1]


def test_members_without_room_are_cut_off_for_what_nobody_else_has_room_for() -> None:
    node = Node(Limits(max_inflight=1, max_mqueue_len=1))
    subscriber, publisher = other(node, b"#"), node.client("p", 5)
    members = [node.client(f"m{number}") for number in range(2)]
    for member in members:
        node.subscribe(member, ("$share/g/a", 1))
    for number in range(1, 5):
        node.feed(node.client(f"fills{number}"), message(number))
    with_origin(node, publisher)
    assert len(subscriber.taken) == 5
    assert [member.has_ended() for member in members] == [True, True], "what one leaves has no room at the other"


def test_what_a_group_has_no_room_for_any_more_when_others_have_it_is_acknowledged_when_it_has(node: Node) -> None:
    """The message itself may fill a link, behind which the group's member is."""
    link, publisher, refused = other(node, b"#"), node.client("p", 5), list[Callable[[], None]]()
    group_of(node, link)
    node.router.shared.on_refused = lambda _group, _message, accepted: refused.append(accepted)
    link.takes_once = True
    assert with_origin(node, publisher) == []
    link.waiting[0]()
    node.turn()
    assert (len(link.taken), publisher.packets()) == (1, [])
    refused[0]()
    node.turn()
    assert publisher.packets() == [b"\x50\x02\x00\x01"]


def test_a_qos_2_message_refused_to_who_is_gone_may_be_sent_again(node: Node) -> None:
    durable = Connect(4, b"p", clean_start=False)
    node.port.hold = True
    publisher = node.client("p", connect=durable)
    node.feed(publisher, message(7, qos=2, retain=True))
    publisher.lost()
    node.port.inbound[0].logged(Reason.QUOTA_EXCEEDED)
    back = node.client("p", connect=durable)
    assert node.feed(back, publish(4, "a", "7", qos=2, packet_id=7, retain=True, dup=True)) == []
    node.port.inbound[1].logged(Reason.SUCCESS)
    node.turn()
    assert back.packets() == [b"\x50\x02\x00\x07"]


def test_behind_what_is_refused_and_not_told_yet_nothing_is_delivered(node: Node) -> None:
    """Its client may be gone before it is told, and send it again: behind what was delivered since."""
    link, publisher = other(node, b"#"), node.client("p", 5)
    node.feed(publisher, publish(5, "a", "0", qos=1, packet_id=9))
    link.has_room = False
    with_origin(node, publisher)
    link.has_room = True
    with_origin(node, publisher, 2)
    assert len(link.taken) == 1
    queue = queue_of(publisher)
    assert queue is not None
    _, *refused = queue._delivered
    assert [each.session for each in refused] == [None, None], "each is forgotten before anything else is delivered"
    link.waiting[0]()
    node.turn()
    assert [packet[-1] for packet in publisher.packets()] == [9, 0x97, 0x97]
    with_origin(node, publisher, 3)
    assert len(link.taken) == 2, "who was told is told in order"


def test_what_is_in_the_log_is_delivered_though_a_later_one_was_refused_meanwhile(node: Node) -> None:
    """It is retained: refused, it would have had an effect."""
    link, publisher = other(node, b"#"), node.client("p", 5)
    remote(publisher)
    node.port.hold = True
    of_qos_1 = publish(5, "a", "1", qos=1, packet_id=1, retain=True)
    node.feed(publisher, of_qos_1 + publish(5, "a", "2", qos=2, packet_id=2, retain=True))
    logged, refused = node.port.inbound
    refused.message.origin = of_session(10)
    link.has_room = False
    refused.remembered()
    link.has_room = True
    logged.logged(Reason.SUCCESS)
    refused.forgotten()
    link.waiting[0]()
    node.turn()
    assert [packet[-1] for packet in publisher.packets()] == [1, 0x97]


def test_what_other_nodes_have_no_room_for_is_not_logged(node: Node) -> None:
    """It is refused, and would be retained."""
    other(node, b"a").has_room = False
    node.port.hold = True
    publisher = node.client("p", 5)
    answers = node.feed(publisher, publish(5, "a", "1", qos=1, packet_id=1, retain=True))
    assert node.port.inbound == []
    assert answers == [b"\x40\x03\x00\x01\x97"]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_in_the_log_is_taken_though_there_is_no_room_any_more(node: Node, qos: int) -> None:
    link, publisher = other(node, b"a"), node.client("p", 5)
    node.port.hold = True
    node.feed(publisher, publish(5, "a", "1", qos=qos, packet_id=1, retain=True))
    (logged,) = node.port.inbound
    if qos == 2:
        logged.message.origin = of_session(10)
    link.has_room = False
    logged.logged(Reason.SUCCESS)
    link.waiting[0]()
    node.turn()
    assert publisher.packets() == [bytes([0x40 if qos == 1 else 0x50, 2, 0, 1])]


def test_what_is_in_the_log_waits_until_an_earlier_refusal_is_told(node: Node) -> None:
    """Delivered before, it would come before what its client may send again; refused, it would be retained."""
    link, publisher = other(node, b"#"), node.client("p", 5)
    node.port.hold = True
    packets = [publish(5, "a", str(number), qos=1, packet_id=number, retain=number > 1) for number in (1, 2, 3)]
    node.feed(publisher, b"".join(packets))
    refused, logged = node.port.inbound
    refused.logged(Reason.QUOTA_EXCEEDED)
    logged.logged(Reason.SUCCESS)
    assert len(link.taken) == 1
    link.waiting[0]()
    link.waiting[1]()
    node.turn()
    assert publisher.packets() == [b"\x40\x02\x00\x01", b"\x40\x03\x00\x02\x97", b"\x40\x02\x00\x03"]


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
