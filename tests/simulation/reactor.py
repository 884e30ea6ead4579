"""A node's clients over the simulated network, in the place of sockets: what comes is fed, a turn's bytes are sent."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from flockmq.bounds import SINK_CONGESTED_BYTES, SWEEP_INTERVAL_S
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.protocol.client import PeerInfo
from flockmq.protocol.conversation import Conversation
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import FLOWING, Sink
from flockmq.session.limits import Limits
from flockmq.transport.reactor import Reactor
from simulation.network import BUFFERED_MAX_BYTES, End

LISTENER: Final = "tcp:default"


class SimulatedReactor(Reactor):
    """`accept` takes connections from the network. `defect(text)` hears what a connection met that nobody
    foresaw."""

    def __init__(
        self, router: Router, limits: Limits, now_s: Callable[[], float], defect: Callable[[str], None]
    ) -> None:
        super().__init__(router)
        self.limits = limits
        self.now_s = now_s
        self.connections: list[SimulatedConnection | None] = []
        self._defect = defect
        self._is_accepting = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._is_accepting = True
        self.router.host.now_s = self.now_s()
        loop.call_later(SWEEP_INTERVAL_S, self.tick)

    def stop_accepting(self) -> None:
        self._is_accepting = False

    def stop(self) -> None:
        self._is_accepting = False
        self.loop = None
        for connection in self.connections:
            if connection is not None:
                connection.lost()
                self.close(connection)

    def channels(self) -> Sequence[Channel | None]:
        return self.connections

    def go_on(self, channel: PausablePublisher) -> None:
        if isinstance(channel, SimulatedConnection):
            self._feed(channel, b"")
            channel.end.go_on()

    def failed(self, sink: Sink) -> None:
        self._defect(traceback.format_exc())
        if isinstance(sink, SimulatedConnection):
            sink.close(Reason.UNSPECIFIED_ERROR)

    def accept(self, end: End) -> None:
        if not self._is_accepting:
            end.abort()
            return
        connection = SimulatedConnection(self, end)
        free = next((place for place, channel in enumerate(self.connections) if channel is None), None)
        if free is None:
            connection.place = len(self.connections)
            self.connections.append(connection)
        else:
            connection.place = free
            self.connections[free] = connection
        self.router.counters.connections += 1
        end.serve(connection.came, connection.went)
        end.has_room = connection.has_room

    def close(self, connection: SimulatedConnection) -> None:
        if connection.is_gone:
            return
        connection.is_gone = True
        self.connections[connection.place] = None
        connection.end.close()
        connection.out.clear()
        connection.out_bytes = 0
        self.router.counters.connections -= 1
        self.router.counters.disconnects += 1

    def turn(self, connection: SimulatedConnection, data: bytes) -> None:
        self.begin_turn(self.now_s())
        self._feed(connection, data)
        self.end_turn()

    def tick(self) -> None:
        if self.loop is None:
            return
        self.loop.call_later(SWEEP_INTERVAL_S, self.tick)
        now_s = self.now_s()
        self.begin_turn(now_s)
        self.sweep(now_s)
        self.end_turn()

    def _feed(self, connection: SimulatedConnection, data: bytes) -> None:
        try:
            connection.feed(data)
        except Exception:
            self.failed(connection)
        if connection.paused and connection.state != CLOSED:
            connection.end.pause()


class SimulatedConnection(Conversation):
    def __init__(self, reactor: SimulatedReactor, end: End) -> None:
        super().__init__(reactor.router, reactor.port, reactor.limits)
        self.reactor = reactor
        self.end = end
        self.place = 0
        self.is_gone = False

    def peer(self) -> PeerInfo:
        host, port = self.end.peer_address
        return PeerInfo(host, port, LISTENER, self.limits.name)

    def came(self, data: bytes) -> None:
        if self.state != CLOSED:
            self.reactor.turn(self, data)

    def went(self) -> None:
        self.reactor.begin_turn(self.reactor.now_s())
        self.lost()
        self.reactor.close(self)
        self.reactor.end_turn()

    def has_room(self) -> None:
        if not self.is_gone:
            self.reactor.begin_turn(self.reactor.now_s())
            self.flush()
            self.reactor.end_turn()

    def flush(self) -> None:
        if self.is_gone:
            return
        room = BUFFERED_MAX_BYTES - self.end.unread_bytes
        if self.out and room > 0:
            self._send(room)
        if self.out_bytes > SINK_CONGESTED_BYTES:
            self.stop_reading()
            self.end.pause()
        if self.state == CLOSED:
            self.reactor.close(self)

    def _send(self, room: int) -> None:
        data = b"".join(self.out)
        sent, rest = data[:room], data[room:]
        self.out.clear()
        if rest:
            self.out.append(rest)
        self.out_bytes = len(rest)
        self.router.counters.bytes_sent += len(sent)
        self.end.send(sent, len(sent))
        if self.flow != FLOWING:
            self.progressed()
