"""The descriptors of a node's clients: one epoll of our own, nested in the event loop, and the turn that runs them.

A turn reads once from each ready connection, lets its channel work, and then flushes the sinks that became dirty; so
one write carries all that a turn put. The loop sees a single readable descriptor: our epoll.

What always holds, besides what reactor.py says: a connection is read at most once a round, and rounds are bounded. The
time of a turn is, too: who has sent more than was read waits behind all others, and then for the next turn, in the
order in which they came; one of them is read in each. So no client starves another, and all of them together don't
starve the rest of the node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from flockmq.bounds import (
    DISCARD_MAX_BYTES,
    LINGER_MAX_S,
    READ_MAX_BYTES,
    READ_MIN_BYTES,
    READ_WORK_MAX_S,
    SPIN_MAX_S,
    SWEEP_INTERVAL_S,
    THROTTLE_TICK_S,
    TLS_GREETINGS_PER_TURN_MAX,
    TLS_HANDSHAKE_BYTES,
    TURN_EVENTS_MAX,
    TURN_ROUNDS_MAX,
    TURN_WORK_MAX_S,
    UNAUTHENTICATED_MAX_BYTES,
    UNAUTHENTICATED_READ_BYTES,
)
from flockmq.clock import Clock
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED, Channel
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink
from flockmq.session.limits import Limits
from flockmq.transport.acceptor import Acceptor
from flockmq.transport.connection import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, UNWATCHED, Connection
from flockmq.transport.filtered_connection import FilteredConnection
from flockmq.transport.listener import Listener
from flockmq.transport.metered_connection import MeteredConnection
from flockmq.transport.rate_limit import RateLimit, SharedMeter
from flockmq.transport.token_bucket import Bucket, Rates
from flockmq.transport.unauthenticated import Unauthenticated

log: Final = logging.getLogger(__name__)

_SMALL_TURN_EVENTS: Final = 8
_HITS_MAX: Final = 16
_HITS_MIN: Final = 8
_MISS: Final = 4
"""Turns that followed the one before within SPIN_MAX_S count one; each that didn't takes away _MISS."""


