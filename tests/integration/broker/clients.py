"""paho-mqtt, with each answer awaited: a real client that a test can read top-down."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

V311: Final = MQTTProtocolVersion.MQTTv311
V5: Final = MQTTProtocolVersion.MQTTv5
PATIENCE_S: Final = 30.0


class Client:
    """Connected on entry; `disconnected` is set with its reason when the connection ends."""

    def __init__(
        self,
        port: int,
        client_id: str,
        version: MQTTProtocolVersion = V5,
        will: tuple[str, str] | None = None,
        reconnects: bool = False,
        retains_will: bool = False,
        lasts: bool = False,
        acknowledges: bool = True,
        expiry_s: int = 3600,
    ) -> None:
        """`lasts`: the session outlives the connection, in version 5 by `expiry_s`, and `session_present` says whether
        it was there. Who `acknowledges` by itself doesn't need `acknowledge`.
        """
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.connected = threading.Event()
        self.disconnected = threading.Event()
        self.reason = ""
        self._answers: queue.Queue[list[ReasonCode]] = queue.Queue()
        self._acknowledgements: queue.Queue[ReasonCode] = queue.Queue()
        self._port = port
        self._lasts = lasts
        self._expiry_s = expiry_s
        self.session_present = False
        self._paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=version,
            reconnect_on_failure=reconnects,
            clean_session=None if version == V5 else not lasts,
            manual_ack=not acknowledges,
        )
        if will is not None:
            self._paho.will_set(will[0], will[1], qos=1, retain=retains_will)
        self._paho.on_connect = self._on_connect
        self._paho.on_disconnect = self._on_disconnect
        self._paho.on_message = lambda _client, _userdata, message: self.messages.put(message)
        self._paho.on_publish = lambda _client, _userdata, _mid, reason, _properties: self._acknowledgements.put(reason)
        self._paho.on_subscribe = lambda _client, _userdata, _mid, reasons, _properties: self._answers.put(reasons)

    def __enter__(self) -> Self:
        self._connect(self._paho.connect, self._port)
        self._paho.loop_start()
        assert self.connected.wait(PATIENCE_S), "no CONNACK"
        return self

    def move(self, port: int) -> None:
        """After it lost its connection: what isn't acknowledged goes again. One that reconnects by itself forgets with
        its second attempt that it had sent PUBREL.
        """
        self.connected.clear()
        self._paho.loop_stop()
        self._paho._reset_sockets(sockpair_only=True)  # of the loop before
        self._connect(self._paho.connect, port)
        self._paho.loop_start()
        assert self.connected.wait(PATIENCE_S), "no CONNACK"

    def _connect(self, connect: Callable[..., object], port: int) -> None:
        if self._lasts and self._paho.protocol == V5:
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = self._expiry_s
            connect("127.0.0.1", port, clean_start=False, properties=properties)
        else:
            connect("127.0.0.1", port)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()

    def subscribe(self, filter: str, qos: int = 1) -> None:
        """Returns at SUBACK."""
        reason = self.ask_for(filter, qos)
        assert reason == qos, reason

    def ask_for(self, filter: str, qos: int = 1) -> int:
        """The reason code of SUBACK."""
        self.start_subscribing(filter, qos)
        return self.suback()

    def start_subscribing(self, filter: str, qos: int = 1) -> None:
        self._paho.subscribe(filter, options=SubscribeOptions(qos)) if self._paho.protocol == V5 else (
            self._paho.subscribe(filter, qos)
        )

    def suback(self) -> int:
        (reason,) = self._answers.get(timeout=PATIENCE_S)
        return int(reason.value)

    def unsubscribe(self, filter: str) -> None:
        self._paho.unsubscribe(filter)

    def publish(self, topic: str, payload: str, qos: int = 1, retain: bool = False) -> int:
        """Returns when it is acknowledged, with the reason code."""
        sent = self._paho.publish(topic, payload, qos, retain)
        sent.wait_for_publish(PATIENCE_S)
        assert sent.is_published(), f"no acknowledgement of {payload!r} on {topic}"
        return int(self._acknowledgements.get(timeout=PATIENCE_S).value)

    def start_publishing(self, topic: str, payload: str, qos: int = 1) -> paho.MQTTMessageInfo:
        """Doesn't wait for its acknowledgement."""
        return self._paho.publish(topic, payload, qos)

    def acknowledge(self, message: paho.MQTTMessage) -> None:
        self._paho.ack(message.mid, message.qos)

    def receive(self) -> tuple[str, str, int, bool]:
        """The next message: (topic, payload, QoS, RETAIN)."""
        message = self.messages.get(timeout=PATIENCE_S)
        return message.topic, message.payload.decode(), message.qos, message.retain

    def send(self, data: bytes) -> None:
        """Bytes that no decent client sends."""
        socket = self._paho.socket()
        assert socket is not None
        socket.send(data)

    def lose_connection(self) -> None:
        """As a broken network does: without DISCONNECT."""
        socket = self._paho.socket()
        assert socket is not None
        self._paho.loop_stop()
        socket.close()

    def _on_connect(
        self,
        client: paho.Client,
        userdata: object,
        flags: paho.ConnectFlags,
        reason: ReasonCode,
        own: Properties | None,
    ) -> None:
        self.session_present = flags.session_present
        if not reason.is_failure:
            self.connected.set()

    def _on_disconnect(
        self, client: paho.Client, userdata: object, flags: object, reason: ReasonCode, own: Properties | None
    ) -> None:
        self.reason = str(reason)
        self.disconnected.set()


def await_route(publisher: Client, topic: str, subscriber: Client, qos: int = 1) -> None:
    """Publish until the subscriber's route has reached the publisher's node: a SUBACK speaks for its own node alone."""
    sent, came = 0, ""
    while not came:
        sent += 1
        publisher.publish(topic, str(sent), qos)
        with contextlib.suppress(queue.Empty):
            came = subscriber.messages.get(timeout=0.1).payload.decode()
    while came != str(sent):
        came = subscriber.receive()[1]
