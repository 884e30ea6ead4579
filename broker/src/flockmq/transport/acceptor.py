"""Accepts clients: the listening sockets of a node, and limits on how fast and from where clients may connect.

Invariants: over the connect rate the listener stops accepting until the next tick; clients wait in the kernel's
backlog. While many of those that were accepted wait to be read it accepts one at a time: they may be so slow that they
wait for ever. A client that is turned away costs no more than the accept. Many clients at one listener don't keep
others from another.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import sys
from collections.abc import Callable
from typing import Final

from flockmq.auth import addresses
from flockmq.bounds import (
    ACCEPTS_PER_TURN_MAX,
    CONNECTION_BYTES,
    LISTEN_BACKLOG_MAX,
    STRANGERS_WAITING_MAX,
    TLS_SESSION_BYTES,
)
from flockmq.routing.router import Router
from flockmq.transport import peer_address
from flockmq.transport.listener import Listener
from flockmq.transport.rate_limit import SharedMeter
from flockmq.transport.token_bucket import Bucket

log: Final = logging.getLogger(__name__)

_ANY: Final = 2**31 - 1
_REFUSED_LOGGED_EVERY_S: Final = 1.0
_GONE_IN_THE_BACKLOG: Final = (errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)


class OpenListener:
    """An open listener. `meters`: shared by all its clients; `meter`: that of this listener alone. `connections`: their
    number. `strangers_waiting`: of those that aren't connected yet, those that wait to be read. `is_metered`: each new
    client has a meter. `socket`: None if descriptors come from elsewhere. `is_suspended`: it accepts no clients at the
    moment.
    """

    def __init__(self, settings: Listener, meters: list[SharedMeter], now_s: float) -> None:
        self.settings = settings
        self.meters = meters
        self.meter: SharedMeter | None = None
        self.is_metered: bool = False
        self.conn_rate: Bucket | None = None
        self.connections: int = 0
        self.strangers_waiting: int = 0
        self.is_suspended: bool = False
        self.socket: socket.socket | None = None
        self.family: int = socket.AF_INET
        self.configure(now_s)

    def configure(self, now_s: float) -> None:
        """The settings, or the meters, are others."""
        self.is_metered = bool(self.meters) or not self.settings.client_rates.are_off()
        rate = self.settings.max_conn_rate
        self.conn_rate = Bucket(rate, 0.0, now_s) if rate > 0.0 else None


class Acceptor:
    """One per reactor. Calls `adopt(fd, listener, network)` for each accepted client.

    `listeners`: by file descriptor. `just_accepted`: addresses of the clients that were accepted since the last tick,
    because admission needs them. `networks`: number of connections from each network. `memory_bytes`: what connections
    may take; None: any.
    """

    def __init__(self, epoll: select.epoll, router: Router, adopt: Callable[[int, OpenListener, str], object]) -> None:
        self.listeners: dict[int, OpenListener] = {}
        self.just_accepted: dict[int, tuple[str, int]] = {}
        self.networks: dict[str, int] = {}
        self.max_connections: int = _ANY
        self.max_connections_per_address: int = _ANY
        self.memory_bytes: int | None = None
        self.conn_rate: Bucket | None = None
        self._epoll = epoll
        self._router = router
        self._adopt = adopt
        self._refused_logged_s: float = 0.0

    def listen(self, listener: OpenListener, bound: socket.socket) -> None:
        """Accept clients on a bound, non-blocking socket, which the acceptor owns from now on."""
        bound.listen(LISTEN_BACKLOG_MAX)
        listener.socket = bound
        listener.family = bound.family
        self.listeners[bound.fileno()] = listener
        self._epoll.register(bound.fileno(), select.EPOLLIN)

    def stop(self) -> None:
        for fd, listener in self.listeners.items():
            self._epoll.unregister(fd)
            if listener.socket is not None:
                listener.socket.close()
        self.listeners.clear()

    def resume_listeners(self) -> None:
        """Every tick: accept clients from the backlogs again."""
        self.just_accepted.clear()
        for listener in self.listeners.values():
            if listener.is_suspended:
                self._suspend(listener, False)
        if self.conn_rate is not None and self.listeners:  # Another listener gets the next tokens first.
            fd = next(iter(self.listeners))
            self.listeners[fd] = self.listeners.pop(fd)

    def accept(self, listener: OpenListener) -> None:
        bound = listener.socket
        assert bound is not None
        for _ in range(ACCEPTS_PER_TURN_MAX if listener.strangers_waiting < STRANGERS_WAITING_MAX else 1):
            if (listener.conn_rate is not None or self.conn_rate is not None) and self._too_fast(listener):
                return
            try:
                accepted: tuple[int, object] = bound._accept()  # type: ignore[attr-defined] # no object, no getsockname
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_IN_THE_BACKLOG:
                    continue
                self.refused(f"{listener.settings.name}: can't accept: {error.strerror}")
                self._suspend(listener, True)  # Out of descriptors or memory: the backlog waits for the next tick.
                return
            self._debit(listener)
            fd, address = accepted
            self._admit(listener, fd, address)

    def _admit(self, listener: OpenListener, fd: int, address: object) -> None:
        """Adopt the client, or turn it away."""
        host = peer_address.plain(str(address[0])) if isinstance(address, tuple) else ""
        network = addresses.network(host)
        why = self._why_refused(listener, host, network)
        if why:
            self.refused(why)
            os.close(fd)
            return
        os.set_blocking(fd, False)
        if not isinstance(address, tuple):
            self._adopt(fd, listener, "")
            return
        self.just_accepted[fd] = (host, int(address[1]))
        self._adopt(fd, listener, self.count_in(network) if listener.settings.proxy is None else "")

    def _why_refused(self, listener: OpenListener, host: str, network: str) -> str:
        """Why a client from this address is turned away; "": it isn't."""
        settings = listener.settings
        if self._router.counters.connections >= self.max_connections:
            return f"the node has its maximum of {self.max_connections} connections"
        if self.memory_bytes is not None and self._bytes_with(listener) > self.memory_bytes:
            return f"the memory, {self.memory_bytes} bytes, has no room for more connections"
        if listener.connections >= settings.max_connections:
            return f"{settings.name}: max_connections of {settings.max_connections} reached"
        why = settings.why_refused(host)
        if not why and settings.proxy is None and self.is_full(network):
            return self.full_network_error(host)
        return why

    def _bytes_with(self, listener: OpenListener) -> int:
        """The memory of all connections and of one more at this listener. TLS takes more than the connection itself."""
        by_tls = sum(each.connections for each in self.listeners.values() if each.settings.certificates is not None)
        by_tls += listener.settings.certificates is not None
        return (self._router.counters.connections + 1) * CONNECTION_BYTES + by_tls * TLS_SESSION_BYTES

    def is_full(self, network: str) -> bool:
        """True if the network has its maximum of connections. Unix sockets have no limit."""
        return self.networks.get(network, 0) >= self.max_connections_per_address

    def full_network_error(self, host: str) -> str:
        """The log text for a client of a full network."""
        return f"{host} has max_connections_per_address of {self.max_connections_per_address}"

    def count_in(self, network: str) -> str:
        """Count one more connection from the network. Returns its name: one object for all of its connections, because
        each keeps it.
        """
        network = sys.intern(network)
        self.networks[network] = self.networks.get(network, 0) + 1
        return network

    def count_out(self, network: str) -> None:
        left = self.networks[network] - 1
        if left:
            self.networks[network] = left
        else:
            del self.networks[network]

    def _too_fast(self, listener: OpenListener) -> bool:
        """True if the next client must wait in the backlog."""
        now_s = self._router.host.now_s
        for bucket in (listener.conn_rate, self.conn_rate):
            if bucket is not None and bucket.tokens(now_s) < 1.0:
                self._suspend(listener, True)
                return True
        return False

    def _debit(self, listener: OpenListener) -> None:
        for bucket in (listener.conn_rate, self.conn_rate):
            if bucket is not None:
                bucket.debit(1.0, self._router.host.now_s)

    def refused(self, why: str) -> None:
        self._router.counters.connects_refused += 1
        if self._router.host.now_s - self._refused_logged_s >= _REFUSED_LOGGED_EVERY_S:
            self._refused_logged_s = self._router.host.now_s
            log.warning("clients are turned away: %s", why)

    def _suspend(self, listener: OpenListener, suspended: bool) -> None:
        listener.is_suspended = suspended
        if listener.socket is not None:
            self._epoll.modify(listener.socket.fileno(), 0 if suspended else select.EPOLLIN)
