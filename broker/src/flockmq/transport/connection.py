"""A client's connection with its own file descriptor: writes what its channel put, and notices a slow peer.

Usually one call writes all that was put in a turn. The rest waits for EPOLLOUT; above SINK_CONGESTED_BYTES the
connection stops reading. Connections of a listener with TLS, WebSocket or PROXY header have `layers`. If a rate is
configured they have a `meter`; over the rate they are paused until there are tokens again. Invariant: `fd` is open
exactly while the connection is in the reactor's table.
"""

from __future__ import annotations

import os
import select
from typing import Final

from mypy_extensions import i32, mypyc_attr, u8

from flockmq.bounds import (
    SINK_CONGESTED_BYTES,
    TLS_HANDSHAKE_BYTES,
    TLS_MESSAGE_BYTES,
    TLS_SESSION_BYTES,
    UNAUTHENTICATED_READ_MAX_BYTES,
    WRITE_JOIN_MAX_BYTES,
    WRITE_VECTOR_MAX,
)
from flockmq.mqtt.errors import PacketError
from flockmq.protocol.channel import CLOSED, CONNECTED
from flockmq.protocol.client import PeerInfo
from flockmq.protocol.conversation import Conversation
from flockmq.protocol.ports import NodePort
from flockmq.routing.router import Router
from flockmq.routing.sink import FLOWING, NOTHING
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.layer_stack import LayerStack
from flockmq.transport.peer_address import peer_of
from flockmq.transport.proxy_protocol import ProxyHeader
from flockmq.transport.rate_limit import ClientMeter
from flockmq.transport.tls import Tls

EPOLLIN: Final = 1
EPOLLOUT: Final = 4
EPOLLERR: Final = 8
EPOLLHUP: Final = 16
UNWATCHED: Final = 255


