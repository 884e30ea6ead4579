"""Shared subscriptions: each message to one member of each group, on one node and across several."""

from __future__ import annotations

from collections import Counter

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties
from flockmq.mqtt.reason import Reason
from flockmq.routing.shared_frames import SHARED, unwrap, wrap
from flockmq.routing.sink import CONGESTED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Node, publish
from unit.broker.routing.shared_cluster import GROUP, Cluster, payloads, run


@pytest.mark.parametrize("publisher_version", [4, 5])
def test_a_run_is_dealt_out_in_turn_in_every_version(publisher_version: int) -> None:
    node = Node()
    members = [node.client("a", 4), node.client("b", 5), node.client("c", 4)]
    for member in members:
        assert node.subscribe(member, (GROUP, 0))[-1][-1] == 0
    node.feed(node.client("p", publisher_version), run(publisher_version, 31))
    got = [payloads(member) for member in members]
    assert sorted(payload for one in got for payload in one) == [f"{number:04}" for number in range(31)]
    assert sorted(map(len, got)) == [10, 10, 11]
    assert all(one == sorted(one) for one in got)


def test_each_group_and_each_ordinary_subscriber_gets_every_message_once() -> None:
    node = Node()
    both = node.client("both")
    node.subscribe(both, ("$share/g/t/#", 0), ("t/+", 0))
    for other in ("x", "y"):
        node.subscribe(node.client(other), ("$share/h/t/+", 0))
    node.feed(node.client("p"), run(4, 10))
    counters = node.router.counters
    assert Counter(payloads(both)) == {f"{number:04}": 2 for number in range(10)}
    assert counters.messages_sent == 30


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("strategy", ["random", "round_robin", "round_robin_per_group"])
def test_three_members_on_one_node_and_one_on_another_get_as_much_each(strategy: str, qos: int) -> None:
    cluster = Cluster(3, strategy)
    members = [cluster[node].client(f"m{number}") for number, node in enumerate((1, 1, 1, 2))]
    for number, member in enumerate(members):
        cluster[1 if number < 3 else 2].subscribe(member, (GROUP, qos))
    cluster.tell()
    publisher = cluster[0].client("p")
    for number in range(400):
        answer = cluster[0].feed(publisher, publish(4, "t/0", f"{number:04}", qos=qos, packet_id=number % 32 + 1))
        assert answer == [], "another node has it first"
        cluster.settle()
        for member in members:
            got = payloads(member)
            member.received = getattr(member, "received", []) + got  # type: ignore[attr-defined]
            for _ in got if qos else []:
                assert member.session is not None
                for packet_id in list(member.session.inflight or ()):
                    member.session.puback(packet_id)
        assert len(publisher.packets()) == qos
    counts = [len(member.received) for member in members]  # type: ignore[attr-defined]
    assert sum(counts) == 400
    assert all(60 < count < 140 for count in counts) if strategy == "random" else counts == [100] * 4


def test_a_run_crosses_as_one_chunk_for_each_member() -> None:
    cluster = Cluster(2)
    members = [cluster[1].client(name) for name in ("a", "b")]
    for member in members:
        cluster[1].subscribe(member, (GROUP, 0))
    cluster.tell()
    cluster[0].feed(cluster[0].client("p"), run(4, 100))
    link = cluster.links["n0@0", "n1@0"]
    assert [(version, len(unwrap(chunk))) for version, chunk, _ in link.waiting] == [(4 | SHARED, 1)] * 2
    cluster.settle()
    assert [len(payloads(member)) for member in members] == [50, 50]


def test_the_sticky_member_on_another_node_stays_the_same() -> None:
    cluster = Cluster(2, "sticky")
    members = [cluster[1].client(str(number)) for number in range(5)]
    for member in members:
        cluster[1].subscribe(member, (GROUP, 0))
    cluster.tell()
    publisher = cluster[0].client("p")
    for _ in range(5):
        cluster[0].feed(publisher, run(4, 7))
    cluster.settle()
    assert sorted(len(payloads(member)) for member in members) == [0, 0, 0, 0, 35]


