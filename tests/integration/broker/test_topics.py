"""Shared, exclusive and delayed across real nodes, with real clients; and nodes that die meanwhile."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from integration.broker.clients import V5, V311, Client
from integration.broker.conftest import Fleet, eventually

QUOTA_EXCEEDED = 0x97
TOPIC_NAME_INVALID = 0x90
QUIET_S = 1.0
"""Nothing more comes when nothing came for so long."""


def received(*members: Client) -> list[list[str]]:
    """What came to each, until nothing comes any more."""
    got: list[list[str]] = [[] for _ in members]
    last_s = time.monotonic()
    while time.monotonic() - last_s < QUIET_S:
        for member, payloads in zip(members, got, strict=True):
            with contextlib.suppress(queue.Empty):
                while True:
                    payloads.append(member.messages.get_nowait().payload.decode())
                    last_s = time.monotonic()
        time.sleep(0.02)
    return got


def spread(publisher: Client, members: list[Client], probes: int, is_spread: Callable[[list[list[str]]], bool]) -> None:
    """The counts of members reach the other nodes a moment after SUBACK."""

    def reached() -> bool:
        for number in range(probes):
            publisher.publish("t/probe", f"probe {number}")
        return is_spread(received(*members))

    eventually(reached, "every node knows of every member")


@pytest.mark.parametrize("version", [V311, V5])
def test_members_get_as_much_each_wherever_they_are(fleet: Fleet, version: MQTTProtocolVersion) -> None:
    fleet.core("core-0")
    busy, lonely, publishing = (fleet.replicant(f"replicant-{number}") for number in range(3))
    with contextlib.ExitStack() as stack:
        members = [
            stack.enter_context(Client(node.mqtt, f"member-{number}", version))
            for number, node in enumerate((busy, busy, busy, lonely))
        ]
        outside = stack.enter_context(Client(lonely.mqtt, "outside", version))
        publishers = [
            stack.enter_context(Client(node.mqtt, f"from-{node.name}", version)) for node in (publishing, busy)
        ]
        for member in members:
            member.subscribe("$share/workers/t/#")
        outside.subscribe("t/#")
        spread(publishers[0], members, 8, lambda got: all(len(payloads) == 2 for payloads in got))
        received(outside)
        for publisher in publishers:
            for number in range(100):
                publisher.publish("t/x", f"{publishers.index(publisher)} {number}", qos=number % 3)
        got = received(*members)
        assert [len(payloads) for payloads in got] == [50] * 4
        assert len({payload for payloads in got for payload in payloads}) == 200
        assert len(received(outside)[0]) == 200


def test_what_a_dying_member_did_not_acknowledge_goes_to_another_on_another_node(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with (
        Client(here.mqtt, "heir") as heir,
        Client(there.mqtt, "publisher") as publisher,
        Client(there.mqtt, "mortal", acknowledges=False) as mortal,
    ):
        mortal.subscribe("$share/workers/t/#")
        for number in range(50):  # 32 of them in flight
            publisher.publish("t/x", str(number))
        heir.subscribe("$share/workers/t/#")
        spread(publisher, [heir], 4, lambda got: len(got[0]) == 2)
        mortal.lose_connection()
        (got,) = received(heir)
        assert {payload for payload in got if payload.isdigit()} == {str(number) for number in range(50)}


def test_a_dead_nodes_members_leave_their_part_to_the_others(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    doomed, other, publishing = (fleet.replicant(f"replicant-{number}") for number in range(3))
    with (
        Client(doomed.mqtt, "doomed") as lost,
        Client(other.mqtt, "member") as member,
        Client(publishing.mqtt, "publisher") as publisher,
    ):
        for client in (lost, member):
            client.subscribe("$share/workers/t/#")
        spread(publisher, [lost, member], 2, lambda got: all(len(payloads) == 1 for payloads in got))
        doomed.kill()
        for number in range(20):  # the half that is for the dead node waits in its link's buffer until it is purged
            publisher.publish("t/x", str(number))
        eventually(lambda: len(core.get("/api/v1/nodes")) == 3, "the dead node is purged")
        for number in range(20, 40):
            publisher.publish("t/x", str(number))
        (got,) = received(member)
        assert Counter(got) == Counter(str(number) for number in range(40))


def test_an_exclusive_subscription_is_one_clients_in_the_whole_cluster(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with (
        Client(here.mqtt, "first") as first,
        Client(there.mqtt, "second") as second,
        Client(there.mqtt, "p") as publisher,
    ):
        first.subscribe("$exclusive/t/x")
        assert second.ask_for("$exclusive/t/x") == QUOTA_EXCEEDED
        second.subscribe("t/x")
        second.subscribe("$exclusive/t/y")
        eventually(lambda: publisher.publish("t/x", "probe") == 0 and not first.messages.empty(), "the route is known")
        received(first, second)
        publisher.publish("t/x", "for both")
        assert received(first, second) == [["for both"], ["for both"]]
        first.unsubscribe("$exclusive/t/x")
        eventually(lambda: second.ask_for("$exclusive/t/x") == 1, "it was given back")
        publisher.publish("t/x", "for the second")
        assert received(first, second) == [[], ["for the second"]], "who has both subscriptions gets it once"
        second.lose_connection()
        eventually(lambda: first.ask_for("$exclusive/t/x") == 1, "a session that ends gives back what it had")
        eventually(lambda: first.ask_for("$exclusive/t/y") == 1, "and all of it")


def test_of_many_who_ask_at_once_one_gets_it(fleet: Fleet) -> None:
    fleet.core("core-0")
    nodes = [fleet.replicant(f"replicant-{number}") for number in range(3)]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(nodes[n % 3].mqtt, f"c{n}")) for n in range(9)]
        for round in range(10):
            for client in clients:
                client.start_subscribing(f"$exclusive/t/{round}")
            reasons = [client.suback() for client in clients]
            assert Counter(reasons) == {1: 1, QUOTA_EXCEEDED: 8}


def test_a_dead_nodes_exclusive_subscriptions_are_free(fleet: Fleet) -> None:
    fleet.core("core-0")
    doomed, other = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(doomed.mqtt, "first") as first, Client(other.mqtt, "second") as second:
        first.subscribe("$exclusive/t")
        assert second.ask_for("$exclusive/t") == QUOTA_EXCEEDED
        doomed.kill()
        eventually(lambda: second.ask_for("$exclusive/t") == 1, "the dead node's claim is purged")


@pytest.mark.parametrize("killed", ["publishing", "leader", "both"])
def test_a_delayed_message_survives_the_node_that_took_it_and_the_leader(fleet: Fleet, killed: str) -> None:
    leader = fleet.core("core-0")
    fleet.core("core-1")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(there.mqtt, "subscriber") as subscriber:
        subscriber.subscribe("t/#", 2)
        with Client(here.mqtt, "publisher") as publisher:
            for qos in (0, 1, 2):
                assert publisher.publish("$delayed/8/t/x", f"qos {qos}", qos) == 0
            assert publisher.publish("$delayed/1/t/kept", "kept", 1, retain=True) == 0
            if killed in ("publishing", "both"):
                here.kill()
            if killed in ("leader", "both"):
                leader.kill()
            assert subscriber.receive() == ("t/kept", "kept", 1, False)
            wanted = {("t/x", f"qos {qos}", qos, False) for qos in (0, 1, 2)}
            assert {subscriber.receive() for _ in range(3)} == wanted
        assert received(subscriber) == [[]], "once each"
        with Client(there.mqtt, "late") as late:
            late.subscribe("t/kept")
            assert late.receive() == ("t/kept", "kept", 1, True)


def test_a_delayed_message_comes_when_it_is_due_and_not_before(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    node = fleet.replicant("replicant-0")
    with Client(node.mqtt, "subscriber") as subscriber, Client(node.mqtt, "publisher") as publisher:
        subscriber.subscribe("t", 1)
        subscriber.subscribe("$delayed/#", 1)
        sent_s = time.monotonic()
        publisher.publish("$delayed/3/t", "third")
        publisher.publish("$delayed/2/t", "second")
        publisher.publish("t", "first")
        assert [subscriber.receive()[1] for _ in range(3)] == ["first", "second", "third"]
        assert time.monotonic() - sent_s > 2.9
        eventually(lambda: core.metric("flockmq_delayed_messages") == 0, "nothing is left of them in the log")
        assert core.metric("flockmq_delayed_published_total") == 2


def test_a_malformed_delay_is_refused(fleet: Fleet) -> None:
    fleet.core("core-0")
    node = fleet.replicant("replicant-0")
    with Client(node.mqtt, "publisher") as publisher:
        for topic in ("$delayed/x/t", "$delayed/0/t", "$delayed/4294968/t", "$delayed/5/", "$delayed/5"):
            assert publisher.publish(topic, "never") == TOPIC_NAME_INVALID, topic
        assert publisher.publish("$delayed/4294967/t", "in fifty days") == 0


def test_shared_and_exclusive_subscriptions_follow_their_client(fleet: Fleet) -> None:
    owner = fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(there.mqtt, "publisher") as publisher, Client(there.mqtt, "other") as other:
        with Client(here.mqtt, "device", lasts=True) as device:
            device.subscribe("$share/workers/t/#")
            device.subscribe("$exclusive/x")
            spread(publisher, [device], 3, lambda got: len(got[0]) == 3)
            device.lose_connection()
        other.subscribe("$share/workers/t/#")
        spread(publisher, [other], 3, lambda got: len(got[0]) == 3)  # once it is known who is there, and who isn't
        other.unsubscribe("$share/workers/t/#")
        eventually(lambda: there.metric("flockmq_shared_groups") == 0, "nobody is there")
        for number in range(5):
            publisher.publish("t/x", f"waits {number}")
        with Client(there.mqtt, "device", lasts=True) as back:
            assert back.session_present
            waited = [payload for payload in received(back)[0] if not payload.startswith("probe")]
            assert waited == [f"waits {number}" for number in range(5)]
            publisher.publish("t/x", "live")
            publisher.publish("x", "alone")
            assert {back.receive()[1] for _ in range(2)} == {"live", "alone"}
            assert other.ask_for("$exclusive/x") == QUOTA_EXCEEDED
            assert owner.metric("flockmq_exclusive_subscriptions") == 1
