"""A node that is taken for dead comes back in its place, with its clients."""

from __future__ import annotations

import os
import signal

from integration.broker.clients import Client
from integration.broker.conftest import Fleet, Node, eventually


def members(core: Node) -> dict[str, str]:
    """Name → incarnation."""
    return {node["name"]: node["incarnation"] for node in core.get("/api/v1/nodes")}


def stop_until_purged(node: Node, core: Node) -> None:
    os.kill(node.command.process.pid, signal.SIGSTOP)
    eventually(lambda: node.name not in members(core), f"{node.name} is purged")
    os.kill(node.command.process.pid, signal.SIGCONT)


def test_a_purged_replicant_keeps_its_clients_but_those_that_may_have_missed_a_message(fleet: Fleet) -> None:
    core = fleet.core("core-0")
    node, other = fleet.replicant("replicant-0"), fleet.replicant("replicant-1")
    with (
        Client(node.mqtt, "at most once") as carefree,
        Client(node.mqtt, "publisher") as publisher,
        Client(node.mqtt, "at least once") as careful,
        Client(other.mqtt, "elsewhere") as elsewhere,
    ):
        carefree.subscribe("to/carefree", 0)
        carefree.subscribe("$share/g/to/group", 0)
        careful.subscribe("to/careful", 1)
        elsewhere.subscribe("to/elsewhere", 1)
        former = members(core)["replicant-0"]
        stop_until_purged(node, core)
        eventually(lambda: "replicant-0" in members(core), "it is a member again")
        assert members(core)["replicant-0"] != former
        assert careful.disconnected.wait(10), "a client that may have missed a message stays"
        assert careful.reason == "Server shutting down"
        publisher.publish("to/elsewhere", "from the node that came back", 1)
        assert elsewhere.receive()[:2] == ("to/elsewhere", "from the node that came back")
        for topic in ("to/carefree", "to/group"):
            eventually(lambda topic=topic: reaches(elsewhere, carefree, topic), f"{topic} has its route again")  # type: ignore[misc]
        with Client(other.mqtt, "at most once") as newer:  # its owner knows of the older connection
            assert carefree.disconnected.wait(10)
            newer.subscribe("to/newer", 1)
        assert not publisher.disconnected.is_set()
    assert node.is_running()


def test_a_purged_core_comes_back_and_is_the_owner_of_clients_again(fleet: Fleet) -> None:
    cores = [fleet.core(f"core-{n}") for n in range(3)]
    node = fleet.replicant("replicant-0")
    eventually(lambda: cores[0].get("/api/v1/status")["leader"], "one leads")
    leads = cores[0].get("/api/v1/status")["leader"].partition("@")[0]
    leader = next(core for core in cores if core.name == leads)
    (witness, _) = (core for core in cores if core is not leader)
    former = members(witness)[leads]
    stop_until_purged(leader, witness)
    eventually(lambda: members(witness).get(leads, former) != former, "it is a member again")
    assert len(members(witness)) == 4
    for n in range(50):
        with Client(node.mqtt, f"client {n}") as client:
            client.subscribe("echo", 1)
            client.publish("echo", str(n), 1)
            assert client.receive()[1] == str(n)
    assert all(core.is_running() for core in cores)


def reaches(publisher: Client, subscriber: Client, topic: str) -> bool:
    publisher.publish(topic, "again", 0)
    return not subscriber.messages.empty() and subscriber.receive()[0] == topic
