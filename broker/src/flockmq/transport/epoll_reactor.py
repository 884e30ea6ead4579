"""The reactor for sockets: one epoll, nested in the event loop.

A turn has rounds. A round reads once from each ready connection, lets its channel work, and then flushes the dirty
sinks, so one write carries all that was put in the round. The event loop sees a single readable descriptor: the epoll.

Invariants, in addition to those of reactor.py: a connection is read at most once in each round; the number of rounds
and the time of a round and of a turn are bounded. When the round's time is up, who is ready waits for the next one, as
do all who are ready while somebody waits in the first row (`waiting_connections`): users take turns there. A client
with more data than was read waits in the second row, behind all others; so does a connection that isn't connected yet.
One that goes on after a pause isn't watched until it has processed what it has. At least one of each row is served in
each round, users in turn. So no client starves another, no user does, and all clients together don't starve the rest of
the node.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import i64

from flockmq.bounds import (
    DISCARD_MAX_BYTES,
    READ_MAX_BYTES,
    READ_MIN_BYTES,
    READ_WORK_MAX_S,
    RECEIVERS_PER_READ_MAX,
    ROUND_WORK_MAX_S,
    SPIN_MAX_S,
    SWEEP_INTERVAL_S,
    TURN_EVENTS_AGAIN_MAX,
    TURN_EVENTS_MAX,
    TURN_ROUNDS_MAX,
    TURN_WORK_MAX_S,
    UNAUTHENTICATED_READ_BYTES,
)
from flockmq.clock import Clock
from flockmq.mqtt.reason import Reason
from flockmq.protocol.channel import CLOSED, CONNECTED, Channel
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink
from flockmq.session.limits import Limits
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, UNWATCHED, Connection
from flockmq.transport.connection_table import ConnectionTable
from flockmq.transport.listener import Listener
from flockmq.transport.rate_limit import SharedMeter
from flockmq.transport.reactor import Reactor
from flockmq.transport.token_bucket import Bucket, Rates
from flockmq.transport.waiting_connections import WaitingConnections

log: Final = logging.getLogger(__name__)

_ENDED: Final = EPOLLERR | EPOLLHUP
_SMALL_TURN_EVENTS: Final = 8
_HITS_MAX: Final = 16
_HITS_MIN: Final = 8
_MISS: Final = 4
"""A turn that follows the last one within SPIN_MAX_S adds one hit; any other turn subtracts _MISS."""


class EpollReactor(Reactor):
    """The reactor for sockets; `table` has the connections."""

    def __init__(self, router: Router, limits: Limits, clock: Clock) -> None:
        super().__init__(router)
        self._monotonic: Callable[[], float] = clock.monotonic
        self.epoll = select.epoll()
        self.table = ConnectionTable(self, self.epoll, limits, clock)
        self._discarded = bytearray(DISCARD_MAX_BYTES)
        self._all: SharedMeter | None = None
        self._hits: int = 0
        self._served_s: float = 0.0
        self._until_s: float = 0.0
        self._time_is_up: bool = False
        self._fed_bytes: int = 0
        """Bytes since the last look at the clock."""
        self._look_at: i64 = 0
        """When messages have had so many receivers it looks at the clock, too."""
        self._timer: asyncio.TimerHandle | None = None
        self._next_turn: asyncio.Handle | None = None
        """It serves who waits; epoll may have nothing to report of them."""

    # Start and stop.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.router.host.now_s = self._monotonic()
        loop.add_reader(self.epoll.fileno(), self._ready)
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self.tick)

    def limit(self, rates: Rates, max_conn_rate: float) -> None:
        """Set the rates that all clients of this node share. A client that was connected without any keeps none."""
        now_s = self.router.host.now_s
        self._all = self._configured(self._all, rates)
        self.table.acceptor.conn_rate = Bucket(max_conn_rate, 0.0, now_s) if max_conn_rate > 0.0 else None
        for listener in self.table.acceptor.listeners.values():
            if self._all is not None and self._all not in listener.meters:
                listener.meters.append(self._all)
                listener.configure(now_s)

    def share_resources(
        self,
        max_unauthenticated_bytes: int,
        max_connections: int,
        max_connections_per_address: int,
        memory_bytes: int | None = None,
    ) -> None:
        """Set how much memory unauthenticated clients may use, how many connections there are, and from one network,
        and the memory that must have room for all of them."""
        self.table.unauthenticated.max_bytes = max_unauthenticated_bytes
        self.table.acceptor.max_connections = max_connections
        self.table.acceptor.max_connections_per_address = max_connections_per_address
        self.table.acceptor.memory_bytes = memory_bytes

    def max_connections(self) -> int:
        return self.table.acceptor.max_connections

    def open(self, listener: Listener) -> OpenListener:
        """Create what the clients of a listener share: its rates, and this node's."""
        opened = OpenListener(listener, [] if self._all is None else [self._all], self.router.host.now_s)
        self.configure(opened)
        return opened

    def configure(self, listener: OpenListener) -> None:
        """The listener's settings are others. A client that was connected without any rate keeps none."""
        had_none = listener.meter is None
        listener.meter = self._configured(listener.meter, listener.settings.rates)
        if had_none and listener.meter is not None:
            listener.meters.insert(0, listener.meter)
        listener.configure(self.router.host.now_s)

    def _configured(self, meter: SharedMeter | None, rates: Rates) -> SharedMeter | None:
        """The meter with these rates; a new one if there was none and there must be one."""
        if meter is None:
            return None if rates.are_off() else self.table.rate_limit.share(rates)
        meter.configure(rates, self.router.host.now_s)
        return meter

    def listen(self, listener: OpenListener, bound: socket.socket) -> None:
        """Accept clients on a bound, non-blocking socket, which the reactor owns from now on."""
        self.table.acceptor.listen(listener, bound)

    def stop_accepting(self) -> None:
        self.table.acceptor.stop()

    def listener_connections(self) -> list[tuple[str, int]]:
        listeners = self.table.acceptor.listeners.values()
        return [(listener.settings.name, listener.connections) for listener in listeners]

    def unauthenticated_bytes(self) -> int:
        return self.table.unauthenticated.bytes

    def stop(self) -> None:
        self.stop_accepting()
        self.table.close_all()
        if self._timer is not None:
            self._timer.cancel()
        if self._next_turn is not None:
            self._next_turn.cancel()
        if self.loop is not None:
            # uvloop's returns None, although a bool is declared.
            forget: Callable[[int], object] = self.loop.remove_reader
            forget(self.epoll.fileno())
        self.epoll.close()

    # The turn.

    def _ready(self) -> None:
        """Epoll has something to report. A turn that comes in this iteration anyway serves it."""
        if self._next_turn is None:
            self.turn()
            self.serve_soon()

    def serve_soon(self) -> None:
        if self._next_turn is None and self.loop is not None and self.table.waiting:
            self._next_turn = self.loop.call_soon(self._serve_again)

    def _serve_again(self) -> None:
        self._next_turn = None
        self.turn()
        self.serve_soon()

    def turn(self) -> None:
        """Serve what is ready, and look again before sleeping."""
        ends_s = 0.0
        for _ in range(TURN_ROUNDS_MAX):
            events = self.epoll.poll(0, TURN_EVENTS_MAX + min(len(self.table.waiting), TURN_EVENTS_AGAIN_MAX))
            if not events and not self.table.waiting:
                events = self._spin()
                if not events:
                    return
            now_s = self._monotonic()
            if ends_s == 0.0:
                ends_s = now_s + TURN_WORK_MAX_S
            self._allow_until(now_s + ROUND_WORK_MAX_S)
            self.begin_turn(now_s)
            if len(events) > _SMALL_TURN_EVENTS:
                self._hits = 0
            elif now_s - self._served_s < SPIN_MAX_S:
                self._hits = min(self._hits + 1, _HITS_MAX)
            else:
                self._hits = max(self._hits - _MISS, 0)
            self._serve(events)
            self.settle()
            self._served_s = self._monotonic()
            if self._served_s > ends_s:
                return

    def allow_time(self) -> None:
        self._allow_until(self._monotonic() + ROUND_WORK_MAX_S)

    def _allow_until(self, until_s: float) -> None:
        self._until_s = until_s
        self._time_is_up, self._fed_bytes = False, 0
        self._look_at = self.router.receivers + RECEIVERS_PER_READ_MAX

    def _spin(self) -> list[tuple[int, int]]:
        """If recent requests followed each other quickly, wait for the next one without sleeping, because going to
        sleep and waking up takes longer.

        A client that answers each message gets its next one about 20 µs sooner. A client that sends now and then costs
        at most one spin in _HITS_MAX / _MISS messages.
        """
        if self._hits >= _HITS_MIN:
            until_s = self._served_s + SPIN_MAX_S
            while self._monotonic() < until_s:
                events = self.epoll.poll(0, TURN_EVENTS_MAX)
                if events:
                    return events
        return []

    def _serve(self, events: list[tuple[int, int]]) -> None:
        table = self.table
        connections, waiting = table.connections, table.waiting
        all_wait = waiting.first.size > 0
        for fd, mask in events:
            connection = connections[fd] if fd < len(connections) else None
            if connection is None:
                listener = table.acceptor.listeners.get(fd)
                if listener is not None:
                    table.acceptor.accept(listener)
                continue
            if mask & _ENDED and (all_wait or self._is_over()):
                if not connection.paused:  # Otherwise epoll reports it again.
                    waiting.add(connection)
                continue
            if mask & EPOLLOUT:
                connection.blocked = False
                self.flush(connection)
                if connection.fd >= 0:
                    table.watch(connection)
            if connection.fd < 0 or not mask & ~EPOLLOUT:
                continue
            if connection.paused and mask & EPOLLHUP and not mask & EPOLLERR:
                # The end of a Unix socket, which epoll reports unasked. Data from before it is read first.
                table.unwatch(connection)
            elif not mask & _ENDED and (
                all_wait or connection.has_more or connection.state != CONNECTED or self._is_over()
            ):
                waiting.add(connection)
            else:
                waiting.discard(connection)
                self._read(connection, fd)
        if waiting:
            self._serve_waiting(waiting)

    def _serve_waiting(self, waiting: WaitingConnections) -> None:
        """Serve the next connection of each row, and more while there is time."""
        for row in (waiting.first, waiting.second):
            for _ in range(row.size):
                if not row.size:  # A read may close others.
                    break
                self._serve_next(waiting.next(row))
                if self._is_over():
                    break

    def _serve_next(self, connection: Connection) -> None:
        if connection.paused:
            self.table.watch(connection)  # It may have been paused between two turns.
        elif connection.interest == UNWATCHED or not connection.interest & EPOLLIN:
            self._resume(connection)
        else:
            self._read(connection, connection.fd)

    def _is_over(self) -> bool:
        """True if the round's time is up. Looks at the clock once in READ_MIN_BYTES, or RECEIVERS_PER_READ_MAX, and
        after each connection that ended, that went on after a pause, or that isn't connected yet: a CONNECT is small,
        and may cost much.
        """
        if self._fed_bytes >= READ_MIN_BYTES or self.router.receivers > self._look_at:
            self._fed_bytes = 0
            self._look_at = self.router.receivers + RECEIVERS_PER_READ_MAX
            self._time_is_up = self._monotonic() > self._until_s
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
            self._fed_bytes += READ_MIN_BYTES
            connection.lost()
            self.table.close(connection)
        else:
            self._fed_bytes += len(data) if connection.state == CONNECTED else READ_MIN_BYTES
            connection.has_more = len(data) == connection.read_bytes
            if connection.has_more or len(data) > 2 * READ_MIN_BYTES:
                self._feed_much(connection, data)
            else:
                self._feed(connection, data)
            if connection.state == CLOSED:  # It ends with the turn.
                self._fed_bytes += READ_MIN_BYTES
                return
            if connection.state != CONNECTED:
                self.table.add_cost(connection, len(data) + UNAUTHENTICATED_READ_BYTES)
            if connection.paused and connection.state != CLOSED:
                self.table.watch(connection)

    def _discard(self, connection: Connection, fd: int) -> None:
        """Discard what a disconnected client still sends; over TCP it isn't even copied."""
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
            self.table.close(connection)

    def _feed_much(self, connection: Connection, data: bytes) -> None:
        """If processing takes long, read smaller pieces from now on. Then a flood of expensive packets, for example
        with new topics, delays others no more than one of cheap packets. Read larger ones if it is quick, and the
        socket has more data than was read.
        """
        begun_s = self._monotonic()
        self._feed(connection, data)
        if connection.state == CONNECTED:
            read_bytes = next_read_bytes(connection.read_bytes, self._monotonic() - begun_s)
            if connection.has_more or read_bytes < connection.read_bytes:
                connection.read_bytes = read_bytes

    def _feed(self, connection: Connection, data: bytes) -> None:
        try:
            connection.feed(data)
        except Exception:
            self.failed(connection)

    def failed(self, sink: Sink) -> None:
        if not isinstance(sink, Connection):
            log.exception("messages could not be put on a node's link")
            return
        log.exception("client %r from %s is closed after an internal error", sink.client_id(), sink.address())
        try:
            sink.close(Reason.UNSPECIFIED_ERROR)
        except Exception:
            log.exception("it could not be closed properly")
            self.table.close(sink)

    def go_on(self, channel: PausablePublisher) -> None:
        if isinstance(channel, Connection):
            if channel.cost and channel.state == CONNECTED:  # It was authenticated.
                self.table.unauthenticated.forget(channel)
            layers = channel.layers
            # A handshake goes on at once: only so many are started in a turn.
            if self._is_over() and (layers is None or not layers.is_shaking_hands):
                self.table.waiting.add(channel)
            else:
                self._resume(channel)

    def _resume(self, connection: Connection) -> None:
        """Process what the connection has kept, and read from it again."""
        self._feed(connection, b"")
        self._fed_bytes += READ_MIN_BYTES
        self.table.watch(connection)

    def prepare(self) -> None:
        if self.table.pending_handshakes:
            self.table.start_handshakes()

    def channels(self) -> Sequence[Channel | None]:
        return self.table.connections

    # Time.

    def tick(self) -> None:
        """Every SWEEP_INTERVAL_S: end silent clients, check slow ones, and close connections that were half-closed long
        ago.
        """
        if self.loop is not None:
            self._timer = self.loop.call_later(SWEEP_INTERVAL_S, self.tick)
        now_s = self._monotonic()
        self.begin_turn(now_s)
        self.table.acceptor.resume_listeners()
        self.sweep(now_s)
        self.table.close_half_closed()
        self.end_turn()


def next_read_bytes(read_bytes: int, taken_s: float) -> int:
    """How much to read at once from a client whose last `read_bytes` took `taken_s`."""
    if taken_s > READ_WORK_MAX_S:
        return max(READ_MIN_BYTES, read_bytes // 2)
    return min(READ_MAX_BYTES, read_bytes * 2) if taken_s < READ_WORK_MAX_S / 4 else read_bytes
