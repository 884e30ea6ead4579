"""Who comes in: the listening sockets of a node, and how fast and from where clients may connect.

What always holds: whoever comes too fast waits in the kernel's backlog, at a listener that is deaf until the next tick;
whoever is turned away costs no more than the accept; a crowd at one listener keeps nobody from another.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
from typing import Final

from flockmq.auth.addresses import network
from flockmq.bounds import ACCEPTS_PER_TURN_MAX, LISTEN_BACKLOG_MAX
from flockmq.routing.router import Router
from flockmq.session.limits import Limits
from flockmq.transport import sockets
from flockmq.transport.connection import EPOLLIN, Connection
from flockmq.transport.listener import Listener
from flockmq.transport.reactor import Reactor
from flockmq.transport.token_bucket import Bucket

log: Final = logging.getLogger(__name__)

_REFUSED_LOGGED_EVERY_S: Final = 1.0
_GONE_IN_THE_BACKLOG: Final = (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Acceptor(Reactor):
    """The half of the engine that clients meet first. `newcomers`: addresses of those accepted since the last tick,
    because admission asks for them; `places`: how many connections each has.
    """

    def __init__(self, router: Router, limits: Limits) -> None:
        super().__init__(router)
        self.limits = limits
        self.epoll = select.epoll()
        self.newcomers: dict[int, tuple[str, int]] = {}
        self.places: dict[str, int] = {}
        self.max_connections_per_address: int = limits.max_connections
        self.conn_rate: Bucket | None = None
        self._refused_logged_s: float = 0.0

    def adopt(self, fd: int, listener: Listener) -> Connection:
        """Serve a connected, non-blocking descriptor."""
        raise NotImplementedError(type(self).__name__)

    def listen(self, listener: Listener, bound: socket.socket) -> None:
        """Accept clients on a bound, non-blocking socket, which the engine owns from now on."""
        bound.listen(LISTEN_BACKLOG_MAX)
        listener.socket = bound
        listener.family = bound.family
        self.listeners[bound.fileno()] = listener
        self.epoll.register(bound.fileno(), EPOLLIN)

    def stop_accepting(self) -> None:
        for fd, listener in self.listeners.items():
            self.epoll.unregister(fd)
            if listener.socket is not None:
                listener.socket.close()
        self.listeners.clear()

    def listen_again(self) -> None:
        """Every tick: whoever waits in a backlog has a chance."""
        self.newcomers.clear()
        for listener in self.listeners.values():
            if listener.is_deaf:
                self._deafen(listener, False)
        if self.conn_rate is not None and self.listeners:  # another listener is the first to have the next tokens
            fd = next(iter(self.listeners))
            self.listeners[fd] = self.listeners.pop(fd)

    def accept(self, listener: Listener) -> None:
        bound = listener.socket
        assert bound is not None
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if (listener.conn_rate is not None or self.conn_rate is not None) and self._too_fast(listener):
                return
            try:
                accepted: tuple[int, object] = bound._accept()  # type: ignore[attr-defined] # no object, no getsockname
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_IN_THE_BACKLOG:
                    continue
                self.refused(f"{listener.name}: can't accept: {error.strerror}")
                self._deafen(listener, True)  # out of descriptors or memory: the backlog waits for the next tick
                return
            self._debit(listener)
            fd, address = accepted
            host = sockets.plain(str(address[0])) if isinstance(address, tuple) else ""
            place = network(host)
            why = self._turns_away(listener, host, place)
            if why:
                self.refused(why)
                os.close(fd)
                continue
            os.set_blocking(fd, False)
            connection = self.adopt(fd, listener)
            if isinstance(address, tuple):
                self.newcomers[fd] = (host, int(address[1]))
                if listener.proxy is None:
                    self.takes_place(connection, place)

    def _turns_away(self, listener: Listener, host: str, place: str) -> str:
        """Why a client from this address can't come, or ""."""
        if self.router.counters.connections >= self.limits.max_connections:
            return f"max_connections of {self.limits.max_connections} reached"
        why = listener.turns_away(host)
        if not why and listener.proxy is None and self.is_full(place):
            return f"{host} has max_connections_per_address of {self.max_connections_per_address}"
        return why

    def is_full(self, place: str) -> bool:
        """No connection more can come from there; from a Unix socket they can."""
        return self.places.get(place, 0) >= self.max_connections_per_address

    def takes_place(self, connection: Connection, place: str) -> None:
        """The connection counts as its client's, who is there."""
        connection.place = place
        self.places[place] = self.places.get(place, 0) + 1

    def leaves_place(self, place: str) -> None:
        left = self.places[place] - 1
        if left:
            self.places[place] = left
        else:
            del self.places[place]

    def _too_fast(self, listener: Listener) -> bool:
        """Whether the next client must wait in the backlog."""
        now_s = self.router.now_s
        for bucket in (listener.conn_rate, self.conn_rate):
            if bucket is not None and bucket.tokens(now_s) < 1.0:
                self._deafen(listener, True)
                return True
        return False

    def _debit(self, listener: Listener) -> None:
        for bucket in (listener.conn_rate, self.conn_rate):
            if bucket is not None:
                bucket.debit(1.0, self.router.now_s)

    def refused(self, why: str) -> None:
        self.router.counters.connects_refused += 1
        if self.router.now_s - self._refused_logged_s >= _REFUSED_LOGGED_EVERY_S:
            self._refused_logged_s = self.router.now_s
            log.warning("clients are turned away: %s", why)

    def _deafen(self, listener: Listener, deaf: bool) -> None:
        listener.is_deaf = deaf
        if listener.socket is not None:
            self.epoll.modify(listener.socket.fileno(), 0 if deaf else EPOLLIN)
