"""Shared subscriptions: each message to one member of each group, on one node and across several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flockmq.bounds import SHARED_DEALS_MAX
from flockmq.mqtt import encode
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import Publish, publication
from flockmq.mqtt.packets import SubscribeEntry
from flockmq.mqtt.properties import Properties, subscription_identifier
from flockmq.mqtt.reason import Reason
from flockmq.rlog.schema import SharedMembers
from flockmq.routes.shared_members import RemoteSharedMembers
from flockmq.routing import forwarded
from flockmq.routing.message_id import ORIGIN, origin_of, session_source
from flockmq.routing.shared_frames import SHARED, find_deal, unwrap, without_identifiers, wrap
from flockmq.routing.shared_groups import STRATEGIES
from flockmq.routing.sink import CONGESTED
from flockmq.routing.targets import NodeTarget
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish

GROUP = "$share/g/t/#"


class Link(NodeTarget):
    """The road to another node: `deliver` what waits, or give it back as a purge does."""

    def __init__(self, there: Node) -> None:
        super().__init__(there.router.turn, 5)
        self.there = there
        self.full = False
        self.waiting: list[tuple[int, bytes, Callable[[], None] | None]] = []

    def put_run(self, version: int, chunk: bytes) -> None:
        self.waiting.append((version, chunk, None))

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        if self.full:
            return False
        self.waiting.append((version, packet, on_accepted))
        return True

    def takes(self, packet_bytes: int) -> bool:
        return not self.full

    def deliver(self) -> None:
        waiting, self.waiting = self.waiting, []
        for version, chunk, on_accepted in waiting:
            forwarded.take(self.there.router, version, chunk)
            if on_accepted is not None:
                on_accepted()
        self.there.turn()


class Cluster:
    """Nodes that know of each other's members what `tell` told them."""

    def __init__(self, count: int, strategy: str = "round_robin", limits: Limits | None = None) -> None:
        self.nodes = {f"n{number}@0": Node(limits, number) for number in range(count)}
        self.links = {
            (here, there): Link(self.nodes[there]) for here in self.nodes for there in self.nodes if here != there
        }
        self.shares = {name: RemoteSharedMembers(node.router, name) for name, node in self.nodes.items()}
        self.dead: set[str] = set()
        self.told: dict[str, tuple[int, int]] = {}
        for name, node in self.nodes.items():
            shared = node.router.shared
            shared.me = name
            shared.strategy = STRATEGIES[strategy]
            shared.keeps_deals = lambda: True
            shared.find_peer = lambda there, here=name: self.link(here, there)  # type: ignore[misc]
            self.shares[name].go_live()

    def link(self, here: str, there: str) -> Link | None:
        return None if there in self.dead else self.links.get((here, there))

    def tell(self, share_filter: str = GROUP) -> None:
        """The log has all nodes' counts."""
        for name, node in self.nodes.items():
            if name in self.dead:
                continue
            counts = node.router.shared.count(share_filter.encode())
            old = self.told.pop(name, None)
            if counts != (0, 0):
                self.told[name] = counts
            for shares in self.shares.values():
                if counts != (0, 0):
                    shares.put((share_filter.encode(), name), SharedMembers(*counts), old and SharedMembers(*old))
                elif old is not None:
                    shares.delete((share_filter.encode(), name), SharedMembers(*old))

    def settle(self) -> None:
        while any(link.waiting for link in self.links.values()):
            for link in self.links.values():
                link.deliver()
        for node in self.nodes.values():
            node.turn()

    def __getitem__(self, number: int) -> Node:
        return self.nodes[f"n{number}@0"]

    def dropped(self) -> int:
        return sum(node.router.counters.dropped_no_member for node in self.nodes.values())


def payloads(client: Client) -> list[str]:
    """Of the PUBLISH packets that came, in order; each has a topic of 3 bytes."""
    packets = [packet for packet in client.packets() if packet[0] >> 4 == 3]
    tail = {(4, 0): 7, (4, 1): 9, (5, 0): 8, (5, 1): 10}
    return [packet[tail[client.protocol_version, packet[0] >> 1 & 1] :].decode() for packet in packets]


