"""What clients see of replicants that reach one another through cores only."""

from __future__ import annotations

import pytest

from integration.broker.clients import V5, Client, await_route
from integration.broker.conftest import Fleet, Node, eventually


@pytest.fixture
def nodes(fleet: Fleet) -> tuple[Node, Node, Node, Node]:
    cores = fleet.core("core-0"), fleet.core("core-1")
    replicants = [fleet.replicant(f"replicant-{n}", FLOCKMQ_CLUSTER__FORWARDING="via-core") for n in range(2)]
    return *cores, *replicants


def test_messages_of_each_quality_and_shared_ones_cross_a_core(nodes: tuple[Node, Node, Node, Node]) -> None:
    *cores, here, there = nodes
    with Client(here.mqtt, "subscriber", V5) as subscriber, Client(there.mqtt, "publisher", V5) as publisher:
        subscriber.subscribe("a/+", 2)
        await_route(publisher, "a/probe", subscriber)
        for qos in (0, 1, 2):
            publisher.publish("a/b", f"qos {qos}", qos)
            assert subscriber.receive()[:3] == ("a/b", f"qos {qos}", qos)
        subscriber.subscribe("$share/all/s", 1)
        await_route(publisher, "s", subscriber)
        for number in range(20):
            publisher.publish("s", f"shared {number}", 1)
        assert [subscriber.receive()[1] for _ in range(20)] == [f"shared {number}" for number in range(20)]
        assert here.metric("flockmq_tunnelled_links") >= 1
        assert sum(core.metric("flockmq_relayed_tunnels") for core in cores) >= 1
        assert sum(core.metric("flockmq_relayed_bytes_total") for core in cores) > 0


def test_a_killed_core_takes_no_message_along(nodes: tuple[Node, Node, Node, Node]) -> None:
    *cores, here, there = nodes
    with Client(here.mqtt, "subscriber") as subscriber, Client(there.mqtt, "publisher") as publisher:
        subscriber.subscribe("live", 1)
        await_route(publisher, "live", subscriber)
        relay = next(core for core in cores if core.metric("flockmq_relayed_tunnels"))
        for number in range(100):
            if number == 50:
                relay.kill()
            publisher.publish("live", f"{number}", 1)
        assert [subscriber.receive()[1] for _ in range(100)] == [f"{number}" for number in range(100)]
        (other,) = (core for core in cores if core is not relay)
        eventually(lambda: other.metric("flockmq_relayed_tunnels") >= 1, "the other core passes messages on")
