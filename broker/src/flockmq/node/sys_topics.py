"""The `$SYS` topics: a node publishes its status, with EMQX's topics and with Mosquitto's.

`$SYS/brokers/NODE/…` goes to subscribers on every node. `$SYS/broker/…`, which Mosquitto's tools use, describes the
node that the client is connected to, and goes to clients of that node only. Nothing is retained in the log: a new
subscriber gets the values of its own node at once from memory, as retained messages, and those of other nodes with
their next round.

Invariants: a message is made only if somebody is subscribed to its topic. All numbers come from the samples of
/metrics, so the two can't differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from flockmq import __version__
from flockmq.bounds import SYSTEM_VALUES_MAX_S
from flockmq.clock import Clock
from flockmq.config.feature_settings import SysTopicsSettings
from flockmq.default_callbacks import ignore
from flockmq.mqtt.errors import PacketError
from flockmq.mqtt.message import publication
from flockmq.mqtt.packets import Connect
from flockmq.mqtt.topics import check_topic_name
from flockmq.node.plugin_hooks import client_of
from flockmq.plugins.points import Client
from flockmq.protocol.channel import Channel
from flockmq.routing.retained_index import RetainedIndex
from flockmq.routing.router import Router
from flockmq.routing.subscriber import Subscription
from flockmq.session.client_session import ClientSession
from flockmq.telemetry.metrics import PACKETS, reason_name
from flockmq.telemetry.sample import Sample

PREFIX: Final = b"$SYS/"
LOCAL: Final = b"$SYS/broker/"
"""Topics that go to this node's own clients only."""


class Figure(NamedTuple):
    """A topic without its prefix, and the metric that it shows: the sum over all labels, or the value of `label`."""

    topic: str
    metric: str
    label: str = ""


FIGURES: Final = (
    Figure("stats/connections/count", "flockmq_connections"),
    Figure("stats/sessions/count", "flockmq_sessions"),
    Figure("stats/delayed/count", "flockmq_delayed_messages"),
    Figure("stats/subscriptions/count", "flockmq_subscriptions"),
    Figure("stats/subscriptions/shared/count", "flockmq_shared_subscriptions"),
    Figure("stats/topics/count", "flockmq_routes"),
    Figure("stats/routes/count", "flockmq_routes"),
    Figure("stats/retained/count", "flockmq_retained_messages"),
    Figure("metrics/bytes/received", "flockmq_received_bytes"),
    Figure("metrics/bytes/sent", "flockmq_sent_bytes"),
    Figure("metrics/messages/received", "flockmq_messages_received"),
    Figure("metrics/messages/sent", "flockmq_messages_sent"),
    *(Figure(f"metrics/messages/qos{qos}/received", "flockmq_messages_received", qos) for qos in "012"),
    *(Figure(f"metrics/messages/qos{qos}/sent", "flockmq_messages_sent", qos) for qos in "012"),
    *(Figure(f"metrics/packets/{type}/received", "flockmq_packets_received", type) for type in PACKETS.values()),
    Figure("metrics/packets/publish/received", "flockmq_messages_received"),
    Figure("metrics/packets/publish/sent", "flockmq_messages_sent"),
    Figure("metrics/messages/dropped", "flockmq_messages_dropped"),
    Figure("metrics/messages/forward", "flockmq_messages_forwarded"),
    Figure("metrics/messages/retained", "flockmq_retained_messages"),
    Figure("metrics/client/connected", "flockmq_connects"),
    Figure("metrics/client/disconnected", "flockmq_disconnects"),
    Figure("metrics/session/resumed", "flockmq_sessions_resumed"),
    Figure("metrics/session/takenover", "flockmq_takeovers"),
)
"""Below `$SYS/brokers/NODE/`."""