def run(version: int, count: int, topic: str = "t/0") -> bytes:
    return b"".join(publish(version, topic, f"{number:04}") for number in range(count))


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


# Said again, of QoS 2.


def numbered(number: int, deals: bytes = b"") -> Publish:
    """A message of a durable session, as its home names it."""
    message = publication(4, 2, False, b"t/0", b"%d" % number, b"")
    message.origin, message.deals = origin_of(session_source(b"12345678"), number), deals
    return message


def proposed(node: Node, number: int = 1) -> bytes:
    return node.router.shared.propose(node.router.route(b"t/0").fanout.groups, numbered(number), b"p")


def owner(deals: bytes) -> str:
    deal = find_deal(deals, GROUP.encode())
    return "" if deal is None else deal.owner


def publish_at(node: Node, deals: bytes, number: int = 1) -> None:
    message = numbered(number, deals)
    fan = node.router.route(b"t/0").fanout
    if fan.groups:
        assert node.router.forward(fan, message, lambda: None) >= 0


def members_at(cluster: Cluster, *numbers: int, qos: int = 2) -> list[Client]:
    members = [cluster[number].client(f"m{place}") for place, number in enumerate(numbers)]
    for member, number in zip(members, numbers, strict=True):
        cluster[number].subscribe(member, (GROUP, qos))
    cluster.tell()
    return members


def got(*members: Client) -> list[str]:
    """By all of them."""
    return sorted(packet[-1:].decode() for member in members for packet in member.packets())


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("again_at", [0, 1, 2])
def test_a_repeat_of_QoS_2_goes_to_no_other_member_at_whatever_node_it_is_said(strategy: str, again_at: int) -> None:
    cluster = Cluster(3, strategy)
    members = members_at(cluster, 0, 0, 1, 1)
    for number in range(1, 9):
        deals = proposed(cluster[0], number)
        publish_at(cluster[0], deals, number)
        publish_at(cluster[again_at], deals, number)
        cluster.settle()
        publish_at(cluster[again_at], deals, number)
    cluster.settle()
    assert got(*members) == list("12345678")


def test_a_repeat_goes_to_nobody_else_though_others_joined_and_the_first_one_left() -> None:
    cluster = Cluster(3)
    (first,) = members_at(cluster, 1)
    deals = proposed(cluster[0])
    publish_at(cluster[0], deals)
    cluster.settle()
    assert got(first) == ["1"]
    first.feed(b"\xe0\0")
    others = members_at(cluster, 2, 2)
    publish_at(cluster[2], deals)
    cluster.settle()
    assert got(*others) == []


def test_what_a_node_never_had_before_its_member_left_goes_on_once() -> None:
    cluster = Cluster(3)
    (first,) = members_at(cluster, 1)
    deals = proposed(cluster[0])
    first.feed(b"\xe0\0")
    others = members_at(cluster, 2, 2)
    for node in (cluster[0], cluster[2]):
        publish_at(node, deals)
        cluster.settle()
    assert got(*others) == ["1"]


def test_at_the_node_itself_it_goes_to_others_when_its_members_left_and_once() -> None:
    cluster = Cluster(2)
    (first,) = members_at(cluster, 0)
    deals = proposed(cluster[0])
    first.feed(b"\xe0\0")
    (other,) = members_at(cluster, 1)
    for _ in range(2):
        publish_at(cluster[0], deals)
        cluster.settle()
    assert got(other) == ["1"]


def test_what_was_dealt_to_a_node_that_is_gone_is_dealt_anew() -> None:
    cluster = Cluster(3)
    members_at(cluster, 1)
    deals = proposed(cluster[0])
    (other,) = members_at(cluster, 2)
    cluster.dead.add("n1@0")
    cluster[0].router.shared.others_changed()
    for _ in range(2):
        publish_at(cluster[0], deals)
    cluster.settle()
    assert got(other) == ["1"]


