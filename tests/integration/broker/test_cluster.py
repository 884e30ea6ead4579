"""What clients see of a cluster: messages, retained messages, wills and takeovers cross nodes; nodes die unnoticed."""

from __future__ import annotations

import signal

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from integration.broker.clients import V5, V311, Client, await_route
from integration.broker.conftest import Fleet, Node, eventually


@pytest.mark.parametrize("version", [V311, V5])
def test_messages_retained_messages_wills_and_takeovers_cross_nodes(fleet: Fleet, version: MQTTProtocolVersion) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")

    with Client(here.mqtt, "subscriber", version) as subscriber, Client(there.mqtt, "publisher", version) as publisher:
        subscriber.subscribe("a/+/c", 2)
        await_route(publisher, "a/probe/c", subscriber)
        for qos in (0, 1, 2):
            publisher.publish("a/b/c", f"qos {qos}", qos)
            assert subscriber.receive()[:3] == ("a/b/c", f"qos {qos}", qos)

        publisher.publish("kept", "retained", 1, retain=True)
        with Client(here.mqtt, "late", version) as late:
            late.subscribe("kept")
            assert late.receive() == ("kept", "retained", 1, True)
            publisher.publish("kept", "", 1, retain=True)
            assert late.receive() == ("kept", "", 1, False)

        subscriber.subscribe("wills/#")
        with Client(there.mqtt, "mortal", version, will=("wills/mortal", "gone")) as mortal:
            await_route(mortal, "wills/probe", subscriber)
            mortal.lose_connection()
            assert subscriber.receive()[:2] == ("wills/mortal", "gone")

        with Client(there.mqtt, "subscriber", version) as newer:
            assert subscriber.disconnected.wait(10), "the older connection stays"
            if version == V5:
                assert subscriber.reason == "Session taken over"
            newer.subscribe("a/#")
            newer.publish("a", "still here")
            assert newer.receive()[:2] == ("a", "still here")


