"""A replicant that joins gets its share of the connections that are there, by itself or by a MqttRebalance, and no will
is published for that. The Service doesn't lead to who sends clients away meanwhile."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
import pytest
from harness import SERVICE_HOST, SERVICE_PORT, Json, KubectlError, MqttCluster, User, until
from paho.mqtt.enums import CallbackAPIVersion

CLIENTS = 40
WILLS = "rebalance/wills"
ABOVE = 6
"""How many above the mean a MqttRebalance leaves: a few clients are underway while their node counts."""


@dataclass
class Fleet:
    """Clients that come back when they are sent away."""

    sent_away: list[str] = field(default_factory=list)
    wills: list[bytes] = field(default_factory=list)

    @contextlib.contextmanager
    def clients(self, user: User) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for number in range(CLIENTS):
                stack.enter_context(self._client(f"fleet-{number}", user))
            yield

    @contextlib.contextmanager
    def _client(self, client_id: str, user: User) -> Iterator[paho.Client]:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        client.username_pw_set(*user)
        client.will_set(WILLS, client_id, qos=1)
        client.reconnect_delay_set(1, 2)
        client.on_connect = lambda *_: client.subscribe(WILLS, 1)
        client.on_message = lambda _, __, message: self.wills.append(bytes(message.payload))
        client.on_disconnect = lambda *given: self._gone(client_id, str(given[3]))
        client.connect_async(SERVICE_HOST, int(SERVICE_PORT))
        client.loop_start()  # connects, and tries again where it can't
        try:
            yield client
        finally:
            client.disconnect()
            client.loop_stop()

    def _gone(self, client_id: str, reason: str) -> None:
        if reason == "Use another server":
            self.sent_away.append(client_id)


def told(demo: MqttCluster, path: str) -> Any:
    """What a core answers."""
    with (
        demo.namespace.forward(f"{demo.name}-core-0", 18083) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer,
    ):
        return json.load(answer)


def connections(demo: MqttCluster) -> list[int]:
    """Of each replicant."""
    return [node["connections"] for node in told(demo, "nodes") if node["role"] == "replicant"]


def most_crowded(demo: MqttCluster) -> str:
    """The pod of the replicant with the most connections."""
    replicants = [node for node in told(demo, "nodes") if node["role"] == "replicant"]
    name: str = max(replicants, key=lambda node: int(node["connections"]))["name"]
    return name


def served_by(demo: MqttCluster) -> set[str]:
    """The pods that the Service leads to."""
    slices = demo.namespace.list("endpointslices", f"kubernetes.io/service-name={demo.name}")
    endpoints = [endpoint for found in slices for endpoint in found.get("endpoints") or ()]
    return {endpoint["targetRef"]["name"] for endpoint in endpoints if endpoint["conditions"].get("ready", True)}


def wait_served_by(demo: MqttCluster, pods: set[str], what: str) -> None:
    until(lambda: served_by(demo) == pods, what, 30, lambda: served_by(demo))


def is_even(counts: list[int]) -> bool:
    return len(counts) == 2 and sum(counts) == CLIENTS and max(counts) - min(counts) <= 6


def test_a_replicant_that_joins_gets_its_share(demo: MqttCluster) -> None:
    rebalance = {"relativeThresholdPercent": 105, "absoluteThreshold": 3, "waitSeconds": 5}
    demo.patch({"rebalance": rebalance, "replicants": {"replicas": 1}})
    try:
        demo.wait_ready()
        fleet = Fleet()
        with fleet.clients(demo.first_user()):
            until(lambda: connections(demo) == [CLIENTS], "all are at the replicant", 60, lambda: connections(demo))
            demo.patch({"replicants": {"replicas": 2}})
            demo.wait_ready_pods("replicant", 2)
            until(lambda: is_even(connections(demo)), "each has its share", 120, lambda: connections(demo))
        assert fleet.sent_away
        assert fleet.wills == []
    finally:
        demo.patch({"rebalance": None, "replicants": {"replicas": 2}})
        demo.wait_ready()


def create(demo: MqttCluster, name: str, **spec: object) -> None:
    said = {"cluster": demo.name, "relativeThresholdPercent": 105, "absoluteThreshold": ABOVE, **spec}
    metadata = {"name": name}
    body = {"apiVersion": "flockmq.io/v1alpha1", "kind": "MqttRebalance", "metadata": metadata, "spec": said}
    demo.namespace.apply(body)


def status(demo: MqttCluster, name: str) -> Json:
    found: Json = demo.namespace.get("mqr", name).get("status", {})
    return found


def wait_how(demo: MqttCluster, name: str, phase: str, reason: str, timeout_s: float = 60) -> None:
    def probe() -> bool:
        now = status(demo, name)
        return [now.get("phase"), *(item["reason"] for item in now.get("conditions", ()))] == [phase, reason]

    until(probe, f"MqttRebalance {name} is {phase}: {reason}", timeout_s, lambda: status(demo, name))


def delete(demo: MqttCluster, name: str) -> None:
    demo.namespace.kubectl("delete", "mqr", name, "--timeout=60s")


@contextlib.contextmanager
def crowded(demo: MqttCluster) -> Iterator[Fleet]:
    """All clients are at one of two replicants, and nothing is rebalanced."""
    demo.patch({"rebalance": None, "replicants": {"replicas": 1}})
    demo.wait_ready()
    demo.wait_ready_pods("replicant", 1)
    fleet = Fleet()
    with fleet.clients(demo.first_user()):
        until(lambda: connections(demo) == [CLIENTS], "all are at the replicant", 60, lambda: connections(demo))
        demo.patch({"replicants": {"replicas": 2}})
        demo.wait_ready_pods("replicant", 2)
        demo.wait_ready()
        until(lambda: sorted(connections(demo)) == [0, CLIENTS], "a second one is there", 60, lambda: connections(demo))
        yield fleet


def test_a_mqtt_rebalance_says_what_it_would_do_does_it_once_and_can_be_stopped(demo: MqttCluster) -> None:
    with crowded(demo) as fleet:
        create(demo, "planned", dryRun=True)
        wait_how(demo, "planned", "Succeeded", "Planned")
        assert status(demo, "planned")["left"] == CLIENTS // 2
        assert fleet.sent_away == []

        replicants, donor = set(demo.ready_pods("replicant")), most_crowded(demo)
        wait_served_by(demo, replicants, "the Service leads to both replicants")
        create(demo, "first", rate=1)
        wait_served_by(demo, replicants - {donor}, "the replicant that sends clients away has left the Service")
        create(demo, "second")
        wait_how(demo, "second", "Failed", "AnotherRuns")
        until(lambda: status(demo, "first").get("moved"), "clients are moved", 60, lambda: status(demo, "first"))
        delete(demo, "first")
        rows = told(demo, "rebalance")["nodes"]
        assert {row["state"] for row in rows} == {"idle"}
        assert "stopped" in {row["asked"]["state"] for row in rows if row["asked"]}
        wait_served_by(demo, replicants, "it is in the Service again")
        delete(demo, "second")

        create(demo, "whole", rate=5)
        wait_how(demo, "whole", "Succeeded", "Balanced", 120)
        assert max(connections(demo)) <= CLIENTS // 2 + ABOVE
        wait_served_by(demo, replicants, "both are in the Service again")
        whole = status(demo, "whole")
        assert whole["startTime"] < whole["endTime"]
        assert "whole" in demo.namespace.kubectl("get", "mqr", "--output=wide")
    assert fleet.sent_away
    assert fleet.wills == []
    for name in ("planned", "whole"):
        delete(demo, name)


def test_a_mqtt_rebalance_of_a_cluster_that_is_not_there_says_so_and_goes(demo: MqttCluster) -> None:
    create(demo, "left-behind", cluster="gone")
    wait_how(demo, "left-behind", "Failed", "ClusterMissing")
    delete(demo, "left-behind")


def test_the_spec_of_a_mqtt_rebalance_cannot_change(demo: MqttCluster) -> None:
    create(demo, "fixed", dryRun=True)
    with pytest.raises(KubectlError, match="spec can't change: delete this MqttRebalance"):
        create(demo, "fixed", dryRun=False)
    delete(demo, "fixed")
