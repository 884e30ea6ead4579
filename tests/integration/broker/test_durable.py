"""Durable sessions, through kill -9 of everything they touch: the node of the connection, their owner, all at once."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable

import paho.mqtt.client as paho
import pytest

from flockmq.bounds import SLOTS
from integration.broker.clients import PATIENCE_S, V5, Client, await_route
from integration.broker.conftest import Fleet, Node, eventually

SILENCE_S = 0.5


class Cluster:
    """Two cores, and two replicants for clients."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.cores = [fleet.core("core-0"), fleet.core("core-1")]
        self.here, self.there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")

    def owner(self) -> Node:
        """Of a durable session."""
        return next(core for core in self.cores if core.metric("flockmq_sessions_persistent"))

    def kill_connection(self) -> None:
        """The node of the connection."""
        self.here.kill()

    def kill_owner(self) -> None:
        self.kill_core(self.owner())

    def kill_core(self, core: Node) -> None:
        core.kill()
        self.cores.remove(core)

    def kill_all(self) -> None:
        """And start as many anew, with the same Redis."""
        for node in (*self.cores, self.here, self.there):
            node.kill()
        self.cores = [self._fleet.core("core-0"), self._fleet.core("core-1")]
        self.here, self.there = self._fleet.replicant("replicant-0"), self._fleet.replicant("replicant-1")


KILLS: list[Callable[[Cluster], None]] = [Cluster.kill_connection, Cluster.kill_owner, Cluster.kill_all]


@pytest.fixture
def cluster(fleet: Fleet) -> Cluster:
    return Cluster(fleet)


@pytest.mark.parametrize("kill", KILLS)
def test_a_session_survives_with_its_subscriptions_and_messages(
    cluster: Cluster, kill: Callable[[Cluster], None]
) -> None:
    with Client(cluster.here.mqtt, "device", lasts=True) as device:
        device.subscribe("a/#", 2)
        with Client(cluster.there.mqtt, "publisher") as publisher:
            await_route(publisher, "a/probe", device)
            device.lose_connection()
            sent = [f"{number} at QoS {qos}" for number in range(20) for qos in (1, 2)]
            for payload in sent:
                publisher.publish("a/queued", payload, int(payload[-1]))
    kill(cluster)
    with Client(cluster.there.mqtt, "device", lasts=True) as back:
        assert back.session_present
        received = [back.receive()[1] for _ in sent]
        for qos in "12":  # paho hands a QoS 2 message on at its PUBREL
            assert of_qos(received, qos) == of_qos(sent, qos)
        with Client(cluster.there.mqtt, "publisher") as publisher:
            publisher.publish("a/live", "now", 1)
            assert back.receive()[:2] == ("a/live", "now")
        assert drained(back) == []


def test_a_publisher_goes_as_fast_as_a_subscriber_on_another_node_whose_session_lasts(cluster: Cluster) -> None:
    """Rather than fill its queue, for which it would be cut off."""
    payloads = [str(number) for number in range(3000)]
    with (
        Client(cluster.here.mqtt, "device", lasts=True, acknowledges=False) as device,
        Client(cluster.there.mqtt, "publisher") as publisher,
    ):
        device.subscribe("a/#", 1)
        await_route(publisher, "a/probe", device, qos=0)
        for payload in payloads:
            publisher.start_publishing("a/fast", payload)
        received = []
        while len(received) < len(payloads):
            message = device.messages.get(timeout=PATIENCE_S)
            time.sleep(0.001)  # which is how long it takes it
            device.acknowledge(message)
            received.append(message.payload.decode())
        assert received == payloads
        assert not device.disconnected.is_set()
    assert cluster.owner().metric("flockmq_messages_dropped") == 0


