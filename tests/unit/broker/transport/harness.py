"""A reactor without an event loop: turns are run by hand, over real sockets and a real epoll."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from flockmq.clock import SYSTEM, Clock
from flockmq.mqtt import encode
from flockmq.mqtt.packets import Connect
from flockmq.protocol.clean_session_end import CleanSessionEnd
from flockmq.routing.router import Router
from flockmq.routing.sink import SinkHost
from flockmq.session.limits import Limits
from flockmq.telemetry.counters import Counters
from flockmq.time_slices import TimeSlices
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import Connection
from flockmq.transport.epoll_reactor import EpollReactor
from flockmq.transport.listener import Listener
from unit.broker.protocol.harness import Port

PATIENCE_S = 10


class Served:
    """A reactor, and clients that are the other ends of its descriptors."""

    def __init__(self, limits: Limits | None = None, clock: Clock = SYSTEM) -> None:
        self.limits = limits or Limits()
        self.router = Router(SinkHost(Counters()), self.limits.max_packet_size)
        self.soon: list[Callable[[], None]] = []
        """What is to be called in the next iteration."""
        self.port = Port()
        self.reactor = EpollReactor(self.router, self.limits, clock)
        self.listener = self.reactor.open(Listener("tcp:default", self.limits))
        self._clients: list[socket.socket] = []
        self.serve(self.port)

    def serve(self, port: Port) -> None:
        """From now on new clients have this port."""
        port.router = self.router
        port.sessions = CleanSessionEnd(self.router, port.session_ends, TimeSlices(self.soon.append, SYSTEM))
        self.port = self.reactor.port = port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.reactor.stop()
        for client in self._clients:
            client.close()

    def opened(self, listener: OpenListener | None = None) -> tuple[Connection, socket.socket]:
        """A connection over a pair of sockets, and its client's end."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(PATIENCE_S)
        self._clients.append(theirs)
        return self.reactor.table.adopt(ours.detach(), listener or self.listener), theirs

    def client(self, client_id: str, version: int = 4) -> tuple[Connection, socket.socket]:
        """Connected, its CONNACK taken."""
        connection, client = self.opened()
        client.sendall(encode.connect(Connect(version, client_id.encode())))
        self.reactor.turn()
        assert client.recv(100)[:4:3] == b" \0"
        return connection, client

    def ask(self, client: socket.socket, packet: bytes) -> bytes:
        """Send, run a turn, and read the answer."""
        client.sendall(packet)
        self.reactor.turn()
        return client.recv(65536)
