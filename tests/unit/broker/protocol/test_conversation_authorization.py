"""What a client may publish and subscribe to is asked of the node; what is intercepted goes another way."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode, frame
from flockmq.mqtt.message import publication
from flockmq.mqtt.packets import NO_LOCAL, Connect
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.client import ALLOWED, ASKED, DENIED, PUBLISH, SUBSCRIBE, UNDECIDED
from unit.broker.protocol.harness import Client, Node, publish, remote, without_words


@pytest.fixture
def node() -> Node:
    made = Node()
    made.port.verdicts = {b"no": DENIED, b"ask": ASKED, b"yes": ALLOWED}
    return made


def checked(node: Node, version: int = 5) -> Client:
    client = node.client("p", version)
    client.set_must_authorize(True)
    return client


@pytest.mark.parametrize("qos", [0, 1])
def test_an_allowed_head_is_asked_about_once(node: Node, qos: int) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("yes", qos))
    for _ in range(3):
        node.feed(publisher, publish(5, "yes", "x", qos=qos, packet_id=qos) * 2)
    assert len(subscriber.packets()) == 6
    assert [(action, topic) for action, topic, _ in node.port.asked] == [(PUBLISH, b"yes")]
    publisher.set_must_authorize(True)
    node.port.verdicts[b"yes"] = DENIED
    node.feed(publisher, publish(5, "yes", "x", qos=qos, packet_id=qos))
    assert subscriber.packets() == []


@pytest.mark.parametrize("version", [4, 5])
def test_heads_of_long_topics_take_no_memory(node: Node, version: int) -> None:
    subscriber, publisher = node.client("s", version), checked(node, version)
    node.subscribe(subscriber, ("long/#", 0))
    for number in range(10):
        node.feed(publisher, publish(version, f"long/{number}/" + "x" * 60_000, "x") * 2)
    assert len(subscriber.packets()) == 20
    assert publisher.allowed is not None
    assert sum(map(len, publisher.allowed)) == 0


def test_what_is_denied_goes_nowhere_and_says_so(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("no", 2))
    answer = node.feed(publisher, b"".join(publish(5, "no", "x", qos=qos, packet_id=qos) for qos in (0, 1, 2)))
    assert answer == [
        encode.pub_ack(frame.PUBACK, 5, 1, Reason.NOT_AUTHORIZED),
        encode.pub_ack(frame.PUBREC, 5, 2, Reason.NOT_AUTHORIZED),
    ]
    assert subscriber.packets() == []
    assert node.feed(publisher, publish(5, "no", "x", qos=2, packet_id=2, dup=True)) == answer[1:]


def test_MQTT_3_3_5_2_before_5_0_what_is_denied_is_acknowledged(node: Node) -> None:
    assert node.feed(checked(node, 4), publish(4, "no", "x", qos=1, packet_id=1)) == [b"\x40\x02\x00\x01"]


def test_a_client_may_be_disconnected_for_it(node: Node) -> None:
    node.port.disconnects_the_denied = True
    publisher = checked(node)
    assert node.feed(publisher, publish(5, "no", "x")) == [encode.disconnect(5, Reason.NOT_AUTHORIZED)]


@pytest.mark.parametrize("allowed", [True, False])
def test_what_is_asked_about_holds_the_order(node: Node, allowed: bool) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("#", 1))
    packets = publish(5, "ask", "1", qos=1, packet_id=1) + publish(5, "yes", "2", qos=1, packet_id=2)
    assert node.feed(publisher, packets + publish(5, "yes", "3")) == []
    (done,) = [done for _, topic, done in node.port.asked if topic == b"ask"]
    done(ALLOWED if allowed else DENIED)
    node.turn()
    denied = Reason.SUCCESS if allowed else Reason.NOT_AUTHORIZED
    assert publisher.packets() == [
        encode.pub_ack(frame.PUBACK, 5, 1, denied),
        encode.pub_ack(frame.PUBACK, 5, 2),
    ]
    assert [packet[-1:] for packet in subscriber.packets()] == ([b"1"] if allowed else []) + [b"2", b"3"]


def test_what_is_allowed_when_the_client_is_gone_is_still_published(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("ask", 1))
    node.feed(publisher, publish(5, "ask", "1", qos=1, packet_id=1))
    publisher.lost()
    node.port.asked[-1][2](ALLOWED)
    node.turn()
    assert len(subscriber.packets()) == 1
    assert publisher.client_id() == b"p", "rules and plugins ask whose it was"


def test_no_local_holds_for_what_is_allowed_when_its_client_is_gone(node: Node) -> None:
    own = Properties()
    own.session_expiry_interval = 60
    durable = Connect(5, b"p", clean_start=False, properties=own)
    publisher, other = node.client("p", 5, durable), node.client("s", 5)
    for client in (publisher, other):
        node.subscribe(client, ("#", NO_LOCAL | 1))
    publisher.set_must_authorize(True)
    node.feed(publisher, publish(5, "ask", "1", qos=1, packet_id=1))
    publisher.lost()
    back = node.client("p", 5, durable)
    node.port.asked[-1][2](ALLOWED)
    node.turn()
    assert (back.packets(), len(other.packets())) == ([], 1)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_what_nobody_can_judge_is_not_acknowledged(node: Node, version: int, qos: int) -> None:
    node.port.disconnects_the_denied = True
    publisher = checked(node, version)
    node.feed(publisher, publish(version, "ask", "1", qos=qos, packet_id=1))
    node.port.asked[-1][2](UNDECIDED)
    node.turn()
    kind = frame.PUBACK if qos == 1 else frame.PUBREC
    refused = [encode.pub_ack(kind, 5, 1, Reason.IMPLEMENTATION_SPECIFIC_ERROR)]
    assert publisher.packets() == (refused if version == 5 else [])
    assert publisher.has_ended() == (version == 4), "its client may send it again"


@pytest.mark.parametrize("version", [4, 5])
def test_what_is_sent_again_on_another_connection_is_overtaken_by_nothing(node: Node, version: int) -> None:
    subscriber, publisher = node.client("s", 5), checked(node, version)
    node.subscribe(subscriber, ("#", 1))
    packets = [publish(version, "ask", str(number), qos=1, packet_id=number) for number in (1, 2)]
    node.feed(publisher, b"".join(packets) + publish(version, "yes", "3", qos=1, packet_id=3))
    first, second = (done for _, topic, done in node.port.asked if topic == b"ask")
    second(ALLOWED)
    first(UNDECIDED)
    node.turn()
    assert publisher.has_ended() == (version == 4)
    assert len(subscriber.packets()) == (0 if version == 4 else 2)


def test_a_subscription_that_nobody_can_judge_is_refused(node: Node) -> None:
    node.port.disconnects_the_denied = True
    client = checked(node)
    node.subscribe(client, ("ask", 1), ("yes", 1))
    node.port.asked[0][2](UNDECIDED)
    node.turn()
    assert client.packets() == [encode.suback(5, 1, [Reason.IMPLEMENTATION_SPECIFIC_ERROR, 1])]


def test_qos_2_of_a_session_at_an_owner_that_is_allowed_when_the_client_is_gone_is_logged_first(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("ask", 2))
    remote(publisher)
    node.port.hold = True
    node.feed(publisher, publish(5, "ask", "1", qos=2, packet_id=7))
    publisher.lost()
    node.port.asked[-1][2](ALLOWED)
    node.turn()
    assert [inbound.message.topic for inbound in node.port.inbound] == [b"ask"]
    assert subscriber.packets() == []


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_allowed_when_its_client_was_disconnected_for_its_rights_is_dropped(node: Node, qos: int) -> None:
    subscriber, publisher = node.client("s", 5), checked(node)
    node.subscribe(subscriber, ("ask", 2))
    node.feed(publisher, publish(5, "ask", "1", qos=qos, packet_id=7 if qos else 0))
    publisher.close(Reason.NOT_AUTHORIZED)
    node.port.asked[-1][2](ALLOWED)
    node.turn()
    assert subscriber.packets() == []


def test_a_subscription_that_is_denied_is_refused_in_its_place(node: Node) -> None:
    client = checked(node)
    answer = node.subscribe(client, ("yes", 1), ("no", 1), ("yes", 0))
    assert answer == [encode.suback(5, 1, [1, Reason.NOT_AUTHORIZED, 0])]
    assert [action for action, _, _ in node.port.asked] == [SUBSCRIBE] * 3


def test_nothing_behind_a_subscribe_is_read_while_it_is_asked_about(node: Node) -> None:
    client = checked(node)
    assert node.subscribe(client, ("ask", 1), ("yes", 1)) == []
    assert node.feed(client, encode.unsubscribe(5, 2, [b"ask"])) == []
    node.port.asked[0][2](ALLOWED)
    node.turn()
    assert [packet[0] for packet in client.packets()] == [0x90, 0xB0]


@pytest.mark.parametrize("again", [False, True])
def test_rules_that_change_while_a_subscribe_is_asked_about_are_asked_when_it_has_gone_on(
    node: Node, again: bool
) -> None:
    client = checked(node)
    node.subscribe(client, ("ask", 1))
    node.port.rule_changes += again
    assert node.port.authorized_again == []
    node.port.asked[0][2](ALLOWED)
    node.turn()
    assert node.port.authorized_again == [client] * again
    node.subscribe(client, ("yes", 1))
    assert node.port.authorized_again == [client] * again


def test_a_subscribe_is_judged_in_as_many_turns_as_it_takes(node: Node) -> None:
    client = checked(node)
    node.port.judged_a_turn = 2
    assert node.subscribe(client, *((("yes", "no", "ask")[number % 3], 1) for number in range(5))) == []
    assert node.feed(client, encode.unsubscribe(5, 2, [b"yes"])) == []
    for judged in (4, 5):
        assert len(node.port.asked) == node.port.judged_a_turn
        node.port.judged_a_turn += 2
        node.port.resting.pop()()
        node.turn()
        assert (len(node.port.asked), client.packets()) == (judged, [])
    node.port.asked[2][2](ALLOWED)
    node.turn()
    denied = Reason.NOT_AUTHORIZED
    assert client.packets() == [encode.suback(5, 1, [1, denied, 1, 1, denied]), encode.unsuback(5, 2, [0])]


def test_what_is_answered_between_two_turns_of_a_subscribe_doesnt_end_it(node: Node) -> None:
    client = checked(node)
    node.port.judged_a_turn = 1
    assert node.subscribe(client, ("ask", 1), ("yes", 1)) == []
    node.port.asked[0][2](ALLOWED)
    node.turn()
    assert client.packets() == []
    node.port.judged_a_turn = 2
    node.port.resting.pop()()
    node.turn()
    assert client.packets() == [encode.suback(5, 1, [1, 1])]


def test_who_is_disconnected_for_one_filter_is_asked_about_no_other(node: Node) -> None:
    node.port.disconnects_the_denied = True
    client = checked(node)
    assert node.subscribe(client, ("no", 1), ("yes", 1)) == [encode.disconnect(5, Reason.NOT_AUTHORIZED)]
    assert len(node.port.asked) == 1


def test_a_client_that_leaves_meanwhile_is_no_trouble(node: Node) -> None:
    client = checked(node)
    node.subscribe(client, ("ask", 1))
    client.lost()
    node.port.asked[0][2](ALLOWED)
    assert client.state == CLOSED


def test_nobody_publishes_to_sys(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("$SYS/#", 0))
    for _ in range(2):
        (answer,) = node.feed(publisher, publish(5, "$SYS/x", "1", qos=1, packet_id=1))
        assert answer == encode.pub_ack(frame.PUBACK, 5, 1, Reason.NOT_AUTHORIZED)
    node.feed(publisher, publish(5, "$SYS/x", "1") * 2)
    assert subscriber.packets() == []


@pytest.mark.parametrize("topic", ["$share/g/t", "$exclusive/t", "$share", "$t", "$", "$delayed", "$queue/t"])
@pytest.mark.parametrize(("version", "said"), [(5, Reason.TOPIC_NAME_INVALID), (4, Reason.SUCCESS)])
def test_nobody_publishes_where_only_filters_begin(node: Node, version: int, said: int, topic: str) -> None:
    """Before 5.0 it can't be said, and whoever is closed for it would come back and send it again."""
    subscriber, publisher = node.client("s", 5), node.client("p", version)
    node.subscribe(subscriber, ("t", 1))
    for _ in range(2):
        (answer,) = node.feed(publisher, publish(version, topic, "1", qos=1, packet_id=1))
        assert answer == encode.pub_ack(frame.PUBACK, version, 1, said)
    assert node.feed(publisher, publish(version, topic, "1") * 2) == []
    assert subscriber.packets() == []


