"""The descriptors of a node's clients: one epoll of our own, nested in the event loop, and the turn that runs them.

A turn reads once from each ready connection, lets its channel work, and then flushes the sinks that became dirty; so
one write carries all that a turn put. The loop sees a single readable descriptor: our epoll.

What always holds: between two turns no sink is dirty, no resumed channel waits; a connection is read at most once a
round and rounds are bounded, so no client starves another or the rest of the node; a defect that one connection meets
ends that connection, with a traceback in the log, and no other.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final

from flockmq.bounds import (
    ACCEPTS_PER_TURN_MAX,
    LINGER_MAX_S,
    LISTEN_BACKLOG_MAX,
    READ_MAX_BYTES,
    SWEEP_INTERVAL_S,
    SWEEP_TICKS,
    TURN_EVENTS_MAX,
    TURN_ROUNDS_MAX,
    TURN_SPINS_MAX,
)
from flockmq.listeners.connection import EPOLLIN, EPOLLOUT, Connection
from flockmq.mqtt.reason import Reason
from flockmq.session.channel import CLOSED
from flockmq.session.limits import Limits
from flockmq.session.port import NodePort
from flockmq.session.router import Router
from flockmq.session.sink import Sink

log: Final = logging.getLogger(__name__)

_SMALL_TURN_EVENTS: Final = 8
_FULL_LOGGED_EVERY_S: Final = 1.0
_GONE_IN_THE_BACKLOG: Final = (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Engine:
    """One per node. `start` needs a running event loop."""

    def __init__(self, router: Router, port: NodePort, limits: Limits) -> None:
        self.router = router
        self.port = port
        self.limits = limits
        self.epoll = select.epoll()
        self.connections: list[Connection | None] = []
        self.listeners: dict[int, socket.socket] = {}
        self.lingering: set[Connection] = set()
        self._deaf: bool = False
        self._full_logged_s: float = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._soon: bool = False
        self._swept: int = 0
        self._timer: asyncio.TimerHandle | None = None

    # Life.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.router.now_s = time.monotonic()
        loop.add_reader(self.epoll.fileno(), self.turn)
        self._timer = loop.call_later(SWEEP_INTERVAL_S, self.tick)

    def listen(self, listener: socket.socket) -> None:
        """Accept clients on a bound, non-blocking socket, which the engine owns from now on."""
        listener.listen(LISTEN_BACKLOG_MAX)
        self.listeners[listener.fileno()] = listener
        self.epoll.register(listener.fileno(), EPOLLIN)

    def stop_accepting(self) -> None:
        for fd, listener in self.listeners.items():
            self.epoll.unregister(fd)
            listener.close()
        self.listeners.clear()

    def stop(self) -> None:
        """Close every connection, without a word to the clients that were not told one before."""
        self.stop_accepting()
        for connection in self.connections:
            if connection is not None:
                connection.lost()
                self.close(connection)
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is not None:
            forget: Callable[[int], object] = (
                self._loop.remove_reader
            )  # uvloop's returns None, where a bool is promised
            forget(self.epoll.fileno())
        self.epoll.close()

    # The turn.

    def turn(self) -> None:
        """Serve what is ready. After a small turn, look again a few times before sleeping: answers come quickly."""
        spins = 0
        for _ in range(TURN_ROUNDS_MAX):
            events = self.epoll.poll(0, TURN_EVENTS_MAX)
            if not events:
                spins += 1
                if spins > TURN_SPINS_MAX:
                    return
                continue
            spins = 0 if len(events) <= _SMALL_TURN_EVENTS else TURN_SPINS_MAX
            self.router.now_s = time.monotonic()
            self._serve(events)
            self.end_turn()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        connections = self.connections
        for fd, mask in events:
            connection = connections[fd] if fd < len(connections) else None
            if connection is None:
                if fd in self.listeners:
                    self._accept(self.listeners[fd])
                continue
            if mask & EPOLLOUT:
                connection.blocked = False
                self._flush(connection)
                if connection.fd >= 0:
                    self.watch(connection)
            if mask & ~EPOLLOUT and connection.fd >= 0:
                self._read(connection, fd)

    def _read(self, connection: Connection, fd: int) -> None:
        try:
            data = os.read(fd, READ_MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            connection.lost()
            self.close(connection)
        elif connection.state != CLOSED:
            self._feed(connection, data)
            if connection.paused:
                self.watch(connection)

    def _feed(self, connection: Connection, data: bytes) -> None:
        try:
            connection.feed(data)
        except Exception:
            self._failed(connection)

    def _failed(self, connection: Connection) -> None:
        """A defect of ours: this connection can't be trusted any more; the others go on."""
        log.exception("client %r from %s met a defect and is closed", connection.client_id(), connection.address())
        try:
            connection.close(Reason.UNSPECIFIED_ERROR)
        except Exception:
            log.exception("it could not be closed in order")
            self.close(connection)

    def end_turn(self) -> None:
        """Let resumed channels go on, and flush every dirty sink."""
        self._soon = False
        turn = self.router.turn
        resumed = self.router.resumed
        while turn or resumed:
            if resumed:
                batch = resumed.copy()
                resumed.clear()
                for channel in batch:
                    if isinstance(channel, Connection) and channel.paused == 0 and channel.state != CLOSED:
                        self._feed(channel, b"")
                        self.watch(channel)
            at = 0
            while at < len(turn):
                sink = turn[at]
                at += 1
                sink.dirty = False
                self._flush(sink)
            turn.clear()

    def _flush(self, sink: Sink) -> None:
        try:
            sink.flush()
        except Exception:
            if isinstance(sink, Connection):
                self._failed(sink)
            else:
                log.exception("a peer's messages could not be handed to its link")

    def soon(self) -> None:
        """Something was put outside a turn: flush in the loop's next iteration."""
        if not self._soon and self._loop is not None:
            self._soon = True
            self._loop.call_soon(self.end_turn)

    # Descriptors.

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_IN_THE_BACKLOG:
                    continue
                self._full(f"can't accept: {error.strerror}")
                self._listen(False)  # out of descriptors or memory: the backlog waits for the next tick
                return
            if self.router.counters.connections >= self.limits.max_connections:
                self._full(f"max_connections of {self.limits.max_connections} reached")
                accepted.close()
                continue
            accepted.setblocking(False)
            self.adopt(accepted.detach())

    def _full(self, why: str) -> None:
        self.router.counters.connects_refused += 1
        if self.router.now_s - self._full_logged_s >= _FULL_LOGGED_EVERY_S:
            self._full_logged_s = self.router.now_s
            log.warning("clients are turned away: %s", why)

    def _listen(self, on: bool) -> None:
        self._deaf = not on
        for fd in self.listeners:
            self.epoll.modify(fd, EPOLLIN if on else 0)

    def adopt(self, fd: int) -> Connection:
        """Serve a connected, non-blocking descriptor."""
        connection = Connection(self, fd, self.router, self.port, self.limits)
        connections = self.connections
        while len(connections) <= fd:
            connections.append(None)
        connections[fd] = connection
        self.epoll.register(fd, EPOLLIN)
        self.router.counters.connections += 1
        return connection

    def watch(self, connection: Connection) -> None:
        """Tell epoll what the connection waits for now."""
        interest = (0 if connection.paused else EPOLLIN) | (EPOLLOUT if connection.blocked else 0)
        if interest != connection.interest and connection.fd >= 0:
            connection.interest = interest
            self.epoll.modify(connection.fd, interest)

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
        connection.last_seen_s = self.router.now_s
        connection.paused = 0
        self.watch(connection)
        self.lingering.add(connection)

    def close(self, connection: Connection) -> None:
        fd = connection.fd
        if fd < 0:
            return
        connection.fd = -1
        self.lingering.discard(connection)
        self.connections[fd] = None
        os.close(fd)
        connection.out.clear()
        connection.out_bytes = 0
        self.router.counters.connections -= 1
        self.router.counters.disconnects += 1

    # Time.

    def tick(self) -> None:
        """Every SWEEP_INTERVAL_S: who is silent, who is slow, who was cut off long enough ago."""
        if self._loop is not None:
            self._timer = self._loop.call_later(SWEEP_INTERVAL_S, self.tick)
        now_s = time.monotonic()
        self.router.now_s = now_s
        if self._deaf:
            self._listen(True)
        connections = self.connections
        for fd in range(self._swept, len(connections), SWEEP_TICKS):
            connection = connections[fd]
            if connection is not None and connection.state != CLOSED and connection.overdue(now_s):
                connection.expire()
        self._swept = (self._swept + 1) % SWEEP_TICKS
        slow = self.router.slow
        for channel in list(slow):
            if not channel.judge(now_s):
                slow.discard(channel)
        for connection in list(self.lingering):
            if now_s - connection.last_seen_s > LINGER_MAX_S:
                self.close(connection)
        self.end_turn()
