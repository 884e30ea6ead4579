"""The QoS flows, side by side with Mosquitto: the same scripts of raw packets, the same answers.

A script is drawn from a seed: clients come, leave, subscribe, publish in all QoS with repeated packets, acknowledge in
any order, stop half-way or contradict themselves, and come back to their sessions. After each step all that each client
got is compared, but for what the specification leaves free: packet identifiers that the server chose, the order of
packets that aren't messages of one topic and QoS, reason codes below 0x80, and when between PUBLISH and PUBREL a QoS 2
message goes on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from conformance.wire import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SESSION_EXPIRY,
    SUBACK,
    UNSUBACK,
    V5,
    V311,
    Wire,
    acknowledgement,
    connect,
    disconnect,
    publish,
    subscribe,
    unsubscribe,
)
from integration.dev.commands import Commands
from interop import mosquitto

SEEDS: Final = range(8)
STEPS: Final = 80
SUBSCRIBERS: Final = ("ann", "bob", "cid")
CLIENTS: Final = (*SUBSCRIBERS, "dee")  # who only publishes, in a durable session, and is interrupted amid QoS 2
TOPICS: Final = ("t", "u/a", "v/a/b")
FILTERS: Final = ("t", "u/+", "v/#")  # of which none overlaps another: how many copies come then is free

PROTOCOL_ERROR: Final = 0x82

Step = tuple[str, str, int, int, bool]
"""(what, client, a number, another number, a flag)."""
Heard = dict[str, list[object]]


class Side:
    """One broker, as the clients of a script see it."""

    def __init__(self, port: int, version: int, prefix: str) -> None:
        self.port = port
        self.version = version
        self.prefix = prefix
        self.wires: dict[str, Wire] = {}
        self.under_way: dict[str, dict[bytes, tuple[int, int, bool]]] = {name: {} for name in CLIENTS}
        """By client: payload → (packet id, QoS, released), in the order of arrival."""

    def do(self, step: Step, payload: bytes) -> dict[str, Heard]:
        """What each client got by it."""
        what, name, number, other, flag = step
        answers: list[object] = []
        wire = self.wires.get(name)
        if what == "connect" and wire is None:
            answers = self._connect(name, clean=flag and name != "dee")
        elif wire is None:
            pass
        elif what == "leave":
            if flag:
                wire.send(disconnect(self.version))
                wire.refused()
            wire.vanish()
            del self.wires[name]
        elif what == "subscribe":
            wire.send(subscribe(self.version, 1, (self.prefix + FILTERS[number % 3], other)))
            answers = [wire.expect_soon(SUBACK, 1).reasons]
        elif what == "unsubscribe":
            wire.send(unsubscribe(self.version, 1, self.prefix + FILTERS[number % 3]))
            answers = [wire.expect_soon(UNSUBACK, 1).reasons]
        elif what == "publish":
            answers = self._publish(
                name, self.prefix + TOPICS[number % 3], other, payload, interrupted=flag and name == "dee"
            )
        elif what == "acknowledge":
            self._acknowledge(name, number, stops_half_way=flag)
        elif what == "contradict" and self.under_way[name]:
            self._contradict(name, number, flag)
        elif what == "acknowledge all":
            while self.under_way[name]:
                self._acknowledge(name, 0, stops_half_way=False)
                self._heard(name)
        return {"answers": {"": answers}} | {other: self._heard(other) for other in sorted(self.wires)}

    def _connect(self, name: str, *, clean: bool) -> list[object]:
        wire = Wire(self.port, self.version)
        entries = [(SESSION_EXPIRY, 3600)] if self.version == V5 else None
        wire.send(connect(self.version, self.prefix + name, clean=clean, properties=entries))
        connack = wire.expect(CONNACK)
        if clean or not connack.session_present:
            self.under_way[name].clear()
        self.wires[name] = wire
        return [connack.reason, connack.session_present]

    def _publish(self, name: str, topic: str, qos: int, payload: bytes, *, interrupted: bool) -> list[object]:
        """QoS 2 is repeated before its PUBREL, and, when interrupted, on a new connection."""
        wire = self.wires[name]
        packet_id = 1 + len(payload) % 7
        if qos < 2:
            wire.publish(topic, payload, qos=qos, packet_id=packet_id)
            return []
        answers: list[object] = []
        for dup in (False, True):
            wire.send(publish(self.version, topic, payload, qos=2, packet_id=packet_id, dup=dup))
            answers.append(wire.expect_soon(PUBREC, packet_id).reason < 0x80)
        if interrupted:
            self._heard(name)
            wire.vanish()
            answers += self._connect(name, clean=False)
            wire = self.wires[name]
            wire.send(publish(self.version, topic, payload, qos=2, packet_id=packet_id, dup=True))
            answers.append(wire.expect_soon(PUBREC, packet_id).reason < 0x80)
        for _ in range(2):
            wire.send(acknowledgement(PUBREL, packet_id))
            wire.expect_soon(PUBCOMP, packet_id)
        return answers

    def _acknowledge(self, name: str, which: int, *, stops_half_way: bool) -> None:
        wire, mine = self.wires[name], self.under_way[name]
        if not mine:
            return
        payload = list(mine)[which % len(mine)]
        packet_id, qos, released = mine[payload]
        if qos == 1:
            wire.send(acknowledgement(PUBACK, packet_id))
            del mine[payload]
            return
        if not released:
            wire.send(acknowledgement(PUBREC, packet_id))
            wire.expect_soon(PUBREL, packet_id)
            mine[payload] = (packet_id, qos, True)
        if not stops_half_way:
            wire.send(acknowledgement(PUBCOMP, packet_id))
            del mine[payload]

    def _contradict(self, name: str, which: int, flag: bool) -> None:
        """An acknowledgement of another kind than the message waits for: it ends the connection, not the exchange."""
        wire, mine = self.wires[name], self.under_way[name]
        packet_id, qos, released = mine[list(mine)[which % len(mine)]]
        wrong = PUBREC if qos == 1 else PUBACK
        wire.send(acknowledgement(PUBCOMP if flag and not released else wrong, packet_id))
        last = wire.next()
        if last is not None:  # Mosquitto doesn't always say it
            assert (last.kind, last.reason) == (DISCONNECT, PROTOCOL_ERROR)
            assert wire.next() is None
        wire.vanish()
        del self.wires[name]

    def _heard(self, name: str) -> Heard:
        """Messages by topic and QoS in their order; PUBRELs by the message they speak of."""
        mine = self.under_way[name]
        found: Heard = {}
        for packet in self.wires[name].pending():
            if packet.kind == PUBLISH:
                if packet.qos:
                    mine[packet.payload] = (packet.packet_id, packet.qos, False)
                topic = packet.topic.decode().removeprefix(self.prefix)
                found.setdefault(f"{topic} {packet.qos}", []).append((packet.payload, packet.dup, packet.retain))
            else:
                assert packet.kind == PUBREL, packet
                (payload,) = [text for text, (known, _, _) in mine.items() if known == packet.packet_id]
                found.setdefault("released", []).append(payload)
        found.get("released", []).sort(key=repr)
        return found

    def close(self) -> None:
        for wire in self.wires.values():
            wire.vanish()


def script(seed: random.Random) -> list[Step]:
    steps: list[Step] = [("connect", name, 0, 0, True) for name in CLIENTS]
    steps += [("subscribe", name, seed.randrange(12), seed.randrange(3), False) for name in SUBSCRIBERS]
    kinds = ["publish"] * 8 + ["acknowledge"] * 8 + ["leave", "connect", "connect", "subscribe", "unsubscribe"]
    kinds += ["contradict"]
    for _ in range(STEPS):
        what = seed.choice(kinds)
        name = seed.choice(SUBSCRIBERS if what in ("subscribe", "unsubscribe") else CLIENTS)
        flag = seed.random() < (0.15 if what == "connect" else 0.3)
        steps.append((what, name, seed.randrange(12), seed.randrange(3), flag))
    steps += [("connect", name, 0, 0, False) for name in CLIENTS]
    steps += [("acknowledge all", name, 0, 0, False) for name in SUBSCRIBERS]
    return steps


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Ours and Mosquitto's."""
    folder: Path = tmp_path_factory.mktemp("brokers")
    commands = Commands()
    try:
        with mosquitto.running(folder) as theirs:
            _, told = commands.start_node("--data-dir", str(folder / "node"))
            yield told["mqtt"], theirs
    finally:
        commands.end_all()


@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("number", SEEDS)
def test_a_script_has_the_same_answers_from_both_brokers(ports: tuple[int, int], version: int, number: int) -> None:
    seed = random.Random(number)
    prefix = f"{version}/{number}/"
    ours, theirs = (Side(port, version, prefix) for port in ports)
    try:
        for at, step in enumerate(script(seed)):
            payload = b"%d" % at + b"." * seed.randrange(20)
            assert ours.do(step, payload) == theirs.do(step, payload), f"seed {number}, step {at}: {step}"
        assert ours.under_way == theirs.under_way == {name: {} for name in CLIENTS}
    finally:
        ours.close()
        theirs.close()