class ConnectionReactor:
    """What a connection needs from its reactor."""

    def accepted_address(self, fd: int) -> tuple[str, int] | None:
        """The address of a client that was accepted since the last tick; else None."""
        raise NotImplementedError

    def watch(self, connection: Connection) -> None:
        """Update epoll to what the connection waits for now."""
        raise NotImplementedError

    def end(self, connection: Connection) -> None:
        """The channel has ended, and its last packet was written."""
        raise NotImplementedError

    def close(self, connection: Connection) -> None:
        """Close the descriptor, and forget the connection."""
        raise NotImplementedError

    def hold(self, connection: Connection, meter: ClientMeter) -> None:
        """The connection is over a rate: pause it until there are tokens again."""
        raise NotImplementedError

    def queue_handshake(self, connection: Connection) -> None:
        """A complete ClientHello has arrived: pause the connection until its handshake may start."""
        raise NotImplementedError

    def add_cost(self, connection: Connection, more_bytes: int) -> None:
        """Add to the memory cost of a client that isn't authenticated yet; `more_bytes` may be negative."""
        raise NotImplementedError

    def admits_address(self, connection: Connection, host: str) -> bool:
        """True if the client at this address, which a load balancer named, may connect. It is then counted in its
        network.
        """
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Connection(Conversation):
    """`layers` and `meter`: None if unused. `interest`: what epoll watches for, or UNWATCHED. `blocked`: the socket is
    full. `has_more`: the last read didn't take everything. `read_bytes`: how much to read at once. `network`: the
    network in which the connection is counted; "": none. `cost`: its memory in bytes before it is authenticated.
    """

    __slots__ = (
        "blocked", "cost", "fd", "has_more", "interest", "layers", "listener", "meter", "network", "reactor",
        "read_bytes",
    )  # fmt: skip

    def __init__(
        self, reactor: ConnectionReactor, router: Router, port: NodePort, listener: OpenListener, fd: int
    ) -> None:
        settings = listener.settings
        super().__init__(router, port, settings.limits)
        self.blocked: bool = False
        self.has_more: bool = False
        self.interest: u8 = EPOLLIN
        self.fd: i32 = fd
        self.read_bytes: i32 = UNAUTHENTICATED_READ_MAX_BYTES
        self.cost: i32 = 0
        self.network: str = ""
        self.reactor = reactor
        self.listener = listener
        self.layers: LayerStack | None = None
        self.meter: ClientMeter | None = None
        if settings.has_layers:
            self.layers = LayerStack(settings)
            if settings.proxy is not None:
                self.keepalive_s = settings.proxy.timeout_s
        if listener.is_metered:
            self.meter = ClientMeter(settings.client_rates, listener.meters, router.host.now_s)

    def peer(self) -> PeerInfo:
        settings, layers = self.listener.settings, self.layers
        if layers is None:
            host, port = self.origin()
            return PeerInfo(host, port, settings.name, self.limits.name)
        header = layers.header
        host, port = self.origin() if header is None or not header.host else (header.host, header.port)
        certificate = layers.certificate(named=settings.proxy is not None and settings.proxy.names_count)
        return PeerInfo(host, port, settings.name, self.limits.name, certificate, header is not None)

    def listener_name(self) -> str:
        return self.listener.settings.name

    def origin(self) -> tuple[str, int]:
        """The address of the other end. For a new connection the reactor knows it; later the kernel is asked."""
        return self.reactor.accepted_address(self.fd) or peer_of(self.fd, self.listener.family)

    def has_left(self) -> bool:
        if self.fd < 0:
            return True
        end = select.poll()
        end.register(self.fd, select.POLLRDHUP)
        return bool(end.poll(0))

    # Bytes in.

    def feed(self, data: bytes) -> None:
        if self.layers is not None:
            self._feed_through(self.layers, data)
        elif self.meter is not None:
            self._feed_metered(self.meter, data, len(data))
        else:
            super().feed(data)

    def _feed_through(self, layers: LayerStack, data: bytes) -> None:
        if self.state == CLOSED:
            return
        size = len(data)
        header = layers.header
        if header is not None and not header.is_whole:
            data = self._behind_header(header, data)
            if not data:
                return
        if layers.is_shaking_hands and layers.tls is not None:
            data = self._shake_hands(layers, layers.tls, data)
        else:
            data = layers.unwrap(data)
        if self.meter is not None:
            self._feed_metered(self.meter, data, size)
        elif data or not size:
            super().feed(data)
        self._check_layers(layers)

    def _feed_metered(self, meter: ClientMeter, data: bytes, size: int) -> None:
        """`size` bytes were read, which contained `data`: bytes that layers keep for themselves count, too."""
        counters = self.router.counters
        before = counters.messages_received
        if data or not size:
            super().feed(data)
        messages = counters.messages_received - before
        over = (size or messages) and meter.debit(messages, size, self.router.host.now_s)
        if over and meter.held is None and self.state != CLOSED:
            self.reactor.hold(self, meter)

    def _behind_header(self, header: ProxyHeader, data: bytes) -> bytes:
        """What follows the PROXY header, if the client may connect."""
        try:
            data = header.take(data)
        except PacketError as error:
            self._broken(error)
            return b""
        if header.is_whole:
            self.keepalive_s = self.limits.idle_timeout
            # If the balancer connects for itself (LOCAL, UNKNOWN), its own address counts.
            host = header.host or self.origin()[0]
            if not self.reactor.admits_address(self, host):
                self.lost()
                return b""
        return data

    def _shake_hands(self, layers: LayerStack, tls: Tls, data: bytes) -> bytes:
        """Unwrap while the handshake isn't complete, and count the memory that it takes."""
        before = TLS_HANDSHAKE_BYTES + TLS_MESSAGE_BYTES if tls.is_amid_message else TLS_HANDSHAKE_BYTES
        data = layers.unwrap(data)
        if tls.is_open:
            layers.is_shaking_hands = False
            if self.state != CONNECTED:
                self.reactor.add_cost(self, TLS_SESSION_BYTES - before)
        elif tls.has_hello and not tls.has_begun():
            self.reactor.queue_handshake(self)
        elif tls.is_amid_message and before == TLS_HANDSHAKE_BYTES:
            self.reactor.add_cost(self, TLS_MESSAGE_BYTES)
        return data

    def _check_layers(self, layers: LayerStack) -> None:
        """Check whether a layer has failed or ended, or has an answer to send."""
        answers = False
        for layer in layers.layers:
            if layer.fault is not None and self.state != CLOSED:
                self._broken(layer.fault)
            # A paused connection ends after its data was processed.
            elif layer.has_ended and self.state != CLOSED and not self.paused:
                self.lost()
            answers = answers or layer.has_answer
        if answers:
            self.flush_at_turn_end()

    def _broken(self, error: PacketError) -> None:
        self.router.counters.protocol_errors += 1
        self.port.violated(self, error)
        if self.state == CONNECTED:
            self.close(error.reason)
        else:
            self.lost()

    # Bytes out.

    def flush(self) -> None:
        """Write what waits; close after the last packet of a channel that has ended."""
        if self.fd < 0:
            return
        layers = self.layers
        if layers is not None and self.state == CLOSED and not self.out:
            layers.say_goodbye(self.close_reason)
        if self.blocked:
            if self.out_bytes > SINK_CONGESTED_BYTES:
                self.stop_reading()
                self.reactor.watch(self)
        elif self.out or layers is not None:
            self.write()
        if self.state == CLOSED and self.fd >= 0:
            if layers is not None and not self.out and layers.say_goodbye(self.close_reason) and not self.blocked:
                self.write()
            if self.fd >= 0:
                self.reactor.end(self)

    def write(self) -> None:
        """Write what waits; with layers, one slice. The rest is written when the socket has room again."""
        out, waiting, layers = self.out, self.out_bytes, self.layers
        if layers is not None:
            if not layers.wrapped:
                self.out_bytes -= layers.wrap(out)
            if not layers.wrapped:
                return
        try:
            if layers is not None:
                sent = os.write(self.fd, layers.wrapped)
            elif len(out) == 1:
                sent = os.write(self.fd, out[0])
            elif waiting <= WRITE_JOIN_MAX_BYTES:
                sent = os.write(self.fd, b"".join(out))
            else:
                sent = os.writev(self.fd, out[:WRITE_VECTOR_MAX])
        except BlockingIOError:
            sent = 0
        except OSError:
            self.lost()
            self.reactor.close(self)
            return
        self.router.counters.bytes_sent += sent
        self.bytes_out += sent
        if layers is not None:
            layers.wrapped = layers.wrapped[sent:]
        elif sent == waiting:
            out = self.out = NOTHING
            self.out_bytes = 0
        else:
            self._keep_from(sent)
        if sent and self.flow != FLOWING:
            self.progressed()
        if out or (layers is not None and layers.wrapped):
            self.blocked = True
            if self.out_bytes > SINK_CONGESTED_BYTES:
                self.stop_reading()
            self.reactor.watch(self)

    def _keep_from(self, sent: int) -> None:
        out = self.out
        self.out_bytes -= sent
        whole = 0
        for chunk in out:
            if sent < len(chunk):
                break
            sent -= len(chunk)
            whole += 1
        del out[:whole]
        if sent:
            out[0] = out[0][sent:]