class EpollReactor(Acceptor):
    """Over sockets. `greetings`: whose ClientHello waits for a turn; `waiting`: who waits to be read."""

    def __init__(self, router: Router, limits: Limits, clock: Clock) -> None:
        super().__init__(router, limits)
        self._monotonic: Callable[[], float] = clock.monotonic
        self.connections: list[Connection | None] = []
        self.lingering: dict[Connection, None] = {}
        self.greetings: dict[FilteredConnection, None] = {}
        self.waiting: dict[Connection, None] = {}
        self.strangers = Unauthenticated(UNAUTHENTICATED_MAX_BYTES)
        self._discarded = bytearray(DISCARD_MAX_BYTES)
        self.throttle = RateLimit()
        self._all: SharedMeter | None = None
        self._throttling: bool = False
        self._hits: int = 0
        self._served_s: float = 0.0
        self._time_is_up: bool = False
        self._fed_bytes: int = 0
        """Since it was looked at how long the turn takes."""
        self._timer: asyncio.TimerHandle | None = None

    # Life.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.router.now_s = self._monotonic()
        loop.add_reader(self.epoll.fileno(), self.turn)
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self.tick)

    def limit(self, rates: Rates, max_conn_rate: float) -> None:
        """What all clients of this node share. Call it before listeners are made."""
        now_s = self.router.now_s
        self._all = None if rates.are_off() else self.throttle.share(rates, now_s)
        self.conn_rate = Bucket(max_conn_rate, 0.0, now_s) if max_conn_rate > 0.0 else None

    def share_memory(self, max_unauthenticated_bytes: int, max_connections_per_address: int) -> None:
        """What strangers and addresses may take of it."""
        self.strangers.max_bytes = max_unauthenticated_bytes
        self.max_connections_per_address = max_connections_per_address

    def unauthenticated_bytes(self) -> int:
        return self.strangers.bytes

    def meters(self, rates: Rates) -> list[SharedMeter]:
        """What the clients of one listener share: its own rates, and this node's."""
        shared = [] if rates.are_off() else [self.throttle.share(rates, self.router.now_s)]
        return shared if self._all is None else [*shared, self._all]

    def stop(self) -> None:
        self.stop_accepting()
        for connection in self.connections:
            if connection is not None:
                connection.lost()
                self.close(connection)
        if self._timer is not None:
            self._timer.cancel()
        if self.loop is not None:
            forget: Callable[[int], object] = self.loop.remove_reader  # uvloop's returns None, where a bool is promised
            forget(self.epoll.fileno())
        self.epoll.close()

    # The turn.

    def turn(self) -> None:
        """Serve what is ready, and look again before sleeping."""
        until_s = 0.0
        self._time_is_up, self._fed_bytes = False, 0
        for _ in range(TURN_ROUNDS_MAX):
            events = self.epoll.poll(0, TURN_EVENTS_MAX)
            if not events and not self.waiting:
                events = self._spin()
                if not events:
                    return
            now_s = self._monotonic()
            if until_s == 0.0:
                until_s = now_s + TURN_WORK_MAX_S
            self.begin_turn(now_s)
            if len(events) > _SMALL_TURN_EVENTS:
                self._hits = 0
            elif now_s - self._served_s < SPIN_MAX_S:
                self._hits = min(self._hits + 1, _HITS_MAX)
            else:
                self._hits = max(self._hits - _MISS, 0)
            self._serve(events, until_s)
            self.end_turn()
            self._served_s = self._monotonic()
            if self._served_s > until_s:
                return

    def _spin(self) -> list[tuple[int, int]]:
        """Sleeping and waking takes longer than many an answer: where answers lately came at once, wait for them awake.

        A client that answers each message gets its next one about 20 µs sooner. Whoever comes now and then costs no
        more than one spin in _HITS_MAX / _MISS messages.
        """
        if self._hits >= _HITS_MIN:
            until_s = self._served_s + SPIN_MAX_S
            while self._monotonic() < until_s:
                events = self.epoll.poll(0, TURN_EVENTS_MAX)
                if events:
                    return events
        return []

    def _serve(self, events: list[tuple[int, int]], until_s: float) -> None:
        connections = self.connections
        for fd, mask in events:
            connection = connections[fd] if fd < len(connections) else None
            if connection is None:
                if fd in self.listeners:
                    self.accept(self.listeners[fd])
                continue
            if mask & EPOLLOUT:
                connection.blocked = False
                self.flush(connection)
                if connection.fd >= 0:
                    self.watch(connection)
            if connection.fd < 0 or not mask & ~EPOLLOUT:
                continue
            if connection.paused and mask & EPOLLHUP and not mask & EPOLLERR:
                self._unwatch(connection)  # a Unix socket's end, told though nobody asks: what came before it is first
            elif mask == EPOLLIN and (connection.has_more or self._is_over(until_s)):
                self.waiting[connection] = None
            else:
                self.waiting.pop(connection, None)
                self._read(connection, fd)
        if self.waiting:
            self._serve_waiting(until_s)

    def _serve_waiting(self, until_s: float) -> None:
        """The first of them, and as many more as there is time for."""
        for _ in range(len(self.waiting)):
            connection = next(iter(self.waiting))
            del self.waiting[connection]
            if not connection.paused:
                self._read(connection, connection.fd)
                if self._is_over(until_s) or not self.waiting:
                    return

    def _is_over(self, until_s: float) -> bool:
        """There is no time left. It is looked at the clock once in READ_MIN_BYTES."""
        if self._fed_bytes >= READ_MIN_BYTES:
            self._fed_bytes = 0
            self._time_is_up = self._monotonic() > until_s
        return self._time_is_up

    def _read(self, connection: Connection, fd: int) -> None:
        if connection.state == CLOSED:
            self._discard(connection, fd)
            return
        try:
            data = os.read(fd, connection.read_bytes)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            connection.lost()
            self.close(connection)
        else:
            self._fed_bytes += len(data)
            connection.has_more = len(data) == connection.read_bytes
            if connection.has_more:
                self._feed_much(connection, data)
            else:
                self._feed(connection, data)
            if connection.state not in (CONNECTED, CLOSED):
                self.costs(connection, len(data) + UNAUTHENTICATED_READ_BYTES)
            if connection.paused and connection.state != CLOSED:  # a closed one ends with the turn
                self.watch(connection)

    def _discard(self, connection: Connection, fd: int) -> None:
        """What still comes from a client that was cut off: over TCP it isn't even copied."""
        borrowed = socket.socket(connection.listener.family, socket.SOCK_STREAM, 0, fileno=fd)
        try:
            size = borrowed.recv_into(self._discarded, 0, socket.MSG_TRUNC)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        finally:
            borrowed.detach()
        if size == 0:
            self.close(connection)

    def _feed_much(self, connection: Connection, data: bytes) -> None:
        """There is more where this came from. What takes long is read in smaller pieces from now on, so that a flood
        of packets that cost much, new topics say, delays others no more than one that costs little.
        """
        begun_s = self._monotonic()
        self._feed(connection, data)
        if connection.state == CONNECTED:
            connection.read_bytes = next_read_bytes(connection.read_bytes, self._monotonic() - begun_s)

    def _feed(self, connection: Connection, data: bytes) -> None:
        try:
            connection.feed(data)
        except Exception:
            self.failed(connection)

    def failed(self, sink: Sink) -> None:
        if not isinstance(sink, Connection):
            log.exception("a peer's messages could not be handed to its link")
            return
        log.exception("client %r from %s met a defect and is closed", sink.client_id(), sink.address())
        try:
            sink.close(Reason.UNSPECIFIED_ERROR)
        except Exception:
            log.exception("it could not be closed in order")
            self.close(sink)

    def go_on(self, channel: PausablePublisher) -> None:
        if isinstance(channel, Connection):
            if channel.cost and channel.state == CONNECTED:  # it was let in
                self.strangers.forget(channel)
            self._feed(channel, b"")
            self.watch(channel)

    def prepare(self) -> None:
        """Let the first ClientHellos in the line be answered; the others have the next turns."""
        if not self.greetings:
            return
        for connection in list(islice(self.greetings, TLS_GREETINGS_PER_TURN_MAX)):
            if connection in self.greetings:  # else one before it took its room
                del self.greetings[connection]
                connection.unpause()
                self.costs(connection, TLS_HANDSHAKE_BYTES)
        if self.greetings:
            self.soon()

    def channels(self) -> Sequence[Channel | None]:
        return self.connections

    # Descriptors.

    def adopt(self, fd: int, listener: Listener) -> Connection:
        """Serve a connected, non-blocking descriptor."""
        connection = listener.connection(fd)
        connections = self.connections
        while len(connections) <= fd:
            connections.append(None)
        connections[fd] = connection
        self.epoll.register(fd, EPOLLIN)
        self.router.counters.connections += 1
        listener.connections += 1
        return connection

    def watch(self, connection: Connection) -> None:
        """Tell epoll what the connection waits for now."""
        interest = (0 if connection.paused else EPOLLIN) | (EPOLLOUT if connection.blocked else 0)
        if interest != connection.interest and connection.fd >= 0:
            if connection.interest == UNWATCHED:
                self.epoll.register(connection.fd, interest)
            else:
                self.epoll.modify(connection.fd, interest)
            connection.interest = interest

    def _unwatch(self, connection: Connection) -> None:
        self.epoll.unregister(connection.fd)
        connection.interest = UNWATCHED

    def end(self, connection: Connection) -> None:
        """The channel has ended and its last packet is on its way: close, but let a client that we cut off read it."""
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
        self.strangers.forget(connection)
        connection.last_seen_s = self.router.now_s
        connection.paused = 0
        self.watch(connection)
        self.lingering[connection] = None

    def close(self, connection: Connection) -> None:
        fd = connection.fd
        if fd < 0:
            return
        connection.fd = -1
        self.lingering.pop(connection, None)
        self.waiting.pop(connection, None)
        if connection.cost:
            self.strangers.forget(connection)
        if connection.place:
            self.leaves_place(connection.place)
        self.connections[fd] = None
        self.newcomers.pop(fd, None)
        connection.released()
        connection.listener.connections -= 1
        os.close(fd)
        connection.out.clear()
        connection.out_bytes = 0
        self.router.counters.connections -= 1
        self.router.counters.disconnects += 1

    # Clients that aren't let in yet, and those over a rate.

    def costs(self, stranger: Connection, more_bytes: int) -> None:
        """It costs so much more before it is let in; who costs too much makes room."""
        strangers = self.strangers
        strangers.cost(stranger, more_bytes)
        if strangers.bytes > strangers.max_bytes:
            for connection in strangers.supernumerary():
                self.refused(f"clients that aren't let in yet cost more than {strangers.max_bytes} bytes")
                connection.lost()
                self.close(connection)

    def hold(self, connection: MeteredConnection) -> None:
        """The connection is over a rate, and paused."""
        self.throttle.hold(connection, self.router.now_s)
        if not self._throttling and self.loop is not None:
            self._throttling = True
            self.loop.call_later(THROTTLE_TICK_S, self.let_on)

    def let_on(self) -> None:
        """Every THROTTLE_TICK_S while somebody waits for tokens."""
        self.begin_turn(self._monotonic())
        self.throttle.tick(self.router.now_s)
        self._throttling = self.loop is not None and self.throttle.is_busy()
        if self._throttling and self.loop is not None:
            self.loop.call_later(THROTTLE_TICK_S, self.let_on)
        self.end_turn()

    # Time.

    def tick(self) -> None:
        """Every SWEEP_INTERVAL_S: who is silent, who is slow, who was cut off long enough ago."""
        if self.loop is not None:
            self._timer = self.loop.call_later(SWEEP_INTERVAL_S, self.tick)
        now_s = self._monotonic()
        self.begin_turn(now_s)
        self.listen_again()
        self.sweep(now_s)
        for connection in list(self.lingering):
            if now_s - connection.last_seen_s > LINGER_MAX_S:
                self.close(connection)
        self.end_turn()


def next_read_bytes(read_bytes: int, taken_s: float) -> int:
    """How much to read at once from a client whose last `read_bytes` took so long."""
    if taken_s > READ_WORK_MAX_S:
        return max(READ_MIN_BYTES, read_bytes // 2)
    return min(READ_MAX_BYTES, read_bytes * 2) if taken_s < READ_WORK_MAX_S / 4 else read_bytes
