"""What `$SYS` says, to whom, and when; and that it says nothing when nobody listens."""

from __future__ import annotations

import json

import pytest

from flockmq import __version__
from flockmq.clock import Clock
from flockmq.config.feature_settings import EventMessagesSettings, SysTopicsSettings
from flockmq.mqtt import encode
from flockmq.mqtt.message import Will
from flockmq.mqtt.packets import Connect
from flockmq.node.sys_topics import BROKER_FIGURES, FIGURES, About, SysTopics
from flockmq.protocol.channel import Channel
from flockmq.routing.subscriber import Subscription
from flockmq.routing.targets import NodeTarget
from flockmq.session.local_session import LocalSession
from flockmq.telemetry import metrics
from flockmq.telemetry.sample import Sample
from unit.broker.protocol.harness import Client, Node, Port, split

SAMPLES = [
    Sample("flockmq_connections", 3),
    Sample("flockmq_sessions_away", 2),
    Sample("flockmq_messages_dropped", 4, ("queue_full",)),
    Sample("flockmq_messages_dropped", 1, ("expired",)),
]


class Telling(Port):
    """A node whose clients hear of it. Its clock stands at 93,784 s after its start."""

    def __init__(self, settings: SysTopicsSettings | None = None) -> None:
        super().__init__()
        self.node = Node()
        self.node.port = self.node.serving(self)
        self.now_s = 0.0
        self.samples = SAMPLES
        about = About("n1", lambda: ["n2", "n1"], lambda: self.samples)
        self.system = SysTopics(
            settings or SysTopicsSettings(),
            about,
            self.node.router,
            self.flush_soon,
            Clock(lambda: self.now_s, lambda: 1e9),
        )
        self.now_s = 93_784.0

    def admit(self, channel: Channel, connect: Connect) -> None:
        super().admit(channel, connect)
        assert channel.session is not None
        self.system.connected(channel, connect, channel.session)

    def gone(self, channel: Channel, session: LocalSession, will: Will | None) -> None:
        super().gone(channel, session, will)
        self.system.disconnected(channel)

    def send_retained(self, subscriptions: list[Subscription], saw_all: bool) -> None:
        self.system.give(subscriptions)

    def watching(self, filter: str, options: int = 2 << 4) -> Client:
        """A subscriber; by default it asks for nothing retained."""
        client = self.node.client("watcher", 5)
        self.node.subscribe(client, (filter, options))
        return client


def said(packets: list[bytes]) -> dict[str, tuple[str, bool]]:
    """Topic → (payload, RETAIN) of version 5 PUBLISH packets."""
    told = {}
    for packet in packets:
        if packet[0] & 0xF0 == 0x30:
            body = 2 if packet[1] < 0x80 else 3
            end = body + 2 + (packet[body] << 8 | packet[body + 1])
            told[packet[body + 2 : end].decode()] = (packet[end + 1 :].decode(), packet[0] & 1 == 1)
    return told


def test_a_new_subscriber_gets_everything_at_once_as_retained() -> None:
    telling = Telling()
    client = telling.node.client("c", 5)
    told = said(telling.node.subscribe(client, ("$SYS/#", 0)))
    assert told["$SYS/brokers"] == ("n1,n2", True)
    assert told["$SYS/brokers/n1/version"] == (__version__, True)
    assert told["$SYS/brokers/n1/uptime"] == ("1 days, 2 hours, 3 minutes, 4 seconds", True)
    assert told["$SYS/brokers/n1/datetime"] == ("2001-09-09T01:46:40+00:00", True)
    assert told["$SYS/brokers/n1/stats/connections/count"] == ("3", True)
    assert told["$SYS/brokers/n1/metrics/messages/dropped"] == ("5", True)
    assert told["$SYS/broker/version"] == (f"flockmq version {__version__}", True)
    assert told["$SYS/broker/uptime"] == ("93784 seconds", True)
    assert told["$SYS/broker/clients/connected"] == ("3", True)
    assert told["$SYS/broker/clients/total"] == ("5", True)


def test_a_new_subscriber_gets_what_its_filter_matches() -> None:
    telling = Telling()
    client = telling.node.client("c", 5)
    assert list(said(telling.node.subscribe(client, ("$SYS/broker/+/connected", 0)))) == [
        "$SYS/broker/clients/connected"
    ]
    assert said(telling.node.subscribe(client, ("$SYS/broker/version", 2 << 4))) == {}