def test_what_a_purged_node_never_accepted_is_dealt_anew_once_however_often_it_was_said() -> None:
    cluster = Cluster(3)
    members_at(cluster, 1)
    deals = proposed(cluster[0])
    for _ in range(2):
        publish_at(cluster[0], deals)
    others = members_at(cluster, 2, 2)
    link = cluster.links["n0@0", "n1@0"]
    waiting, link.waiting = link.waiting, []
    cluster.dead.add("n1@0")
    cluster[0].router.shared.others_changed()
    for version, chunk, _ in waiting:
        assert version & ORIGIN
        cluster[0].router.shared.returned(version & ~SHARED, chunk)
    publish_at(cluster[0], deals)
    cluster.settle()
    assert got(*others) == ["1"]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("staying", [(2,), (0, 2), (0, 2, 3), (3,)])
def test_what_several_nodes_deal_anew_is_with_a_member_and_with_none_twice(
    staying: tuple[int, ...], strategy: str
) -> None:
    cluster = Cluster(4, strategy=strategy)
    members_at(cluster, 1)
    deals = proposed(cluster[0])
    for node in (0, 2):
        publish_at(cluster[node], deals)
    members = members_at(cluster, *staying)
    cluster.dead.add("n1@0")
    for node in (0, 2):
        link = cluster.links[f"n{node}@0", "n1@0"]
        waiting, link.waiting = link.waiting, []
        cluster[node].router.shared.others_changed()
        for version, chunk, _ in waiting:
            cluster[node].router.shared.returned(version & ~SHARED, chunk)
    publish_at(cluster[3], deals)
    cluster.settle()
    taken = [got(member) for member in members]
    assert any(taken)
    assert max(map(len, taken)) == 1


def test_who_is_named_has_room_or_nobody_gets_it() -> None:
    cluster = Cluster(3)
    first, _ = members_at(cluster, 1, 2)
    link = cluster.links["n0@0", "n1@0"]
    link.full = True
    assert {owner(proposed(cluster[0])) for _ in range(4)} == {"n2@0"}
    link.full = False
    offers = (proposed(cluster[0]) for _ in range(100))
    deals = next(offer for offer in offers if owner(offer) == "n1@0")
    link.full = True
    router = cluster[0].router
    groups = router.route(b"t/0").fanout.groups
    assert not router.shared.make_room(groups, numbered(1, deals))
    refused: list[Publish] = []
    router.shared.on_refused = lambda group, message, accepted: refused.append(message)
    publish_at(cluster[0], deals)
    assert [(message.payload(), message.origin) for message in refused] == [(b"1", b"")], "and may go to anybody"
    link.full = False
    assert router.shared.make_room(groups, numbered(1, deals))
    cluster.settle()
    assert got(first) == []


def test_nothing_is_proposed_before_all_nodes_know_what_it_is_nor_where_nobody_is_a_member() -> None:
    cluster = Cluster(2)
    assert proposed(cluster[0]) == b""
    members_at(cluster, 1)
    cluster[0].router.shared.keeps_deals = lambda: False
    assert proposed(cluster[0]) == b""


def test_of_many_groups_those_are_named_that_may_be() -> None:
    cluster = Cluster(1)
    members = [cluster[0].client(f"m{number}") for number in range(SHARED_DEALS_MAX + 1)]
    for number, member in enumerate(members):
        cluster[0].subscribe(member, (f"$share/g{number}/t/#", 2))
    deals = proposed(cluster[0])
    assert deals.count(b"n0@0") == SHARED_DEALS_MAX
    publish_at(cluster[0], deals)
    cluster.settle()
    assert [got(member) for member in members] == [["1"]] * len(members)


def test_members_get_as_much_each_of_what_is_said_twice() -> None:
    cluster = Cluster(2)
    members = members_at(cluster, 0, 0, 1, 1)
    for number in range(1, 9):
        deals = proposed(cluster[0], number)
        for _ in range(2):
            publish_at(cluster[0], deals, number)
    cluster.settle()
    assert [len(got(member)) for member in members] == [2, 2, 2, 2]


def test_the_sticky_member_gets_QoS_2_too() -> None:
    cluster = Cluster(1, "sticky")
    members = members_at(cluster, *(0,) * 9)
    publisher = cluster[0].client("p")
    cluster[0].feed(publisher, publish(4, "t/0", "x", qos=0))
    (stuck,) = (member for member in members if member.packets())
    message = numbered(1, proposed(cluster[0]))
    cluster[0].router.forward(cluster[0].router.route(b"t/0").fanout, message, lambda: None, publisher)
    cluster.settle()
    assert got(stuck) == ["1"]