def test_what_finds_no_member_goes_to_another_node_and_is_counted_when_there_is_none() -> None:
    cluster = Cluster(3)
    gone, stays = cluster[1].client("gone"), cluster[2].client("stays")
    cluster[1].subscribe(gone, (GROUP, 1))
    cluster.tell()
    publisher = cluster[0].client("p")
    cluster[0].feed(publisher, publish(4, "t/0", "late", qos=1, packet_id=1) + run(4, 3))
    gone.lost()
    cluster[2].subscribe(stays, (GROUP, 1))
    cluster.tell()
    cluster.settle()
    assert sorted(payloads(stays)) == ["0000", "0001", "0002", "late"]
    assert cluster.dropped() == 0

    assert stays.session is not None
    stays.session.puback(next(iter(stays.session.inflight or ())))
    cluster[0].feed(publisher, run(4, 3))
    stays.lost()
    cluster.settle()
    assert cluster.dropped() == 3


def test_what_finds_no_member_goes_on_until_it_finds_one() -> None:
    """The log takes nothing, so nobody heard that members left."""
    cluster = Cluster(6)
    members = [cluster[number].client(f"m{number}") for number in range(1, 6)]
    for number, member in enumerate(members):
        cluster[number + 1].subscribe(member, (GROUP, 1))
    cluster.tell()
    *left, stays = members
    for member in left:
        member.lost()
    publisher = cluster[0].client("p")
    for number in range(5):
        cluster[0].feed(publisher, publish(4, "t/0", str(number), qos=1, packet_id=number + 1))
    cluster.settle()
    assert sorted(payloads(stays)) == list("01234")
    assert cluster.dropped() == 0
    stays.lost()
    cluster.settle()
    assert cluster.dropped() == 5, "nobody is left, and nothing goes round for ever"


def test_what_the_first_release_passed_on_goes_on() -> None:
    node = Node()
    member = node.client("m")
    node.subscribe(member, (GROUP, 1))
    (item,) = unwrap(wrap(GROUP.encode(), 0, 1, publish(4, "t/0", "x", qos=1, packet_id=1)))
    node.router.shared.pass_on(item, 4, None)
    node.turn()
    assert payloads(member) == ["x"]


def test_a_full_link_sends_it_elsewhere_and_refuses_it_when_there_is_nowhere() -> None:
    cluster = Cluster(3)
    members = [cluster[number].client(f"m{number}") for number in (1, 2)]
    for number, member in enumerate(members):
        cluster[number + 1].subscribe(member, (GROUP, 1))
    cluster.tell()
    cluster.links["n0@0", "n1@0"].full = True
    publisher = cluster[0].client("p", 5)
    for number in range(8):
        cluster[0].feed(publisher, publish(5, "t/0", str(number), qos=1, packet_id=number + 1))
    cluster.settle()
    assert payloads(members[1]) == list("01234567")
    assert len(publisher.packets()) == 8
    cluster.links["n0@0", "n2@0"].full = True
    (answer,) = cluster[0].feed(publisher, publish(5, "t/0", "x", qos=1, packet_id=9))
    assert answer[:5] == b"\x40\x03\x00\x09" + bytes((Reason.QUOTA_EXCEEDED,))


@pytest.mark.parametrize("qos", [0, 1])
def test_a_publisher_pauses_for_the_way_to_the_member_that_its_message_went_to(qos: int) -> None:
    cluster = Cluster(2)
    cluster[1].subscribe(cluster[1].client("m"), (GROUP, 1))
    cluster.tell()
    link = cluster.links["n0@0", "n1@0"]
    link.flow = CONGESTED
    publisher = cluster[0].client("p")
    cluster[0].feed(publisher, publish(4, "t/0", "x", qos=qos, packet_id=qos))
    assert publisher.paused == 1
    cluster[0].router.pauses.release(link)
    assert publisher.paused == 0


