"""A QoS 2 message for a shared subscription that is sent again: no other member gets it too."""

from __future__ import annotations

import pytest

from flockmq.bounds import SHARED_DEALS_MAX
from flockmq.mqtt.message import Publish, publication
from flockmq.routing.message_id import ORIGIN, origin_of, session_source
from flockmq.routing.shared_frames import SHARED, find_deal
from flockmq.routing.shared_groups import STRATEGIES
from unit.broker.protocol.harness import Client, Node, publish
from unit.broker.routing.shared_cluster import GROUP, Cluster, got


def numbered(number: int, deals: bytes = b"") -> Publish:
    """A message of a durable session, as its owner names it."""
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
