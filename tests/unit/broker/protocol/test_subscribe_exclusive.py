"""A SUBSCRIBE to `$exclusive/filter`: claimed before it counts, matched as the filter, given back when it goes."""

from __future__ import annotations

import pytest

from flockmq.mqtt import encode
from flockmq.mqtt.reason import Reason
from flockmq.protocol.client import DENIED
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node, publish

FILTER = b"$exclusive/t/+"


def unsubscribe(client: Client, filter: bytes) -> bytes:
    return encode.unsubscribe(client.protocol_version, 9, [filter])


def test_it_is_matched_as_the_filter_behind_it(node: Node) -> None:
    client = node.client("c", 5)
    assert node.subscribe(client, (FILTER.decode(), 1))[0][-1] == 1
    node.feed(node.client("p"), publish(4, "t/1", "x") + publish(4, "$exclusive/t/1", "not this"))
    (packet,) = client.packets()
    assert packet.endswith(b"t/1\0x")
    assert [subscription.filter for subscription in node.port.given] == [FILTER], "retained messages are to be sent"


def test_another_client_is_refused_that_filter_and_gets_the_rest(node: Node) -> None:
    node.port.taken[FILTER] = Reason.QUOTA_EXCEEDED
    client = node.client("c", 5)
    (suback,) = node.subscribe(client, ("a", 1), (FILTER.decode(), 1), ("$exclusive/b", 2))
    assert suback[-3:] == bytes((1, Reason.QUOTA_EXCEEDED, 2))
    node.feed(node.client("p"), publish(4, "t/1", "x"))
    assert client.packets() == []
    assert node.router.counters.subscriptions == 2


def test_nothing_is_delivered_nor_read_before_the_claim_is_decided(node: Node) -> None:
    client = node.client("c", 5)
    node.port.hold = True
    assert node.subscribe(client, (FILTER.decode(), 1)) == []
    node.feed(client, unsubscribe(client, FILTER))
    node.feed(node.client("p"), publish(4, "t/1", "early"))
    assert client.packets() == []
    node.port.hold = False
    node.port.claiming[0]({})
    node.turn()
    suback, unsuback = client.packets()
    assert (suback[-1], unsuback[-1]) == (1, Reason.SUCCESS)
    assert node.port.dropped == [FILTER]


@pytest.mark.parametrize("ends", ["UNSUBSCRIBE", "the session"])
def test_it_is_given_back(node: Node, ends: str) -> None:
    client, plain = node.client("c", 5), node.client("plain", 5)
    node.subscribe(client, (FILTER.decode(), 1))
    node.subscribe(plain, ("t/+", 1))
    if ends == "UNSUBSCRIBE":
        node.feed(client, unsubscribe(client, FILTER))
    else:
        client.lost()
    assert node.port.dropped == [FILTER]
    assert node.router.has_local(b"t/+"), "the plain subscription stays"
    node.feed(node.client("p"), publish(4, "t/1", "x"))
    assert client.packets()[1:] == []
    assert len(plain.packets()) == 1


def test_a_claim_that_is_granted_to_who_is_gone_is_given_back(node: Node) -> None:
    client = node.client("c", 5)
    node.port.hold = True
    node.subscribe(client, (FILTER.decode(), 1), ("$exclusive/x", 1))
    client.lost()
    node.port.claiming[0]({b"$exclusive/x": Reason.QUOTA_EXCEEDED})
    assert node.port.dropped == [FILTER]


def test_a_filter_that_a_subscribe_says_twice_is_claimed_once(node: Node) -> None:
    client = node.client("c", 5)
    (suback,) = node.subscribe(client, (FILTER.decode(), 0), (FILTER.decode(), 1))
    assert suback[-2:] == bytes((0, 1))
    assert node.port.claims == [[FILTER]]


def test_a_claim_for_a_subscription_that_is_refused_is_given_back() -> None:
    node = Node(Limits(max_subscriptions=1))
    client = node.client("c", 5)
    (suback,) = node.subscribe(client, ("a", 1), (FILTER.decode(), 1))
    assert suback[-2:] == bytes((1, Reason.QUOTA_EXCEEDED))
    assert node.port.dropped == [FILTER]


def test_a_filter_that_was_denied_was_not_claimed_and_is_not_given_back(node: Node) -> None:
    client = node.client("c", 5)
    client.set_must_authorize(True)
    node.port.verdicts[FILTER] = DENIED
    (suback,) = node.subscribe(client, (FILTER.decode(), 1), ("$exclusive/x", 1))
    assert suback[-2:] == bytes((Reason.NOT_AUTHORIZED, 1))
    assert node.port.dropped == [], "another client of this node may have it"