def test_an_intercepted_message_is_replaced_or_goes_nowhere(node: Node) -> None:
    subscriber, publisher = node.client("s", 5), node.client("p", 5)
    node.subscribe(subscriber, ("#", 0))
    node.feed(publisher, publish(5, "old", "before"))
    node.router.intercept([b"old", b"never"])
    node.port.replaces = lambda message: (
        Reason.SUCCESS if message.topic == b"never" else publication(5, 0, False, b"new", message.payload(), b"")
    )
    node.feed(publisher, publish(5, "old", "x") * 2 + publish(5, "never", "x") + publish(5, "other", "y"))
    topics = [packet[4 : 4 + packet[3]] for packet in subscriber.packets()]
    assert topics == [b"old", b"new", b"new", b"other"]


# Enhanced authentication.


def authenticating(node: Node) -> Client:
    """Challenged once, before CONNACK."""
    own = Properties()
    own.authentication_method = b"M"
    client = node.opened()
    node.port.admit = lambda channel, connect: channel.challenged(b"who?")  # type: ignore[method-assign]
    (challenge,) = node.feed(client, encode.connect(Connect(5, b"c", properties=own)))
    assert challenge == encode.auth(0x18, method(b"who?"))
    return client


def method(data: bytes, name: bytes = b"M") -> Properties:
    own = Properties()
    own.authentication_method = name
    own.authentication_data = data
    return own