@pytest.mark.parametrize("filter", ["#", "+/broker/uptime", "+/#"])
def test_MQTT_4_7_2_1_a_wildcard_at_the_first_level_does_not_match(filter: str) -> None:
    telling = Telling()
    client = telling.node.client("c", 5)
    assert said(telling.node.subscribe(client, (filter, 0))) == {}
    telling.system.publish_values()
    telling.system.publish_heartbeat()
    telling.node.turn()
    assert client.packets() == []


def test_rounds_come_live_and_the_two_kinds_apart() -> None:
    telling = Telling()
    client = telling.watching("$SYS/#")
    telling.system.publish_heartbeat()
    telling.node.turn()
    beat = said(client.packets())
    assert set(beat) == {"$SYS/brokers/n1/uptime", "$SYS/brokers/n1/datetime", "$SYS/broker/uptime"}
    telling.system.publish_values()
    telling.node.turn()
    told = said(client.packets())
    assert not set(told) & set(beat)
    assert told["$SYS/brokers/n1/sysdescr"] == ("FlockMQ", False)


def test_the_most_clients_are_remembered() -> None:
    telling = Telling()
    client = telling.watching("$SYS/broker/clients/maximum")
    for connections in (7, 2):
        telling.samples = [Sample("flockmq_connections", connections)]
        telling.system.publish_values()
        telling.node.turn()
        assert said(client.packets()) == {"$SYS/broker/clients/maximum": ("7", False)}


class OtherNode(NodeTarget):
    """Keeps what is forwarded to it."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[bytes] = []

    def put_run(self, version: int, chunk: bytes) -> None:
        self.runs.append(chunk)


def test_only_what_names_its_node_goes_to_other_nodes() -> None:
    telling = Telling()
    peer = OtherNode()
    telling.node.router.remote.add(b"$SYS/#", peer)
    telling.system.publish_values()
    topics = {packet[4 : 4 + packet[3]] for run in peer.runs for packet in split(run)}
    assert b"$SYS/brokers" in topics
    assert b"$SYS/brokers/n1/version" in topics
    assert not [topic for topic in topics if topic.startswith(b"$SYS/broker/")]


def test_nothing_is_published_when_nobody_listens() -> None:
    telling = Telling()
    telling.node.client("c", 5)
    telling.system.publish_values()
    telling.system.publish_heartbeat()
    telling.node.client("d", 5).lost()
    assert telling.node.router.counters.messages_sent == 0
    assert not telling.node.router.knows(b"$SYS/brokers")
    assert not telling.node.router.knows(b"$SYS/brokers/n1/clients/d/connected")


def test_clients_are_told_of_when_they_come_and_go() -> None:
    telling = Telling()
    watcher = telling.watching("$SYS/brokers/+/clients/#")
    client = telling.node.client("dev", 4, Connect(4, b"dev", keep_alive_s=30))
    telling.node.feed(client, encode.disconnect(4))
    told = said(telling.node.feed(watcher, b""))
    connected = json.loads(told["$SYS/brokers/n1/clients/dev/connected"][0])
    assert connected["clientid"] == "dev"
    assert (connected["proto_ver"], connected["keepalive"], connected["clean_start"]) == (4, 30, True)
    assert connected["connected_at"] == connected["ts"] == 10**12
    disconnected = json.loads(told["$SYS/brokers/n1/clients/dev/disconnected"][0])
    assert disconnected["reason"] == "success"


def test_a_client_id_that_cannot_stand_in_a_topic_is_not_told_of() -> None:
    telling = Telling()
    watcher = telling.watching("$SYS/#")
    telling.node.client("a+b", 5)
    assert telling.node.feed(watcher, b"") == []


def test_what_is_switched_off_is_not_told() -> None:
    off = EventMessagesSettings(client_connected=False, client_disconnected=False)
    telling = Telling(SysTopicsSettings(sys_event_messages=off))
    watcher = telling.watching("$SYS/#")
    telling.node.client("dev").lost()
    assert telling.node.feed(watcher, b"") == []


async def test_an_interval_of_0_is_never() -> None:
    telling = Telling(SysTopicsSettings(sys_msg_interval=0, sys_heartbeat_interval=0))
    await telling.system.run()


def test_every_figure_is_a_metric() -> None:
    assert {figure.metric for figure in (*FIGURES, *BROKER_FIGURES)} <= {metric.name for metric in metrics.CATALOGUE}
