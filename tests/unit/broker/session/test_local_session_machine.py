"""A session against a simple model: publishes, acknowledgements, lost connections.

One subscriber ("device"), whose session ends with its connection, and a publisher. The model keeps what the
specification speaks of: what is under way, in order, with its packet id and how far it is; what waits; which QoS 2
identifiers of the device are open. After each step the device has heard exactly what the model says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from conformance.wire import (
    CONNACK,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    V5,
    V311,
    Packet,
    acknowledgement,
    connect,
    disconnect,
    parsed,
    publish,
    subscribe,
    unsubscribe,
)
from flockmq.mqtt import frame
from flockmq.session.limits import Limits
from unit.broker.protocol.harness import Client, Node

WINDOW = 3
QUEUE = 6


@dataclass
class UnderWay:
    payload: bytes
    qos: int
    packet_id: int
    released: bool = False


@dataclass
class Model:
    """The session as the specification has it."""

    subscribed: int | None = None
    under_way: list[UnderWay] = field(default_factory=list)
    waiting: list[tuple[bytes, int]] = field(default_factory=list)
    open_ids: set[int] = field(default_factory=set)

    def moves_up(self) -> list[tuple[bytes, int]]:
        """What waits and has room now, out of the queue."""
        room = WINDOW - len(self.under_way)
        sent, self.waiting = self.waiting[:room], self.waiting[room:]
        return sent


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node(Limits(max_inflight=WINDOW, max_mqueue_len=QUEUE))
        self.publisher = self.node.client("publisher", 5)
        self.number = 0
        self.model: Model | None = None
        self.device: Client | None = None

    @initialize(version=st.sampled_from([V311, V5]))
    def begins(self, version: int) -> None:
        self.version = version

    # What the device does.

    @precondition(lambda self: self.device is None)
    @rule()
    def connects(self) -> None:
        self.device = self.node.opened()
        self.model = Model()
        (connack,) = self.says(connect(self.version, "device", clean=True))
        assert (connack.kind, connack.reason, connack.session_present) == (CONNACK, 0, 0)

    @precondition(lambda self: self.device is not None)
    @rule(politely=st.booleans())
    def leaves(self, politely: bool) -> None:
        assert self.device is not None
        if politely:
            assert self.says(disconnect(self.version)) == []
        self.device.lost()
        self.node.turn()
        self.device = self.model = None

    @precondition(lambda self: self.device is not None)
    @rule(qos=st.integers(0, 2))
    def subscribes(self, qos: int) -> None:
        heard = self.says(subscribe(self.version, 9, ("t", qos)))
        assert [(packet.kind, packet.reasons) for packet in heard] == [(SUBACK, [qos])]
        assert self.model is not None
        self.model.subscribed = qos

    @precondition(lambda self: self.device is not None)
    @rule()
    def unsubscribes(self) -> None:
        heard = self.says(unsubscribe(self.version, 10, "t"))
        assert [packet.kind for packet in heard] == [UNSUBACK]
        assert self.model is not None
        self.model.subscribed = None

    @precondition(lambda self: self.device is not None and self.model is not None and bool(self.model.under_way))
    @rule(which=st.integers(0, WINDOW - 1), refuses=st.booleans())
    def acknowledges(self, which: int, refuses: bool) -> None:
        assert self.model is not None
        known = self.model.under_way[which % len(self.model.under_way)]
        refused = 0x97 if refuses and self.version == V5 else None
        if known.qos == 1:
            self.model.under_way.remove(known)
            self.gets_new(self.says(acknowledgement(PUBACK, known.packet_id, refused)))
        elif known.released:
            self.model.under_way.remove(known)
            self.gets_new(self.says(acknowledgement(PUBCOMP, known.packet_id)))
        elif refused:
            self.model.under_way.remove(known)
            self.gets_new(self.says(acknowledgement(PUBREC, known.packet_id, refused)))
        else:
            known.released = True
            self.model.under_way.remove(known)
            self.model.under_way.append(known)  # PUBRELs are sent again in the order of their PUBRECs [MQTT-4.6.0-4]
            (released,) = self.says(acknowledgement(PUBREC, known.packet_id))
            assert (released.kind, released.packet_id, released.reason) == (PUBREL, known.packet_id, 0)

    @precondition(lambda self: self.device is not None)
    @rule(packet_id=st.integers(1, 4))
    def publishes_qos_2(self, packet_id: int) -> None:
        """Repeated before its PUBREL it goes no further; the publisher's connection is the one who would hear it."""
        assert self.model is not None
        dup = packet_id in self.model.open_ids
        (answer,) = self.says(publish(self.version, "up", b"up", qos=2, packet_id=packet_id, dup=dup))
        assert (answer.kind, answer.packet_id) == (PUBREC, packet_id)
        assert len(self.publisher_hears()) == (0 if dup else 1)
        self.model.open_ids.add(packet_id)

    @precondition(lambda self: self.device is not None)
    @rule(packet_id=st.integers(1, 4))
    def releases(self, packet_id: int) -> None:
        assert self.model is not None
        (answer,) = self.says(acknowledgement(PUBREL, packet_id))
        known = packet_id in self.model.open_ids
        assert (answer.kind, answer.packet_id) == (PUBCOMP, packet_id)
        assert answer.reason == (0 if known or self.version == V311 else 0x92)
        self.model.open_ids.discard(packet_id)

    # What others do.

    @precondition(lambda self: self.model is None or len(self.model.waiting) < self.takes())
    @rule(qos=st.integers(0, 2))
    def is_published_to(self, qos: int) -> None:
        self.number += 1
        payload = b"%d" % self.number
        packet_id = self.number % 60_000 + 1
        self.node.feed(self.publisher, publish(V5, "t", payload, qos=qos, packet_id=packet_id if qos else None))
        if qos == 2:
            self.node.feed(self.publisher, acknowledgement(PUBREL, packet_id))
        model = self.model
        if model is None or model.subscribed is None:
            assert self.device is None or self.hears() == []
            return
        granted = min(qos, model.subscribed)
        if granted == 0:
            (message,) = self.hears()
            assert (message.kind, message.payload, message.qos) == (PUBLISH, payload, 0)
        else:
            model.waiting.append((payload, granted))
            self.gets_new(self.hears())

    @invariant()
    def nothing_more_is_heard(self) -> None:
        if self.device is not None:
            assert self.hears() == []

    # How it is driven.

    def takes(self) -> int:
        """How many messages may wait: a device half of whose queue is full pauses its publishers."""
        return QUEUE // 2

    def gets_new(self, heard: list[Packet]) -> None:
        """New messages, in the order in which they waited, under identifiers that nothing else has."""
        assert self.model is not None
        expected = self.model.moves_up()
        assert [(packet.kind, packet.payload, packet.qos, packet.dup) for packet in heard] == [
            (PUBLISH, payload, qos, False) for payload, qos in expected
        ]
        for packet in heard:
            if packet.qos:
                assert packet.packet_id not in {known.packet_id for known in self.model.under_way}
                self.model.under_way.append(UnderWay(packet.payload, packet.qos, packet.packet_id))

    def says(self, data: bytes) -> list[Packet]:
        assert self.device is not None
        self.device.feed(data)
        return self.hears()

    def hears(self) -> list[Packet]:
        assert self.device is not None
        self.node.turn()
        return [self._parsed(self.version, packet) for packet in self.device.packets()]

    def publisher_hears(self) -> list[Packet]:
        self.node.turn()
        heard = [self._parsed(V5, packet) for packet in self.publisher.packets()]
        return [packet for packet in heard if packet.kind == PUBLISH]

    @initialize()
    def publisher_listens(self) -> None:
        self.node.feed(self.publisher, subscribe(V5, 1, ("up", 0)))

    @staticmethod
    def _parsed(version: int, packet: bytes) -> Packet:
        _, at = frame.remaining_length(packet, 1)
        return parsed(version, packet[0], packet[at:])


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=100, stateful_step_count=40)
