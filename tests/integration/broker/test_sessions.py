"""Durable sessions, on real nodes with a real client: on one node, from node to node, under traffic."""

from __future__ import annotations

import queue
import threading

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from integration.broker.clients import V5, V311, Client, await_route
from integration.broker.conftest import Fleet

WAITS_S = 2.0


@pytest.mark.parametrize("version", [V311, V5])
def test_a_session_waits_for_its_client_and_moves_to_where_it_comes_back(
    fleet: Fleet, version: MQTTProtocolVersion
) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(there.mqtt, "publisher", version) as publisher:
        with Client(here.mqtt, "fleet-7", version, lasts=True) as first:
            assert not first.session_present
            first.subscribe("a/#", 2)
            await_route(publisher, "a/probe", first)
        for number, node in enumerate((here, there, here, here)):
            for qos in (1, 2):
                publisher.publish(f"a/{number}", f"qos {qos}", qos)
            with Client(node.mqtt, "fleet-7", version, lasts=True) as back:
                assert back.session_present
                assert [back.receive()[:3] for _ in (1, 2)] == [(f"a/{number}", f"qos {qos}", qos) for qos in (1, 2)]
                publisher.publish("a/live", "now", 1)
                assert back.receive()[:2] == ("a/live", "now")
        with Client(there.mqtt, "fleet-7", version) as clean:
            assert not clean.session_present
        publisher.publish("a/late", "for nobody", 1)
        with Client(here.mqtt, "fleet-7", version, lasts=True) as anew:
            assert not anew.session_present
            with pytest.raises(queue.Empty):
                anew.messages.get(timeout=0.3)


def test_no_acknowledged_message_is_lost_to_a_client_that_keeps_moving(fleet: Fleet) -> None:
    fleet.core("core-0")
    nodes = [fleet.replicant("replicant-0"), fleet.replicant("replicant-1")]
    stop = threading.Event()
    sent = 0

    def publish_on(node_port: int) -> None:
        nonlocal sent
        with Client(node_port, "publisher") as publisher:
            while not stop.is_set():
                publisher.publish("a/b", str(sent), 1)
                sent += 1

    seen: set[int] = set()
    with Client(nodes[0].mqtt, "rover", lasts=True) as rover:
        rover.subscribe("a/#", 1)
    publishing = threading.Thread(target=publish_on, args=(nodes[0].mqtt,))
    publishing.start()
    try:
        for turn in range(8):
            with Client(nodes[turn % 2].mqtt, "rover", lasts=True) as rover:
                assert rover.session_present
                for _ in range(30):
                    seen.add(int(rover.receive()[1]))
            while not rover.messages.empty():  # what came, and was acknowledged, while it was leaving
                seen.add(int(rover.messages.get().payload))
    finally:
        stop.set()
        publishing.join()
    with Client(nodes[1].mqtt, "rover", lasts=True) as rover:
        while True:
            try:
                seen.add(int(rover.messages.get(timeout=WAITS_S).payload))
            except queue.Empty:
                break
    assert seen == set(range(sent))
