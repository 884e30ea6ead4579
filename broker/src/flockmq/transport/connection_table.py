"""The connections of a node by their descriptors: how they come, what epoll watches of them, and how they end.

What always holds: a connection stands in `connections` exactly as long as its descriptor is open; what refers to it
besides (`lingering`, `greetings`, `waiting`, `unauthenticated`, the rate limit) lets go of it when it is closed.
"""

from __future__ import annotations

import os
import select
import socket
from itertools import islice

from flockmq.auth import addresses
from flockmq.bounds import LINGER_MAX_S, TLS_GREETINGS_PER_TURN_MAX, TLS_HANDSHAKE_BYTES, UNAUTHENTICATED_MAX_BYTES
from flockmq.clock import Clock
from flockmq.protocol.client import UNKNOWN
from flockmq.session.limits import Limits
from flockmq.transport.acceptor import Acceptor, OpenListener
from flockmq.transport.connection import EPOLLIN, EPOLLOUT, UNWATCHED, Connection, ConnectionReactor
from flockmq.transport.rate_limit import ClientMeter, RateLimit
from flockmq.transport.reactor import Reactor
from flockmq.transport.unauthenticated import Unauthenticated


class ConnectionTable(ConnectionReactor):
    """`lingering`: they were cut off and may still read why; `greetings`: their ClientHello waits for a turn;
    `waiting`: they wait to be read; `unauthenticated`: they aren't let in yet.
    """

    def __init__(self, reactor: Reactor, epoll: select.epoll, limits: Limits, clock: Clock) -> None:
        self.acceptor = Acceptor(epoll, reactor.router, limits, self.adopt)
        self.connections: list[Connection | None] = []
        self.lingering: dict[Connection, None] = {}
        self.greetings: dict[Connection, None] = {}
        self.waiting: dict[Connection, None] = {}
        self.unauthenticated = Unauthenticated(UNAUTHENTICATED_MAX_BYTES)
        self.rate_limit = RateLimit(reactor, clock.monotonic)
        self._reactor = reactor
        self._router = reactor.router
        self._epoll = epoll

    def adopt(self, fd: int, listener: OpenListener, network: str = "") -> Connection:
        """Serve a connected, non-blocking descriptor. `network`: where it is counted already."""
        connection = Connection(self, self._router, self._reactor.port, listener, fd)
        connection.network = network
        connections = self.connections
        while len(connections) <= fd:
            connections.append(None)
        connections[fd] = connection
        self._epoll.register(fd, EPOLLIN)
        self._router.counters.connections += 1
        listener.connections += 1
        return connection

    def newcomer(self, fd: int) -> tuple[str, int] | None:
        return self.acceptor.newcomers.get(fd)

    # What epoll watches.

    def watch(self, connection: Connection) -> None:
        interest = (0 if connection.paused else EPOLLIN) | (EPOLLOUT if connection.blocked else 0)
        if interest != connection.interest and connection.fd >= 0:
            if connection.interest == UNWATCHED:
                self._epoll.register(connection.fd, interest)
            else:
                self._epoll.modify(connection.fd, interest)
            connection.interest = interest

    def unwatch(self, connection: Connection) -> None:
        """Its end was told; what came before that is read when it goes on."""
        self._epoll.unregister(connection.fd)
        connection.interest = UNWATCHED

    # The end.

    def end(self, connection: Connection) -> None:
        """Close it, but let a client that we cut off read its last packet."""
        if connection.clean_end or connection.out or connection in self.lingering:
            self.close(connection)
            return
        half = socket.socket(fileno=connection.fd)
        try:
            half.shutdown(socket.SHUT_WR)
        except OSError:
            half.detach()
            self.close(connection)
            return
        half.detach()
        self.unauthenticated.forget(connection)
        connection.last_seen_s = self._router.now_s
        connection.paused = 0
        self.watch(connection)
        self.lingering[connection] = None

    def close(self, connection: Connection) -> None:
        fd = connection.fd
        if fd < 0:
            return
        connection.fd = -1
        self.lingering.pop(connection, None)
        self.greetings.pop(connection, None)
        self.waiting.pop(connection, None)
        if connection.cost:
            self.unauthenticated.forget(connection)
        if connection.network:
            self.acceptor.count_out(connection.network)
        if connection.meter is not None and connection.meter.held is not None:
            self.rate_limit.forget(connection.meter)
        if connection.layers is not None:
            connection.layers.release()
        self.connections[fd] = None
        self.acceptor.newcomers.pop(fd, None)
        connection.listener.connections -= 1
        os.close(fd)
        connection.out.clear()
        connection.out_bytes = 0
        self._router.counters.connections -= 1
        self._router.counters.disconnects += 1

    def close_all(self) -> None:
        for connection in self.connections:
            if connection is not None:
                connection.lost()
                self.close(connection)

    def close_lingering(self) -> None:
        """Those that were cut off long enough ago."""
        for connection in list(self.lingering):
            if self._router.now_s - connection.last_seen_s > LINGER_MAX_S:
                self.close(connection)

    # Clients that aren't let in yet, and those over a rate.

    def welcomes(self, connection: Connection, host: str) -> bool:
        if host == UNKNOWN or (host and not connection.listener.settings.access.admits(host)):
            self._router.counters.connects_refused += 1
            return False
        if not host:
            return True
        network = addresses.network(host)
        if self.acceptor.is_full(network):
            self.acceptor.refused(self.acceptor.crowded(host))
            return False
        self.unauthenticated.forget(connection)  # what came of the header was the balancer's
        connection.network = self.acceptor.count_in(network)
        return True

    def greet(self, connection: Connection) -> None:
        """The answer takes a millisecond, and not too many handshakes may be under way: it waits for its turn."""
        if connection not in self.greetings:
            connection.pause()
            self.greetings[connection] = None
            self._reactor.soon()

    def answer_greetings(self) -> None:
        """Let the first ClientHellos in the line be answered; the others have the next turns."""
        for connection in list(islice(self.greetings, TLS_GREETINGS_PER_TURN_MAX)):
            if connection in self.greetings:  # else one before it took its room
                del self.greetings[connection]
                connection.unpause()
                self.costs(connection, TLS_HANDSHAKE_BYTES)
        if self.greetings:
            self._reactor.soon()

    def costs(self, connection: Connection, more_bytes: int) -> None:
        """Who costs too much makes room."""
        counted = self.unauthenticated
        counted.cost(connection, more_bytes)
        if counted.bytes > counted.max_bytes:
            for other in counted.excess():
                self.acceptor.refused(f"clients that aren't let in yet cost more than {counted.max_bytes} bytes")
                other.lost()
                self.close(other)

    def hold(self, connection: Connection, meter: ClientMeter) -> None:
        self.rate_limit.hold(connection, meter)