def test_what_is_retained_behind_a_suback_comes_live_and_once(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        for number in range(20):
            topic = f"state/{number}"
            subscriber.subscribe(topic, 2)
            publisher.publish(topic, "on", 2, retain=True)
            publisher.publish(topic, "the next", 2)
            assert subscriber.receive() == (topic, "on", 2, False)
            assert subscriber.receive() == (topic, "the next", 2, False)


def test_a_dead_replicants_routes_are_purged_and_its_client_comes_back_elsewhere(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    doomed, other = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(doomed.mqtt, "device") as device:
        device.subscribe("device/cmd")
        eventually(lambda: routes(core.get("/api/v1/nodes"), "core-0") == 1, "the core has the route")
        doomed.kill()
        assert device.disconnected.wait(10)
        with Client(other.mqtt, "device") as again:
            again.subscribe("device/state")
            eventually(lambda: names(core) == ["core-0", "replicant-1"], "the dead node is purged")
            eventually(lambda: routes(core.get("/api/v1/nodes"), "core-0") == 1, "the dead node's route is gone")
            again.publish("device/state", "back")
            assert again.receive()[:2] == ("device/state", "back")


def names(node: Node) -> list[str]:
    return [row["name"] for row in node.get("/api/v1/nodes")]


def routes(rows: list[dict[str, object]], name: str) -> object:
    return next(row["routes"] for row in rows if row["name"] == name)


def test_losing_a_core_drops_no_connection_and_writes_go_on(fleet: Fleet) -> None:
    leader = fleet.core("core-0")
    fleet.core("core-1")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        subscriber.subscribe("before")
        await_route(publisher, "before", subscriber)
        leader.kill()
        subscriber.subscribe("after")
        publisher.publish("before", "1")
        publisher.publish("kept", "2", retain=True)
        subscriber.subscribe("kept")
        assert {subscriber.receive()[:2], subscriber.receive()[:2]} == {("before", "1"), ("kept", "2")}
        with Client(there.mqtt, "new") as new:  # its owner may have been the dead core
            await_route(new, "after", subscriber)
            new.publish("after", "3")
            assert subscriber.receive()[:2] == ("after", "3")
        assert not subscriber.disconnected.is_set()
        assert not publisher.disconnected.is_set()


def test_a_redis_restart_drops_no_connection_and_loses_nothing_acknowledged(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        subscriber.subscribe("live")
        await_route(publisher, "live", subscriber)
        publisher.publish("kept", "before", retain=True)
        fleet.kill_redis()
        publisher.publish("live", "Redis is away")
        assert subscriber.receive()[:2] == ("live", "Redis is away")
        fleet.restart_redis()
        subscriber.subscribe("kept")
        assert subscriber.receive() == ("kept", "before", 1, True)
        publisher.publish("kept", "after", retain=True)
        assert subscriber.receive()[:2] == ("kept", "after")
        assert not subscriber.disconnected.is_set()
        assert not publisher.disconnected.is_set()


def test_a_malformed_packet_is_one_line_in_the_log_and_its_reason_code(fleet: Fleet) -> None:
    fleet.core("core-0")
    node = fleet.replicant("replicant-0")
    with Client(node.mqtt, "broken") as broken:
        broken.send(b"\x36\x03\x00\x01a")
        assert broken.disconnected.wait(10)
        assert broken.reason == "Malformed packet"
    node.command.end(signal.SIGTERM)
    line = next(line for line in node.command.errors().splitlines() if "client 'broken'" in line)
    assert "from 127.0.0.1:" in line
    assert line.endswith("PUBLISH with QoS 3 [MQTT-3.3.1-4]; closed with 0x81")


def test_a_node_that_stops_sends_its_clients_to_the_others(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with (
        Client(here.mqtt, "subscriber") as subscriber,
        Client(there.mqtt, "moves", will=("wills/moves", "gone")) as moves,
    ):
        subscriber.subscribe("wills/#")
        assert there.command.end(signal.SIGTERM) == 0
        assert moves.disconnected.wait(10)
        assert moves.reason == "Use another server"
        with Client(here.mqtt, "moves"):
            assert subscriber.messages.empty()


def test_the_wills_of_a_node_that_stops_reach_the_others(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1", FLOCKMQ_NODE__DRAIN_TIMEOUT="0")
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        subscriber.subscribe("wills/#")
        await_route(publisher, "wills/probe", subscriber)
        with (
            Client(there.mqtt, "plain", will=("wills/plain", "gone")) as plain,
            Client(there.mqtt, "kept", will=("wills/kept", "gone"), retains_will=True),
        ):
            there.command.end(signal.SIGTERM)
            assert plain.disconnected.wait(10)
            assert plain.reason == "Server shutting down"
            assert {subscriber.receive()[:2] for _ in range(2)} == {("wills/plain", "gone"), ("wills/kept", "gone")}
    with Client(here.mqtt, "late") as late:
        late.subscribe("wills/#")
        assert late.receive() == ("wills/kept", "gone", 1, True)


def test_a_stopped_node_that_goes_on_loses_nothing_acknowledged_and_keeps_the_order(fleet: Fleet) -> None:
    fleet.core("core-0")
    here, there = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        subscriber.subscribe("t/#")
        await_route(publisher, "t/probe", subscriber)
        here.command.process.send_signal(signal.SIGSTOP)
        try:
            for number in range(5):
                publisher.publish("t/x", f"stopped {number}")
        finally:
            here.command.process.send_signal(signal.SIGCONT)
        for number in range(5):
            publisher.publish("t/x", f"again {number}")
        wanted = [f"{when} {number}" for when in ("stopped", "again") for number in range(5)]
        assert [subscriber.receive()[1] for _ in wanted] == wanted


def test_a_node_that_starts_late_forwards_to_subscribers_that_were_there_before(fleet: Fleet) -> None:
    fleet.core("core-0")
    here = fleet.replicant("replicant-0")
    with Client(here.mqtt, "subscriber") as subscriber:
        subscriber.subscribe("t")
        with Client(fleet.replicant("replicant-1").mqtt, "publisher") as publisher:
            publisher.publish("t", "first")
        assert subscriber.receive()[:2] == ("t", "first")
