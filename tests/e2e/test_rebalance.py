"""A replicant that joins gets its share of the connections that are there, and no will is published for that."""

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import paho.mqtt.client as paho
from harness import SERVICE_HOST, SERVICE_PORT, MqttCluster, User, until
from paho.mqtt.enums import CallbackAPIVersion

CLIENTS = 40
WILLS = "rebalance/wills"


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


def connections(demo: MqttCluster) -> list[int]:
    """Of each replicant."""
    with (
        demo.namespace.forward(f"{demo.name}-core-0", 18083) as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/nodes", timeout=10) as answer,
    ):
        return [node["connections"] for node in json.load(answer) if node["role"] == "replicant"]


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