@pytest.mark.parametrize("qos", [1, 2])
def test_a_connection_elsewhere_does_not_notice_that_its_owner_crashed(cluster: Cluster, qos: int) -> None:
    """What is under way stays so, under its packet ids; nothing comes twice."""
    with (
        Client(cluster.here.mqtt, "device", lasts=True, acknowledges=False) as device,
        Client(cluster.there.mqtt, "publisher") as publisher,
    ):
        device.subscribe("a/#", qos)
        await_route(publisher, "a/probe", device, qos=0)
        for number in range(5):
            publisher.publish("a/before", str(number), qos)
        before = [device.messages.get(timeout=PATIENCE_S) for _ in range(5)]
        cluster.kill_owner()
        publisher.publish("a/after", "5", qos)
        last = device.messages.get(timeout=PATIENCE_S)
        assert [message.payload for message in (*before, last)] == [b"%d" % number for number in range(6)]
        assert last.mid not in {message.mid for message in before}
        for message in before[:3]:
            device.acknowledge(message)
        with Client(cluster.there.mqtt, "other") as other:
            other.publish("a/marker", "6", qos)
        assert device.messages.get(timeout=PATIENCE_S).payload == b"6"
        assert not device.disconnected.is_set()
        eventually(lambda: [core.metric("flockmq_sessions_persistent") for core in cluster.cores] == [1.0], "one owner")


def test_the_one_member_of_a_shared_subscription_misses_nothing_while_its_slot_has_no_owner(cluster: Cluster) -> None:
    with (
        Client(cluster.here.mqtt, "device", lasts=True) as device,
        Client(cluster.there.mqtt, "publisher") as publisher,
    ):
        device.subscribe("$share/g/a/#", 1)
        await_route(publisher, "a/probe", device)
        cluster.kill_owner()
        for number in range(20):
            publisher.publish("a/b", str(number), 1)
        assert [device.receive()[1] for _ in range(20)] == [str(number) for number in range(20)]
        assert drained(device) == []


def test_what_is_under_way_comes_again_under_its_packet_ids_after_a_crash_of_its_owner(cluster: Cluster) -> None:
    with (
        Client(cluster.here.mqtt, "device", lasts=True, acknowledges=False) as device,
        Client(cluster.there.mqtt, "publisher") as publisher,
    ):
        device.subscribe("a/#", 1)
        await_route(publisher, "a/probe", device, qos=0)
        for number in range(5):
            publisher.publish("a/b", str(number), 1)
        sent = [device.messages.get(timeout=PATIENCE_S) for _ in range(5)]
        cluster.kill_owner()
        device.lose_connection()
        with Client(cluster.there.mqtt, "device", lasts=True, acknowledges=False) as back:
            assert back.session_present
            again = [back.messages.get(timeout=PATIENCE_S) for _ in range(5)]
    assert named(again) == named(sent)
    assert all(message.dup for message in again)


def test_what_was_acknowledged_does_not_come_again(cluster: Cluster) -> None:
    with (
        Client(cluster.here.mqtt, "device", lasts=True, acknowledges=False) as device,
        Client(cluster.there.mqtt, "publisher") as publisher,
    ):
        device.subscribe("a/#", 1)
        await_route(publisher, "a/probe", device, qos=0)
        for number in range(5):
            publisher.publish("a/b", str(number), 1)
        sent = [device.messages.get(timeout=PATIENCE_S) for _ in range(5)]
        for message in sent[:3]:
            device.acknowledge(message)
        device.subscribe("b", 1)  # answered behind what it acknowledged, which its node may not have read before
    with Client(cluster.there.mqtt, "device", lasts=True, acknowledges=False) as back:
        assert drained(back) == ["3", "4"]


