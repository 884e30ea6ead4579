"""A node for tests of the load, on simulated time: it says yes to everything, and otherwise does what a test tells it.

player = Player(play.stage, "ann", DURABLE)
play(work())                        runs a coroutine to its end; the loop's time passes, no other
play.node.last.took(wire.PUBLISH)   what came by the newest connection
play.node.last.say(wire.…)          what its client hears
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from conformance import wire
from load.history import AnyEvent, Event
from load.player import Player
from load.stage import Node, Stage
from simulation.loop import Process, SimulatedLoop

DELAY_S: Final = 0.001
NODES: Final = (Node("a", ("10.0.0.1", 1883)), Node("b", ("10.0.0.2", 1883)))

E = TypeVar("E", bound=Event)
T = TypeVar("T")


class Took(NamedTuple):
    """A client's packet."""

    kind: int
    flags: int
    packet_id: int
    topic: str
    """Of PUBLISH; the filter of SUBSCRIBE and UNSUBSCRIBE; the client id of CONNECT."""
    rest: bytes
    """The payload of PUBLISH; what stands behind the client id in CONNECT."""
    raw: bytes

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3


class Connection(asyncio.Transport):
    """Of a client, as its node sees it."""

    def __init__(self, node: ScriptedNode, protocol: asyncio.Protocol, name: str) -> None:
        super().__init__()
        self.name = name
        self.version = wire.V5
        self.packets: list[Took] = []
        self._node = node
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._is_closing = False

    def took(self, kind: int) -> list[Took]:
        return [packet for packet in self.packets if packet.kind == kind]

    def say(self, *packets: bytes) -> None:
        self._loop.call_later(DELAY_S, self._hear, b"".join(packets))

    def end(self) -> None:
        """The node closes it."""
        self._loop.call_later(DELAY_S, self.abort)

    def _hear(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    # asyncio's, for the client

    def write(self, data: Any) -> None:
        assert not self._is_closing, "written to a connection that is closed"
        for packet in _packets(self, bytes(data)):
            self.packets.append(packet)
            self._loop.call_later(DELAY_S, self._node.take, self, packet)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self._is_closing


class ScriptedNode:
    """`answer` may be replaced; it gives what is said to a packet. `present`: what CONNACK says of each session."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.present = False
        self.answer: Callable[[Connection, Took], bytes] = self.yes

    @property
    def last(self) -> Connection:
        return self.connections[-1]

    async def connect(self, factory: Callable[[], Any], address: tuple[str, int]) -> tuple[Connection, Any]:
        await asyncio.sleep(DELAY_S)
        protocol = factory()
        (name,) = (node.name for node in NODES if node.address == address)
        connection = Connection(self, protocol, name)
        self.connections.append(connection)
        protocol.connection_made(connection)
        return connection, protocol

    def take(self, connection: Connection, packet: Took) -> None:
        if said := self.answer(connection, packet):
            connection.say(said)

    def yes(self, connection: Connection, packet: Took) -> bytes:
        properties = b"\0" if connection.version == wire.V5 else b""
        packet_id = packet.packet_id.to_bytes(2, "big")
        match packet.kind:
            case wire.CONNECT:
                return wire.packet(0x20, bytes((self.present, 0)), properties)
            case wire.SUBSCRIBE:
                return wire.packet(0x90, packet_id, properties, packet.rest)
            case wire.UNSUBSCRIBE:
                return wire.packet(0xB0, packet_id, properties, b"\0" if properties else b"")
            case wire.PUBLISH if packet.qos:
                return wire.acknowledgement(wire.PUBACK if packet.qos == 1 else wire.PUBREC, packet.packet_id)
            case wire.PUBREL:
                return wire.acknowledgement(wire.PUBCOMP, packet.packet_id)
            case wire.PINGREQ:
                return bytes((wire.PINGRESP << 4, 0))
        return b""


class Play:
    """A loop, a node that all addresses lead to, and what was written down."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimulatedLoop()
        self.node = self.loop.network = ScriptedNode()
        self.events: list[AnyEvent] = []
        self.stage = Stage(self.events.append, lambda: NODES, random.Random(seed))

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(work, Process("clients"))

    async def connected(self, player: Player) -> asyncio.Task[None]:
        """It runs from now on."""
        task = asyncio.create_task(player.run())
        await asyncio.sleep(0.1)
        assert player.is_connected
        return task

    def close(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self(_ended(tasks))
        self.loop.close()

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _packets(connection: Connection, data: bytes) -> list[Took]:
    packets: list[Took] = []
    while data:
        length, at = _varint(data, 1)
        raw, body, data = data[: at + length], data[at : at + length], data[at + length :]
        packets.append(_read(connection, raw, body))
    return packets


def _read(connection: Connection, raw: bytes, body: bytes) -> Took:
    kind, flags = raw[0] >> 4, raw[0] & 15
    packet_id, text, rest = 0, b"", b""
    if kind == wire.CONNECT:
        connection.version = body[6]
        text, rest = _text(body, _behind_properties(connection, body, 10))
    elif kind == wire.PUBLISH:
        text, rest = _text(body, 0)
        if flags & 6:
            packet_id, rest = int.from_bytes(rest[:2], "big"), rest[2:]
        rest = rest[_behind_properties(connection, rest, 0) :]
    elif kind in (wire.SUBSCRIBE, wire.UNSUBSCRIBE):
        packet_id = int.from_bytes(body[:2], "big")
        text, rest = _text(body, _behind_properties(connection, body, 2))
        rest = bytes(options & 3 for options in rest)
    elif kind in (wire.PUBACK, wire.PUBREC, wire.PUBREL, wire.PUBCOMP):
        packet_id = int.from_bytes(body[:2], "big")
    else:
        rest = body
    return Took(kind, flags, packet_id, text.decode(), rest, raw)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    length = shift = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return length, at


def _behind_properties(connection: Connection, data: bytes, at: int) -> int:
    if connection.version != wire.V5:
        return at
    length, at = _varint(data, at)
    return at + length


def _text(data: bytes, at: int) -> tuple[bytes, bytes]:
    end = at + 2 + int.from_bytes(data[at : at + 2], "big")
    return data[at + 2 : end], data[end:]
