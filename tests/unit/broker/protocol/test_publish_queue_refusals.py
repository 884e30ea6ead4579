"""A message that is refused, here or by others, is for nobody; what the log has is refused no more."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flockmq.mqtt.message import Publish
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.reason import Reason
from flockmq.protocol.publish_queue import queue_of
from flockmq.rlog.schema import SharedMembers
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.session.limits import Limits
from unit.broker.protocol.forwarded import OtherNode, message, of_session, other
from unit.broker.protocol.harness import Client, Node, publish, remote


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
