"""What clients see of a plugin, of rewritten topics, of auto-subscriptions and of `$SYS`, on a real node."""

from __future__ import annotations

import json
import signal
import urllib.request

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from flockmq import __version__
from flockmq.bounds import PLUGIN_FAILURES_MAX
from integration.broker.clients import PATIENCE_S, V5, V311, Client
from integration.broker.conftest import Node
from integration.plugins.conftest import API_KEY, Place

GREETER = """
[plugins]
enabled = ["greeter"]
[plugins.settings.greeter]
greeting = "welcome"
strangers = ["mallory"]
"""
CLIENTS_ARE_TOLD_OF = """
[authorization]
no_match = "allow"
sources = [{ type = "file", rules = [{ permit = "allow", topics = ["$SYS/brokers/+/clients/#"] }] }]
"""


def enable(node: Node, name: str) -> dict[str, object]:
    url = f"http://127.0.0.1:{node.management}/api/v1/plugins/{name}/enable"
    request = urllib.request.Request(url, method="POST", headers={"Authorization": f"Bearer {API_KEY}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        row: dict[str, object] = json.load(answer)
    return row


@pytest.mark.parametrize("version", [V311, V5])
def test_an_installed_plugin_greets_shouts_and_keeps_strangers_out(place: Place, version: MQTTProtocolVersion) -> None:
    node = place.node(GREETER)
    with Client(node.mqtt, "host", version) as host:
        host.subscribe("hall/#")
        host.subscribe("garden")
        with Client(node.mqtt, "guest", version) as guest:
            heard = iter(lambda: host.receive()[:2], None)
            assert ("hall/greetings", "welcome, guest from 127.0.0.1") in heard
            talk = (each for each in heard if each[0] != "hall/greetings")  # the host's own may come late
            for qos in (0, 1, 2):
                guest.publish("hall/talk", "hello", qos)
                assert next(talk) == ("hall/talk", "HELLO")
            guest.publish("garden", "whisper")
            assert next(talk) == ("garden", "whisper")
        stranger = paho.Client(CallbackAPIVersion.VERSION2, "mallory", protocol=version, reconnect_on_failure=False)
        refused: list[bool] = []
        stranger.on_connect = lambda client, data, flags, reason, own: refused.append(reason.is_failure)
        stranger.connect("127.0.0.1", node.mqtt)
        stranger.loop_forever()
        assert refused == [True]
    (row,) = node.get("/api/v1/plugins")
    assert (row["name"], row["version"], row["state"]) == ("greeter", "1.2.3", "running")
    assert row["points"] == ["client.connect", "client.connected", "message.publish"]
    assert node.command.end(signal.SIGTERM) == 0
    assert "flockmq.plugins.greeter: goodbye" in node.command.errors()


def test_a_plugin_that_fails_is_fenced_off_and_enabled_again(place: Place) -> None:
    node = place.node(GREETER)
    with Client(node.mqtt, "c") as client:
        client.subscribe("hall/talk")
        for number in range(PLUGIN_FAILURES_MAX):
            client.publish("hall/talk", bytes((0xFF, number)))  # type: ignore[arg-type]  # which isn't text
            assert client.messages.get(timeout=PATIENCE_S).payload == bytes((0xFF, number))
        (row,) = node.get("/api/v1/plugins")
        assert (row["state"], row["failures"]) == ("fenced", PLUGIN_FAILURES_MAX)
        assert "UnicodeDecodeError" in row["last_failure"]
        client.publish("hall/talk", "hello")
        assert client.receive()[1] == "hello"
        assert enable(node, "greeter")["state"] == "running"
        client.publish("hall/talk", "hello")
        assert client.receive()[1] == "HELLO"
    assert node.command.end(signal.SIGTERM) == 0
    fenced = [line for line in node.command.errors().splitlines() if "is fenced off" in line]
    assert len(fenced) == 1


@pytest.mark.parametrize(
    ("configuration", "code", "said"),
    [
        ('[plugins]\nenabled = ["nobody"]', 2, "plugins.enabled: no plugin 'nobody' is installed; installed: greeter"),
        (
            '[plugins]\nenabled = ["greeter"]',
            1,
            "plugin greeter failed to start: ValidationError: Object missing requir",
        ),
        (
            '[[rewrite]]\nsource_topic = "a"\nre = "("\ndest_topic = "b"',
            2,
            "rewrite[0]: re '(': not an expression of RE2",
        ),
    ],
)
def test_what_cannot_work_is_one_line_at_the_start(place: Place, configuration: str, code: int, said: str) -> None:
    ended, line = place.refused(configuration)
    assert ended == code
    assert said in line


RULES = """
[[rewrite]]
source_topic = "v1/#"
re = "^v1/(.+)$"
dest_topic = "devices/${clientid}/$1"
[[auto_subscribe]]
topic = "devices/${clientid}/cmd"
qos = 1
"""


@pytest.mark.parametrize("version", [V311, V5])
def test_topics_are_rewritten_and_clients_subscribed_by_the_configuration(
    place: Place, version: MQTTProtocolVersion
) -> None:
    node = place.node(RULES)
    with Client(node.mqtt, "app", version) as app, Client(node.mqtt, "dev", version) as device:
        app.publish("devices/dev/cmd", "do it")
        assert device.receive()[:3] == ("devices/dev/cmd", "do it", 1)
        app.subscribe("devices/+/state", 2)
        for qos in (0, 1, 2):
            device.publish("v1/state", f"qos {qos}", qos, retain=True)
            assert app.receive()[:3] == ("devices/dev/state", f"qos {qos}", qos)
        device.subscribe("v1/state")
        assert device.receive() == ("devices/dev/state", "qos 2", 1, True)


def test_dollar_sys_answers_at_once_and_is_the_brokers_own(place: Place) -> None:
    node = place.node('[sys_topics]\nsys_msg_interval = "1s"\nsys_heartbeat_interval = "1s"\n' + CLIENTS_ARE_TOLD_OF)
    with Client(node.mqtt, "watcher") as watcher:
        watcher.subscribe("$SYS/broker/version", 0)
        assert watcher.receive() == ("$SYS/broker/version", f"flockmq version {__version__}", 0, True)
        watcher.publish("$SYS/broker/version", "forged", 0)
        assert watcher.receive() == ("$SYS/broker/version", f"flockmq version {__version__}", 0, False)
        watcher.subscribe("$SYS/brokers/n1/clients/#", 0)
        with Client(node.mqtt, "dev", V311):
            topic, payload, _, _ = watcher.receive()
            while topic == "$SYS/broker/version":
                topic, payload, _, _ = watcher.receive()
        assert topic == "$SYS/brokers/n1/clients/dev/connected"
        assert json.loads(payload)["ipaddress"] == "127.0.0.1"


def test_a_publish_to_dollar_sys_is_denied(place: Place) -> None:
    node = place.node("")
    reasons: list[int] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, "c", protocol=V5)
    client.on_publish = lambda client, data, mid, reason, own: reasons.append(reason.value)
    client.connect("127.0.0.1", node.mqtt)
    client.publish("$SYS/broker/version", "forged", 1)
    while not reasons:
        assert client.loop(PATIENCE_S) == MQTTErrorCode.MQTT_ERR_SUCCESS
    assert reasons == [0x87]
    client.disconnect()
