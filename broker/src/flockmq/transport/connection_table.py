"""A node's connections by file descriptor: adds them, tells epoll what to watch, and closes them.

Invariant: a connection is in `connections` exactly while its descriptor is open. All other references (`half_closed`,
`pending_handshakes`, `waiting`, `unauthenticated`, the rate limit) are removed when it is closed.
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
from flockmq.routing.sink import NOTHING
from flockmq.session.limits import Limits
from flockmq.transport.acceptor import Acceptor, OpenListener
from flockmq.transport.connection import EPOLLIN, EPOLLOUT, UNWATCHED, Connection, ConnectionReactor
from flockmq.transport.rate_limit import ClientMeter, RateLimit
from flockmq.transport.reactor import Reactor
from flockmq.transport.unauthenticated import Unauthenticated
from flockmq.transport.waiting_connections import WaitingConnections


class ConnectionTable(ConnectionReactor):
    """`half_closed`: half-closed connections, whose clients may still read the last packet. `pending_handshakes`:
    connections whose ClientHello waits for its handshake. `waiting`: connections that wait to be read.
    `unauthenticated`: those before CONNACK.
    """

    def __init__(self, reactor: Reactor, epoll: select.epoll, limits: Limits, clock: Clock) -> None:
        self.acceptor = Acceptor(epoll, reactor.router, self.adopt)
        self.connections: list[Connection | None] = []
        self.half_closed: dict[Connection, None] = {}
        self.pending_handshakes: dict[Connection, None] = {}
        self.waiting = WaitingConnections()
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

    def accepted_address(self, fd: int) -> tuple[str, int] | None:
        return self.acceptor.just_accepted.get(fd)

    # Epoll.

    def watch(self, connection: Connection) -> None:
        interest = (0 if connection.paused else EPOLLIN) | (EPOLLOUT if connection.blocked else 0)
        if interest != connection.interest and connection.fd >= 0:
            if connection.interest == UNWATCHED:
                self._epoll.register(connection.fd, interest)
            else:
                self._epoll.modify(connection.fd, interest)
            connection.interest = interest

    def unwatch(self, connection: Connection) -> None:
        """Epoll has reported the end of a paused connection. Data that arrived before is read when it resumes."""
        self._epoll.unregister(connection.fd)
        connection.interest = UNWATCHED

    # The end.

    def end(self, connection: Connection) -> None:
        """Close the connection; if the server ended it, half-close it first, so that the client can read the last
        packet.
        """
        if connection.clean_end or connection.out or connection in self.half_closed:
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
        if connection.layers is not None:
            connection.layers.release()  # Its memory isn't counted any more.
        self.unauthenticated.forget(connection)
        connection.last_seen_s = self._router.host.now_s
        connection.paused = 0
        self.watch(connection)
        self.half_closed[connection] = None

    def close(self, connection: Connection) -> None:
        fd = connection.fd
        if fd < 0:
            return
        connection.fd = -1
        self.half_closed.pop(connection, None)
        self.pending_handshakes.pop(connection, None)
        self.waiting.discard(connection)
        if connection.cost:
            self.unauthenticated.forget(connection)
        if connection.network:
            self.acceptor.count_out(connection.network)
        if connection.meter is not None and connection.meter.held is not None:
            self.rate_limit.forget(connection.meter)
        if connection.layers is not None:
            connection.layers.release()
        self.connections[fd] = None
        self.acceptor.just_accepted.pop(fd, None)
        connection.listener.connections -= 1
        os.close(fd)
        connection.out = NOTHING
        connection.out_bytes = 0
        self._router.counters.connections -= 1
        self._router.counters.disconnects += 1

    def close_all(self) -> None:
        for connection in self.connections:
            if connection is not None:
                connection.lost()
                self.close(connection)

    def close_half_closed(self) -> None:
        """Close the connections that were half-closed long enough ago."""
        for connection in list(self.half_closed):
            if self._router.host.now_s - connection.last_seen_s > LINGER_MAX_S:
                self.close(connection)

    # Unauthenticated clients, and those over a rate.

    def admits_address(self, connection: Connection, host: str) -> bool:
        if host == UNKNOWN or (host and not connection.listener.settings.access.admits(host)):
            self._router.counters.connects_refused += 1
            return False
        if not host:
            return True
        network = addresses.network(host)
        if self.acceptor.is_full(network):
            self.acceptor.refused(self.acceptor.full_network_error(host))
            return False
        self.unauthenticated.forget(connection)  # Until now the connection's cost was counted for the load balancer.
        connection.network = self.acceptor.count_in(network)
        return True

    def queue_handshake(self, connection: Connection) -> None:
        """The handshake takes a millisecond, and only a limited number may be in progress, so it waits for its turn."""
        if connection not in self.pending_handshakes:
            connection.pause()
            self.pending_handshakes[connection] = None
            self._reactor.soon()

    def start_handshakes(self) -> None:
        """Start the handshakes of the first connections that wait; the others wait for the next turns."""
        for connection in list(islice(self.pending_handshakes, TLS_GREETINGS_PER_TURN_MAX)):
            if connection in self.pending_handshakes:  # Otherwise it was closed to make room.
                del self.pending_handshakes[connection]
                connection.unpause()
                self.add_cost(connection, TLS_HANDSHAKE_BYTES)
        if self.pending_handshakes:
            self._reactor.soon()

    def add_cost(self, connection: Connection, more_bytes: int) -> None:
        """If the total is too large, close the connections that cost too much."""
        counted = self.unauthenticated
        counted.cost(connection, more_bytes)
        if counted.bytes > counted.max_bytes:
            for other in counted.excess():
                self.acceptor.refused(f"unauthenticated clients use more than {counted.max_bytes} bytes")
                other.lost()
                self.close(other)

    def hold(self, connection: Connection, meter: ClientMeter) -> None:
        self.rate_limit.hold(connection, meter)