def test_an_exchange_goes_on_by_auth(node: Node) -> None:
    client = authenticating(node)
    node.feed(client, encode.auth(0x18, method(b"me")))
    (packet,) = node.port.continuations
    assert packet.properties is not None
    assert packet.properties.authentication_data == b"me"
    client.challenged(b"more")
    node.turn()
    assert client.packets() == [encode.auth(0x18, method(b"more"))]


@pytest.mark.parametrize(
    "packet", [encode.PINGREQ, encode.auth(0x19, method(b"x")), encode.auth(0x18, method(b"x", b"N"))]
)
def test_anything_else_amid_an_exchange_ends_the_connection(node: Node, packet: bytes) -> None:
    client = authenticating(node)
    assert node.feed(client, packet) == []
    assert client.state == CLOSED


def test_MQTT_3_1_2_24_a_challenge_that_is_too_large_for_its_client_ends_the_connection(node: Node) -> None:
    own = Properties()
    own.authentication_method, own.maximum_packet_size = b"M", 20
    client = node.opened()
    node.port.admit = lambda channel, connect: channel.challenged(b"x" * 20)  # type: ignore[method-assign]
    assert node.feed(client, encode.connect(Connect(5, b"c", properties=own))) == []
    assert client.state == CLOSED


@pytest.mark.parametrize("is_last", [False, True])
def test_MQTT_3_1_2_24_so_it_is_amid_a_connection(node: Node, is_last: bool) -> None:
    own = Properties()
    own.authentication_method, own.maximum_packet_size = b"M", 50
    client = node.client("c", connect=Connect(5, b"c", properties=own))
    (client.reauthenticated if is_last else client.challenged)(b"x" * 50)
    node.turn()
    assert without_words(client.packets()) == [encode.disconnect(5, Reason.PACKET_TOO_LARGE)]


def test_MQTT_3_1_2_24_a_refusal_that_is_too_large_for_its_client_is_not_sent(node: Node) -> None:
    own = Properties()
    own.maximum_packet_size = 4
    client = node.opened()
    node.port.admit = lambda channel, connect: channel.refuse(Reason.BANNED)  # type: ignore[method-assign]
    assert node.feed(client, encode.connect(Connect(5, b"c", properties=own))) == []
    assert client.state == CLOSED