@pytest.mark.parametrize("kill", KILLS)
def test_QoS_2_is_exactly_once_from_client_to_client(cluster: Cluster, kill: Callable[[Cluster], None]) -> None:
    """Both have durable sessions; the publisher repeats what it isn't sure of."""
    with Client(cluster.there.mqtt, "device", lasts=True) as device:
        device.subscribe("a/#", 2)
        with Client(cluster.here.mqtt, "publisher", lasts=True) as publisher:
            await_route(publisher, "a/probe", device)
            first = [publisher.start_publishing("a/b", str(number), 2) for number in range(200)]
            first[100].wait_for_publish(PATIENCE_S)
            kill(cluster)
            if kill is not Cluster.kill_owner:
                assert publisher.disconnected.wait(PATIENCE_S)
                publisher.move(cluster.there.mqtt)
                assert publisher.session_present
            for sent in first:
                sent.wait_for_publish(PATIENCE_S)
                assert sent.is_published()
            publisher.publish("a/b", "last", 2)
        if device.disconnected.is_set():
            device.move(cluster.there.mqtt)
            assert device.session_present
        received: list[str] = []
        while "last" not in received:
            received.append(device.receive()[1])
    assert received == [*map(str, range(200)), "last"]


def test_the_will_of_a_client_is_published_when_its_node_dies(cluster: Cluster) -> None:
    with (
        Client(cluster.there.mqtt, "watcher") as watcher,
        Client(cluster.here.mqtt, "device", will=("wills/device", "gone"), lasts=True) as device,
    ):
        watcher.subscribe("wills/#")
        await_route(device, "wills/probe", watcher)
        cluster.here.kill()
        assert watcher.receive()[:2] == ("wills/device", "gone")
        with Client(cluster.there.mqtt, "device", lasts=True) as back:
            assert back.session_present
        with pytest.raises(queue.Empty):
            watcher.messages.get(timeout=SILENCE_S)


def test_a_session_expires_though_its_owner_crashed(cluster: Cluster) -> None:
    with Client(cluster.here.mqtt, "brief", lasts=True, expiry_s=3) as brief:
        brief.subscribe("a/#", 1)
        owner = cluster.owner()
    others = [f"long-{number}" for number in range(20)]  # of slots of both cores
    for client_id in others:
        with Client(cluster.here.mqtt, client_id, lasts=True):
            pass
    cluster.kill_core(owner)
    (core,) = cluster.cores
    eventually(lambda: core.metric("flockmq_owned_slots") == SLOTS, "all slots are its own")
    eventually(lambda: not core.metric("flockmq_owned_slots_loading"), "it has all sessions")
    eventually(lambda: core.metric("flockmq_sessions_persistent") == len(others), "one expired, the others are there")
    with Client(cluster.there.mqtt, "brief", lasts=True) as back:
        assert not back.session_present
    for client_id in others:
        with Client(cluster.there.mqtt, client_id, lasts=True) as back:
            assert back.session_present


@pytest.mark.parametrize("lasts", [False, True])
def test_clean_start_on_another_node_ends_it(cluster: Cluster, lasts: bool) -> None:
    with Client(cluster.here.mqtt, "device", lasts=True) as device:
        device.subscribe("a/#", 1)
        with Client(cluster.there.mqtt, "device", V5) as clean:
            assert device.disconnected.wait(PATIENCE_S)
            assert device.reason == "Session taken over"
            assert not clean.session_present
    if lasts:
        cluster.kill_all()
    with Client(cluster.there.mqtt, "publisher") as publisher:
        publisher.publish("a/b", "for nobody", 1)
    with Client(cluster.there.mqtt, "device", lasts=True) as anew:
        assert not anew.session_present
        assert drained(anew) == []


def of_qos(payloads: list[str], qos: str) -> list[str]:
    return [payload for payload in payloads if payload.endswith(qos)]


def named(messages: list[paho.MQTTMessage]) -> list[tuple[int, bytes]]:
    return [(message.mid, bytes(message.payload)) for message in messages]


def drained(client: Client) -> list[str]:
    """Payloads, until nothing comes for a while."""
    payloads: list[str] = []
    while True:
        try:
            payloads.append(client.messages.get(timeout=SILENCE_S).payload.decode())
        except queue.Empty:
            return payloads