def test_what_a_purged_node_never_accepted_goes_to_another() -> None:
    cluster = Cluster(3)
    members = [cluster[number].client(f"m{number}") for number in (1, 2)]
    for number, member in enumerate(members):
        cluster[number + 1].subscribe(member, (GROUP, 1))
    cluster.tell()
    publisher = cluster[0].client("p")
    for number in range(6):
        cluster[0].feed(publisher, publish(4, "t/0", str(number), qos=1, packet_id=number + 1))
    lost = cluster.links["n0@0", "n1@0"]
    assert len(lost.waiting) == 3
    cluster.dead.add("n1@0")
    shared = cluster[0].router.shared
    shared.others_changed()
    for version, chunk, _ in lost.waiting:
        shared.returned(version & ~SHARED, chunk)
    lost.waiting.clear()
    cluster.settle()
    assert sorted(payloads(members[1])) == list("012345")


@pytest.mark.parametrize("version", [4, 5])
def test_a_member_that_ends_leaves_what_it_did_not_acknowledge_to_another(version: int) -> None:
    """[MQTT-4.8.2-5]"""
    node = Node(Limits(max_inflight=2))
    mortal = node.client("mortal", version)
    node.subscribe(mortal, (GROUP, 2))
    publisher = node.client("p", version)
    for number, qos in enumerate((1, 2, 1, 2, 1)):
        node.feed(publisher, publish(version, "t/0", str(number), qos=qos, packet_id=number + 1))
    sent = [packet[0] >> 1 & 3 for packet in mortal.packets()]
    assert sent == [1, 2], "the window is full"
    heir = node.client("heir", version)
    node.subscribe(heir, (GROUP, 2))
    mortal.lost()
    node.turn()
    assert heir.session is not None
    heirs = [packet[0] >> 1 & 3 for packet in heir.packets()]
    assert heirs == [1, 1], "the first, and the third; of QoS 2 what was never sent, behind them"
    for packet_id in list(heir.session.inflight or ()):
        heir.session.puback(packet_id)
    node.turn()
    assert [packet[0] >> 1 & 3 for packet in heir.packets()] == [2, 1]
    assert node.router.counters.shared_redispatched == 4


def test_an_heir_gets_its_own_subscription_identifier() -> None:
    node = Node()
    properties = Properties()
    properties.subscription_identifier = 300
    members = []
    for name in ("mortal", "heir"):
        member = node.client(name, 5)
        node.feed(member, encode.subscribe(5, 1, [SubscribeEntry(GROUP.encode(), 1)], properties))
        members.append(member)
        properties.subscription_identifier = 7
    mortal, heir = members
    publisher = node.client("p", 5)
    for number in range(2):
        node.feed(publisher, publish(5, "t/0", str(number), qos=1, packet_id=number + 1))
    assert b"\x0b\xac\x02" in mortal.packets()[0]
    heir.packets()
    mortal.lost()
    node.turn()
    (inherited,) = heir.packets()
    assert inherited.endswith(b"\x02\x0b\x07" + inherited[-1:])


def test_members_that_cannot_keep_up_do_not_take_the_process_with_them() -> None:
    """Each that is cut off leaves a full queue to the next: nothing is lost while one of them has room."""
    node = Node(Limits(max_inflight=1, max_mqueue_len=4))
    members = [node.client(f"m{number}") for number in range(300)]
    for member in members:
        node.subscribe(member, (GROUP, 1))
        member.stuck = True
    publisher = node.client("p")
    for number in range(2000):
        publisher.paused = 0
        node.feed(publisher, publish(4, "t/0", str(number), qos=1, packet_id=number % 65_535 + 1))
    counters = node.router.counters
    alive = [member for member in members if not member.has_ended()]
    held = sum(
        len(member.session.inflight or ()) + len(member.session.queue or ()) for member in alive if member.session
    )
    assert held + counters.dropped_no_member + counters.dropped_no_room >= min(2000, 1500 - 5)


def test_zones_may_forbid_it() -> None:
    node = Node(Limits(shared_subscription=False, exclusive_subscription=False))
    client = node.client("c", 5)
    (suback,) = node.subscribe(client, (GROUP, 1), ("$exclusive/t", 1), ("t", 1))
    assert suback[-3:] == bytes((Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED, Reason.TOPIC_FILTER_INVALID, 1))


def test_no_retained_messages_are_sent_to_a_shared_subscription() -> None:
    node = Node()
    node.subscribe(node.client("c"), (GROUP, 1), ("t", 1))
    assert [subscription.filter for subscription in node.port.given] == [b"t"]