# Ends.


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


def test_no_retained_messages_are_owed_to_a_shared_subscription() -> None:
    node = Node()
    node.subscribe(node.client("c"), (GROUP, 1), ("t", 1))
    assert [subscription.filter for subscription in node.port.given] == [b"t"]


class Machine(RuleBasedStateMachine):
    """Three nodes, members that come, go, lose their connections, and counts that lag behind. Every message reaches
    one member, or is counted as dropped; and none is dropped while the nodes know of each other what is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(3)
        self.publishers = [self.cluster[number].client(f"p{number}") for number in range(3)]
        self.members: list[tuple[int, Client]] = []
        self.received: Counter[str] = Counter()
        self.published = 0
        self.names = 0
        self.in_step = True
        self.unmatched = 0
        """Messages whose node knew of no member anywhere."""

    @rule(node=st.integers(0, 2), version=st.sampled_from([4, 5]))
    def join(self, node: int, version: int) -> None:
        self.names += 1
        member = self.cluster[node].client(f"m{self.names}", version)
        self.cluster[node].subscribe(member, (GROUP, 0))
        self.members.append((node, member))
        self.in_step = False

    @precondition(lambda self: self.members)
    @rule(which=st.randoms(use_true_random=False), drops=st.booleans())
    def leave(self, which, drops: bool) -> None:  # type: ignore[no-untyped-def]
        node, member = self.members.pop(which.randrange(len(self.members)))
        self.collect_from(member)
        if drops:
            member.lost()
            self.cluster[node].turn()
        else:
            self.cluster[node].feed(member, encode.unsubscribe(member.protocol_version, 9, [GROUP.encode()]))
        self.in_step = False

    @rule()
    def tell(self) -> None:
        self.cluster.settle()
        self.cluster.tell()
        self.in_step = True

    @rule(node=st.integers(0, 2), count=st.integers(1, 9), settle=st.booleans())
    def publish(self, node: int, count: int, settle: bool) -> None:
        before = self.cluster.dropped()
        if not self.cluster[node].router.shared.match(b"t/0"):
            self.unmatched += count
        numbers = range(self.published, self.published + count)
        self.published += count
        run = b"".join(publish(4, "t/0", f"{number:04}") for number in numbers)
        self.cluster[node].feed(self.publishers[node], run)
        if settle:
            self.cluster.settle()
            if self.in_step and self.members:
                assert self.cluster.dropped() == before

    def collect_from(self, member: Client) -> None:
        self.received.update(payloads(member))

    @invariant()
    def nothing_comes_twice(self) -> None:
        for _, member in self.members:
            self.collect_from(member)
        assert all(times == 1 for times in self.received.values())

    def teardown(self) -> None:
        self.cluster.settle()
        self.nothing_comes_twice()
        assert len(self.received) + self.cluster.dropped() + self.unmatched == self.published


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=30)


@given(st.binary(min_size=1, max_size=20), st.integers(0, 2**32 - 1), st.integers(0, 3), st.binary(max_size=20))
def test_items_are_read_as_they_were_written(name: bytes, number: int, flags: int, packets: bytes) -> None:
    chunk = wrap(name, number, flags, packets)
    items = unwrap(chunk * 2)
    assert [(item.filter, item.number, item.flags, item.run) for item in items] == [(name, number, flags, packets)] * 2
    for cut in range(1, len(chunk)):
        with pytest.raises(PacketError):
            unwrap(chunk[:cut])


@given(st.lists(st.integers(1, 268_435_455), max_size=3), st.sampled_from([1, 2]), st.binary(max_size=200))
def test_identifiers_are_taken_out_of_a_packet(identifiers: list[int], qos: int, payload: bytes) -> None:
    rest = b"\x01\x01"
    plain = encode.publish(5, b"t", payload, qos=qos, packet_id=5, encoded_properties=rest)
    front = b"".join(map(subscription_identifier, identifiers))
    packet = encode.publish(5, b"t", payload, qos=qos, packet_id=5, encoded_properties=front + rest)
    assert without_identifiers(packet) == plain
