"""A connection with filters between the socket and MQTT: PROXY header, TLS, WebSocket, in this order.

    socket ──▶ [PROXY] ──▶ [TLS] ──▶ [WebSocket] ──▶ channel        unwrap
    socket ◀───────────── [TLS] ◀── [WebSocket] ◀── channel        wrap, FILTER_SLICE_MAX_BYTES at a time

What always holds: what was wrapped and not written yet is less than two slices, so what waits stands in `out`, in
plain, where its bounds are; a client that reads nothing can't make filters answer without end.
"""

from __future__ import annotations

import os

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    FILTER_SLICE_MAX_BYTES,
    SINK_CONGESTED_BYTES,
    TLS_HANDSHAKE_BYTES,
    TLS_SESSION_BYTES,
)
from flockmq.mqtt.errors import PacketError
from flockmq.protocol.channel import CLOSED, CONNECTED
from flockmq.protocol.peer import PeerInfo
from flockmq.protocol.ports import NodePort
from flockmq.routing.router import Router
from flockmq.routing.sink import FLOWING
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import ConnectionReactor
from flockmq.transport.layer import Layer
from flockmq.transport.metered_connection import MeteredConnection
from flockmq.transport.proxy_protocol import ProxyHeader
from flockmq.transport.tls import Tls
from flockmq.transport.websocket import WebSocket


@mypyc_attr(acyclic=True)
class FilteredConnection(MeteredConnection):
    """`filters` from the socket inwards; `wrapped` is what they gave and the socket hasn't taken; `at`: how much of the
    first chunk in `out` was wrapped already.
    """

    __slots__ = ("at", "filters", "header", "is_shaking_hands", "said_goodbye", "tls", "wrapped")

    def __init__(
        self, reactor: ConnectionReactor, router: Router, port: NodePort, listener: OpenListener, fd: int
    ) -> None:
        super().__init__(reactor, router, port, listener, fd)
        settings = listener.settings
        self.filters: list[Layer] = []
        self.wrapped: bytes = b""
        self.said_goodbye: bool = False
        self.at: int = 0
        self.header: ProxyHeader | None = None
        self.tls: Tls | None = None
        if settings.proxy is not None:
            self.header = ProxyHeader()
            self.keepalive_s = settings.proxy.timeout_s
        if settings.certificates is not None:
            self.tls = Tls(settings.certificates)
            self.filters.append(self.tls)
        self.is_shaking_hands: bool = self.tls is not None
        if settings.path:
            self.filters.append(WebSocket(settings.path, settings.allowed_origins))

    def peer(self) -> PeerInfo:
        header, tls = self.header, self.tls
        certificate = None if tls is None else tls.certificate()
        if header is None or not header.host:
            host, port = self.origin()
        else:
            host, port = header.host, header.port
        proxy = self.listener.settings.proxy
        if header is not None and certificate is None and proxy is not None:
            certificate = header.certificate if proxy.names_count else None
        return PeerInfo(host, port, self.listener.settings.name, self.limits.name, certificate)

    def released(self) -> None:
        self.filters.clear()
        self.tls = None
        self.wrapped = b""

    # Bytes in.

    def feed(self, data: bytes) -> None:
        if self.state == CLOSED:
            return
        size = len(data)
        header = self.header
        if header is not None and not header.is_whole:
            data = self._header(header, data)
            if not data:
                return
        for filter in self.filters:
            data = filter.unwrap(data)
        if self.is_shaking_hands and self.tls is not None:
            self._handshake(self.tls)
        self.feed_metered(data, size)
        self._judge()

    def _header(self, header: ProxyHeader, data: bytes) -> bytes:
        """What follows the PROXY header, if its client may come."""
        try:
            data = header.take(data)
        except PacketError as error:
            self._broken(error)
            return b""
        if header.is_whole:
            self.keepalive_s = self.limits.idle_timeout
            host = header.host or self.origin()[0]  # a balancer that speaks for itself is judged by its own address
            if not self.reactor.welcomes(self, host):
                self.lost()
                return b""
        return data

    def _handshake(self, tls: Tls) -> None:
        """A ClientHello waits for its turn, because its answer takes a millisecond; and not too many are under way."""
        if tls.is_open:
            self.is_shaking_hands = False
            if self.state != CONNECTED:
                self.reactor.costs(self, TLS_SESSION_BYTES - TLS_HANDSHAKE_BYTES)
        elif tls.is_greeted and not tls.has_begun():
            self.reactor.greet(self)

    def _judge(self) -> None:
        """Did a filter come to an end, or has something to say?"""
        answers = False
        for filter in self.filters:
            if filter.fault is not None and self.state != CLOSED:
                self._broken(filter.fault)
            elif filter.has_ended and self.state != CLOSED and not self.paused:  # else not before what it said is heard
                self.lost()
            answers = answers or filter.has_answer
        if answers and not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def _broken(self, error: PacketError) -> None:
        self.router.counters.protocol_errors += 1
        self.port.violated(self, error)
        if self.state == CONNECTED:
            self.close(error.reason)
        else:
            self.lost()

    # Bytes out.

    def flush(self) -> None:
        if self.fd < 0:
            return
        if self.state == CLOSED and not self.said_goodbye and not self.out:
            self._say_goodbye()
        if not self.blocked:
            self.write()
        elif self.out_bytes > SINK_CONGESTED_BYTES:
            self.choke()
            self.reactor.watch(self)
        if self.state == CLOSED and self.fd >= 0:
            self._last_flush()

    def _last_flush(self) -> None:
        if not self.said_goodbye and not self.out:
            self._say_goodbye()
            if not self.blocked:
                self.write()
        if self.fd >= 0:
            self.reactor.end(self)

    def _say_goodbye(self) -> None:
        """The innermost filter's last words go through the outer ones, before theirs."""
        self.said_goodbye = True
        for filter in reversed(self.filters):
            filter.farewell(self.close_reason)

    def write(self) -> None:
        """Wrap a slice and write it; what is left of `out` has its turn when the socket has room again."""
        if not self.wrapped:
            self.wrapped = self._wrap()
        raw = self.wrapped
        if not raw:
            return
        try:
            sent = os.write(self.fd, raw)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.lost()
            self.reactor.close(self)
            return
        self.router.counters.bytes_sent += sent
        self.wrapped = raw[sent:] if sent < len(raw) else b""
        if sent and self.flow != FLOWING:
            self.progressed()
        if self.wrapped or self.out:
            self.blocked = True
            if self.out_bytes > SINK_CONGESTED_BYTES:
                self.choke()
            self.reactor.watch(self)

    def _wrap(self) -> bytes:
        data = self._slice() if self.out else b""
        for filter in reversed(self.filters):
            data = filter.wrap(data)
        return data

    def _slice(self) -> bytes:
        """The first FILTER_SLICE_MAX_BYTES of what waits."""
        out = self.out
        taken: list[bytes] = []
        room = FILTER_SLICE_MAX_BYTES
        whole = 0
        for chunk in out:
            at = self.at
            if len(chunk) - at > room:
                taken.append(chunk[at : at + room])
                self.at = at + room
                room = 0
                break
            taken.append(chunk[at:] if at else chunk)
            room -= len(chunk) - at
            self.at = 0
            whole += 1
        del out[:whole]
        self.out_bytes -= FILTER_SLICE_MAX_BYTES - room
        return taken[0] if len(taken) == 1 else b"".join(taken)