BROKER_FIGURES: Final = (
    Figure("clients/connected", "flockmq_connections"),
    Figure("clients/disconnected", "flockmq_sessions_away"),
    Figure("clients/expired", "flockmq_sessions_expired"),
    Figure("publish/messages/received", "flockmq_messages_received"),
    Figure("publish/messages/sent", "flockmq_messages_sent"),
    Figure("publish/messages/dropped", "flockmq_messages_dropped"),
    Figure("bytes/received", "flockmq_received_bytes"),
    Figure("bytes/sent", "flockmq_sent_bytes"),
    Figure("subscriptions/count", "flockmq_subscriptions"),
    Figure("shared_subscriptions/count", "flockmq_shared_subscriptions"),
    Figure("retained messages/count", "flockmq_retained_messages"),
)
"""Below `$SYS/broker/`."""


class About(NamedTuple):
    """Access to the node's own status."""

    node: str
    nodes: Callable[[], Iterable[str]]
    """The names of all nodes, including this one."""
    samples: Callable[[], Sequence[Sample]]


class SysTopics:
    """`flush` makes the reactor write queued output."""

    def __init__(
        self, settings: SysTopicsSettings, about: About, router: Router, flush: Callable[[], None], clock: Clock
    ) -> None:
        self._settings = settings
        self._about = about
        self._router = router
        self._flush = flush
        self._clock = clock
        self._started_s = clock.monotonic()
        self._brokers: Final = f"$SYS/brokers/{about.node}/"
        self._clients: Final = f"{self._brokers}clients/".encode()
        self._most_clients = 0.0
        self._values = RetainedIndex(_size)
        self._values_s = -SYSTEM_VALUES_MAX_S

    # Periodic messages.

    async def run(self) -> None:
        """Publish at the configured intervals. Runs until cancelled."""
        async with asyncio.TaskGroup() as rounds:
            rounds.create_task(self._every(self._settings.sys_msg_interval, self.publish_values))
            rounds.create_task(self._every(self._settings.sys_heartbeat_interval, self.publish_heartbeat))

    async def _every(self, interval_s: float, round_: Callable[[], None]) -> None:
        while interval_s:
            await asyncio.sleep(interval_s)
            round_()

    def publish_values(self) -> None:
        """Publish the static facts and all numbers."""
        self._publish(self._facts() | self._numbers())

    def publish_heartbeat(self) -> None:
        """Publish uptime and time, which show that the node is alive."""
        self._publish(self._times())

    def _publish(self, values: dict[bytes, bytes]) -> None:
        for topic, payload in values.items():
            self._send(topic, payload)
        self._flush()

    # New subscriptions.

    def give(self, subscriptions: Sequence[Subscription]) -> None:
        """Send the current values of this node to new subscriptions."""
        for subscription in subscriptions:
            if subscription.filter.startswith(PREFIX):
                self._give(subscription)

    def _give(self, subscription: Subscription) -> None:
        session = subscription.session
        for found in self._current().match_filter(subscription.filter):
            for topic, payload in found:
                assert isinstance(payload, bytes)
                message = publication(session.sink.protocol_version, 0, True, topic, payload, b"")
                self._router.delivery.send(session, message, 0, True, subscription.identifiers)

    def _current(self) -> RetainedIndex:
        """All values, at most `SYSTEM_VALUES_MAX_S` old."""
        now_s = self._clock.monotonic()
        if now_s - self._values_s >= SYSTEM_VALUES_MAX_S:
            self._values_s = now_s
            for topic, payload in (self._facts() | self._times() | self._numbers()).items():
                self._values.put(topic, payload)
        return self._values

    # Client events.

    def connected(self, channel: Channel, connect: Connect, session: ClientSession) -> None:
        if not (self._may_be_wanted() and self._settings.sys_event_messages.client_connected):
            return
        topic = self._topic(session.client_id, b"/connected")
        if self._is_wanted(topic):
            more = {
                "connected_at": self._clock.wall_ms(),
                "connack": 0,
                "clean_start": connect.clean_start,
                "keepalive": connect.keep_alive_s,
                "expiry_interval": session.expiry_s,
            }
            self._event(topic, client_of(channel), more)

    def disconnected(self, channel: Channel) -> None:
        if not (self._may_be_wanted() and self._settings.sys_event_messages.client_disconnected):
            return
        topic = self._topic(channel.client_id(), b"/disconnected")
        if self._is_wanted(topic):
            reason = reason_name(channel.close_reason)
            self._event(topic, client_of(channel), {"disconnected_at": self._clock.wall_ms(), "reason": reason})

    def _topic(self, client_id: bytes, what: bytes) -> bytes:
        return self._clients + client_id + what

    def _event(self, topic: bytes, client: Client, more: Mapping[str, object]) -> None:
        try:
            check_topic_name(topic)
        except PacketError:
            return  # the client id isn't valid in a topic
        document: dict[str, object] = {
            "clientid": client.client_id,
            "username": client.username,
            "ipaddress": client.host,
            "listener": client.listener,
            "proto_name": "MQTT",
            "proto_ver": client.protocol,
            "ts": self._clock.wall_ms(),
            **more,
        }
        self._send(topic, msgspec.json.encode(document))
        self._flush()

    # The values.

    def _facts(self) -> dict[bytes, bytes]:
        return _encoded(
            {
                "$SYS/brokers": ",".join(sorted(self._about.nodes())),
                f"{self._brokers}version": __version__,
                f"{self._brokers}sysdescr": "FlockMQ",
                "$SYS/broker/version": f"flockmq version {__version__}",
            }
        )

    def _times(self) -> dict[bytes, bytes]:
        uptime_s = int(self._clock.monotonic() - self._started_s)
        at = datetime.fromtimestamp(self._clock.wall(), UTC)
        return _encoded(
            {
                f"{self._brokers}uptime": _spelled(uptime_s),
                f"{self._brokers}datetime": at.isoformat(timespec="seconds"),
                "$SYS/broker/uptime": f"{uptime_s} seconds",
            }
        )

    def _numbers(self) -> dict[bytes, bytes]:
        sums: dict[tuple[str, str], float] = {}
        for sample in self._about.samples():
            for key in {(sample.name, ""), (sample.name, sample.labels[0] if sample.labels else "")}:
                sums[key] = sums.get(key, 0.0) + sample.value
        clients = sums.get(("flockmq_connections", ""), 0.0)
        self._most_clients = max(self._most_clients, clients)
        named = {
            **{f"{self._brokers}{f.topic}": sums.get((f.metric, f.label), 0.0) for f in FIGURES},
            **{f"$SYS/broker/{f.topic}": sums.get((f.metric, f.label), 0.0) for f in BROKER_FIGURES},
            f"{self._brokers}stats/connections/max": self._most_clients,
            "$SYS/broker/clients/maximum": self._most_clients,
            "$SYS/broker/clients/total": clients + sums.get(("flockmq_sessions_away", ""), 0.0),
        }
        return _encoded({topic: f"{value:.0f}" for topic, value in named.items()})

    # Sending.

    def _may_be_wanted(self) -> bool:
        """Whether somebody may be subscribed to a `$SYS` topic. A quick estimate, because it is called for every
        connection."""
        router = self._router
        return bool(router.local.dollars or router.remote.dollars or router.shared.is_used())

    def _is_wanted(self, topic: bytes) -> bool:
        """Whether somebody is subscribed to this topic. It bypasses the match cache, so that client ids don't fill
        it."""
        router = self._router
        indexes = (router.local, router.remote, router.shared)
        return any(index.match(topic) for index in indexes)

    def _send(self, topic: bytes, payload: bytes) -> None:
        if not self._is_wanted(topic):
            return
        router = self._router
        message = publication(4, 0, False, topic, payload, b"")
        fan = router.route(topic).fanout
        if not topic.startswith(LOCAL):
            router.forward(fan, message, ignore)
        router.delivery.deliver(fan, message, None)


def _size(payload: object) -> int:
    assert isinstance(payload, bytes)
    return len(payload)


def _encoded(texts: dict[str, str]) -> dict[bytes, bytes]:
    return {topic.encode(): text.encode() for topic, text in texts.items()}


def _spelled(seconds: int) -> str:
    """For example `1 days, 2 hours, 3 minutes, 4 seconds`, without leading zero units."""
    amounts = (seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60)
    spelled = [
        f"{amount} {unit}" for amount, unit in zip(amounts, ("days", "hours", "minutes", "seconds"), strict=True)
    ]
    while len(spelled) > 1 and spelled[0].startswith("0 "):
        spelled.pop(0)
    return ", ".join(spelled)
