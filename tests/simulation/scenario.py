"""Simulated runs that are written by hand, as tests: a few clients, a fault at a certain moment, what must come of it.

    @scenario()
    async def test_a_session_outlives_its_owner(cluster):
        sub = await Client.connect(cluster, "sub", at="replicant-1", expiry_s=60)
        await sub.subscribe("t", 1)
        await cluster.hosts[cluster.home_of("sub")].kill()
        …
        assert await sub.receives(b"1")

A test is a fork of a started cluster of its shape: it starts where the others started, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from conformance import wire
from load.history import Unwell
from load.link import SILENT_MAX_S, Link, acknowledgement
from simulation.case import Defects
from simulation.cluster import Shape, SimulatedCluster
from simulation.forks import Failed, forked
from simulation.node import MQTT
from simulation.run import started

SCENARIO_MAX_S: Final = 60.0
"""Of real time."""
ANSWER_MAX_S: Final = 15.0
CONNECT_MAX_S: Final = 30.0
RETRY_S: Final = 0.1
SEED: Final = 1

Play = Callable[..., Coroutine[Any, Any, None]]
_started = functools.cache(started)


def scenario(shape: Shape = Shape(), *, may_be_unwell: bool = False) -> Callable[[Play], Callable[..., None]]:  # noqa: B008
    """`may_be_unwell`: a node may end, or meet a defect."""

    def decorate(play: Play) -> Callable[..., None]:
        @functools.wraps(play)
        def test(**given: Any) -> None:
            cluster = _started(shape)
            ((_, outcome),) = forked(lambda _: _played(cluster, play, given), [None], 1, SCENARIO_MAX_S)
            if isinstance(outcome, Failed) and outcome.kind == AssertionError.__name__:
                raise AssertionError(outcome.text)  # the promise: an expected failure is this one, and no other
            if isinstance(outcome, Failed):
                pytest.fail(outcome.text, pytrace=False)
            if outcome and not may_be_unwell:
                pytest.fail("\n".join(outcome), pytrace=False)

        parameters = list(inspect.signature(play).parameters.values())[1:]
        test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        del test.__wrapped__  # or pytest takes `cluster` for a fixture
        return test

    return decorate


def _played(cluster: SimulatedCluster, play: Play, given: dict[str, Any]) -> list[str]:
    cluster.begin(SEED)
    with Defects(cluster):
        cluster.loop.run(play(cluster, **given), cluster.clients)
    return [f"{event.node}: {event.what}" for event in cluster.events if isinstance(event, Unwell)]


class Refused(Exception):
    """CONNACK with this reason code."""

    def __init__(self, reason: int) -> None:
        super().__init__(f"{reason:#x}")
        self.reason = reason


async def is_answered(asked: Coroutine[Any, Any, Any], within_s: float = ANSWER_MAX_S) -> bool:
    """In time, and not with a CONNACK that says no."""
    try:
        async with asyncio.timeout(within_s):
            await asked
    except (TimeoutError, Unanswered, Refused):
        return False
    return True


class Unanswered(Exception):
    """The connection ended, or nobody answered in time."""


class Client:
    """A client by hand: what it asks returns with the answer, what comes to it is acknowledged, and kept in `got`."""

    def __init__(self, cluster: SimulatedCluster, name: str, at: str, version: int) -> None:
        self.name = name
        self.version = version
        self.present = False
        self.got: list[wire.Packet] = []
        self.is_open = True
        self.reason = -1
        """Of the node's DISCONNECT."""
        self.answers = True
        """PUBACK, PUBREC and PUBCOMP."""
        self._cluster = cluster
        self._packet_id = 0
        self._asked: dict[tuple[int, int], asyncio.Future[wire.Packet]] = {}
        self._changed = asyncio.Event()
        self.link = Link(0, at, version, self._received, self._ended)

    @classmethod
    async def connect(
        cls,
        cluster: SimulatedCluster,
        name: str,
        *,
        at: str,
        version: int = wire.V5,
        expiry_s: float = 0.0,
        clean: bool = False,
        receive_maximum: int = 100,
        will: wire.Will | None = None,
        user: bytes | None = None,
        patience_s: float = SILENT_MAX_S,
    ) -> Client:
        """Again and again until it is answered, each time within `patience_s`. Raises Refused."""
        properties: list[tuple[int, wire.Value]] = []
        if version == wire.V5:
            properties = [(wire.RECEIVE_MAXIMUM, receive_maximum), (wire.SESSION_EXPIRY, int(expiry_s))]
        connect = wire.connect(
            version, name, clean=clean, keep_alive_s=60, properties=properties, will=will, user_name=user
        )
        async with asyncio.timeout(CONNECT_MAX_S):
            while True:
                client = cls(cluster, name, at, version)
                connack = await client.link.open((cluster.nodes[at].address, MQTT), connect, patience_s)
                if connack is not None:
                    break
                await asyncio.sleep(RETRY_S)
        if connack.reason:
            raise Refused(connack.reason)
        client.present = bool(connack.session_present)
        client.link.listen()
        return client

    async def subscribe(self, filter: str, qos: int = 1) -> int:
        """SUBACK's reason code."""
        packet_id = self._next_id()
        self.link.send(wire.subscribe(self.version, packet_id, (filter, qos)))
        return (await self._answer(wire.SUBACK, packet_id)).reason

    async def unsubscribe(self, filter: str) -> int:
        packet_id = self._next_id()
        self.link.send(wire.unsubscribe(self.version, packet_id, filter))
        return (await self._answer(wire.UNSUBACK, packet_id)).reason

    async def publish(
        self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False, dup: bool = False, expiry_s: int = 0
    ) -> int:
        """The reason code of PUBACK or PUBREC; a QoS 2 exchange is completed behind it. `expiry_s` 0: never."""
        packet_id = self.send(topic, payload, qos, retain=retain, dup=dup, expiry_s=expiry_s)
        answer = await self._answer(wire.PUBACK if qos == 1 else wire.PUBREC, packet_id)
        if qos == 2 and answer.reason < 0x80:
            self.link.send(acknowledgement(wire.PUBREL, packet_id))
            await self._answer(wire.PUBCOMP, packet_id)
        return answer.reason

    def send(
        self,
        topic: str,
        payload: bytes,
        qos: int = 1,
        *,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        expiry_s: int = 0,
    ) -> int:
        """PUBLISH, and nobody waits; its packet id."""
        used = packet_id or (self._next_id() if qos else 0)
        packet = wire.publish(
            self.version,
            topic,
            payload,
            qos=qos,
            retain=retain,
            dup=dup,
            packet_id=used if qos else None,
            properties=[(wire.MESSAGE_EXPIRY, expiry_s)] if expiry_s else None,
        )
        self.link.send(packet)
        return used

    async def receives(self, payload: bytes, within_s: float = ANSWER_MAX_S) -> bool:
        """It has got it, or gets it in time."""
        try:
            async with asyncio.timeout(within_s):
                while payload not in self.payloads():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def until_got(self, messages: int) -> None:
        async with asyncio.timeout(ANSWER_MAX_S):
            while len(self.got) < messages:
                self._changed.clear()
                await self._changed.wait()

    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.got]

    def drop(self) -> None:
        """As if the network had broken."""
        self.link.close()

    def disconnect(self) -> None:
        self.link.end(wire.disconnect(self.version))

    async def until_closed(self, within_s: float = ANSWER_MAX_S) -> None:
        async with asyncio.timeout(within_s):
            while self.is_open:
                self._changed.clear()
                await self._changed.wait()

    def _next_id(self) -> int:
        self._packet_id += 1
        return self._packet_id

    async def _answer(self, kind: int, packet_id: int) -> wire.Packet:
        asked: asyncio.Future[wire.Packet] = asyncio.get_running_loop().create_future()
        self._asked[kind, packet_id] = asked
        try:
            async with asyncio.timeout(ANSWER_MAX_S):
                return await asked
        except TimeoutError:
            raise Unanswered(f"{self.name}: no answer within {ANSWER_MAX_S:.0f} s") from None

    def _received(self, packet: wire.Packet) -> None:
        if packet.kind == wire.PUBLISH:
            self.got.append(packet)
            if packet.qos and self.answers:
                self.link.send(acknowledgement(wire.PUBACK if packet.qos == 1 else wire.PUBREC, packet.packet_id))
        elif packet.kind == wire.PUBREL:
            if self.answers:
                self.link.send(acknowledgement(wire.PUBCOMP, packet.packet_id))
        elif (asked := self._asked.pop((packet.kind, packet.packet_id), None)) is not None and not asked.done():
            asked.set_result(packet)
        self._changed.set()

    def _ended(self, link: Link, by_server: bool, reason: int) -> None:
        self.is_open, self.reason = False, reason
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(Unanswered(f"{self.name}: the connection ended, with {reason:#x}"))
        self._changed.set()
