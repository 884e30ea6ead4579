"""A client's connection over a descriptor of our own: it writes what its channel put, and knows when the peer is slow.

As a rule one call writes all that a turn put. What the socket doesn't take waits for EPOLLOUT, and above
SINK_CONGESTED_BYTES the channel hears of it. Where a listener has TLS, WebSocket or a PROXY header, its connections
have `layers`; where a rate is set they have a `meter`, and over the rate they are paused until there are tokens again.

What always holds: `fd` is open exactly as long as the connection stands in the reactor's table.
"""

from __future__ import annotations

import os
import select
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    SINK_CONGESTED_BYTES,
    TLS_HANDSHAKE_BYTES,
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
from flockmq.routing.sink import FLOWING
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
UNWATCHED: Final = -1


class ConnectionReactor:
    """What a connection asks of the reactor that serves it."""

    def newcomer(self, fd: int) -> tuple[str, int] | None:
        """The address of a client that was accepted a moment ago."""
        raise NotImplementedError

    def watch(self, connection: Connection) -> None:
        """Tell epoll what the connection waits for now."""
        raise NotImplementedError

    def end(self, connection: Connection) -> None:
        """The channel has ended, and its last packet is on its way."""
        raise NotImplementedError

    def close(self, connection: Connection) -> None:
        """Close the descriptor, and forget the connection."""
        raise NotImplementedError

    def hold(self, connection: Connection, meter: ClientMeter) -> None:
        """The connection is over a rate: pause it until there are tokens again."""
        raise NotImplementedError

    def greet(self, connection: Connection) -> None:
        """A whole ClientHello is there: unpause the connection when the handshake may go on."""
        raise NotImplementedError

    def costs(self, connection: Connection, more_bytes: int) -> None:
        """A client that isn't let in yet costs so much more; less, where that is negative."""
        raise NotImplementedError

    def welcomes(self, connection: Connection, host: str) -> bool:
        """Whether the client at this address, which a balancer named, may come; it is counted there then."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Connection(Conversation):
    """`layers` and `meter` are None where there are none. `interest`: what epoll watches for, or UNWATCHED; `blocked`:
    the socket is full; `has_more`: there was more than the last read took; `read_bytes`: how much is read at once;
    `network`: where the client comes from and is counted, "": nowhere; `cost`: its bytes before it is let in.
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
        self.reactor = reactor
        self.listener = listener
        self.layers: LayerStack | None = None
        self.meter: ClientMeter | None = None
        self.fd = fd
        self.interest: int = EPOLLIN
        self.read_bytes: int = UNAUTHENTICATED_READ_MAX_BYTES
        self.network: str = ""
        self.cost: int = 0
        if settings.has_layers:
            self.layers = LayerStack(settings)
            if settings.proxy is not None:
                self.keepalive_s = settings.proxy.timeout_s
        if listener.is_metered:
            self.meter = ClientMeter(settings.client_rates, listener.meters, router.now_s)

    def peer(self) -> PeerInfo:
        settings, layers = self.listener.settings, self.layers
        if layers is None:
            host, port = self.origin()
            return PeerInfo(host, port, settings.name, self.limits.name)
        header = layers.header
        host, port = self.origin() if header is None or not header.host else (header.host, header.port)
        certificate = layers.certificate(named=settings.proxy is not None and settings.proxy.names_count)
        return PeerInfo(host, port, settings.name, self.limits.name, certificate)

    def origin(self) -> tuple[str, int]:
        """The other end's address: just accepted, the reactor knows it; later the kernel is asked, and nothing kept."""
        return self.reactor.newcomer(self.fd) or peer_of(self.fd, self.listener.family)

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
        data = layers.unwrap(data)
        if layers.is_shaking_hands and layers.tls is not None:
            self._shake_hands(layers, layers.tls)
        if self.meter is not None:
            self._feed_metered(self.meter, data, size)
        elif data or not size:
            super().feed(data)
        self._heed(layers)

    def _feed_metered(self, meter: ClientMeter, data: bytes, size: int) -> None:
        """`size` bytes were read, in which there was `data`: what layers keep to themselves is paid for, too."""
        counters = self.router.counters
        before = counters.messages_received
        if data or not size:
            super().feed(data)
        messages = counters.messages_received - before
        over = (size or messages) and meter.debit(messages, size, self.router.now_s)
        if over and meter.held is None and self.state != CLOSED:
            self.reactor.hold(self, meter)

    def _behind_header(self, header: ProxyHeader, data: bytes) -> bytes:
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

    def _shake_hands(self, layers: LayerStack, tls: Tls) -> None:
        if tls.is_open:
            layers.is_shaking_hands = False
            if self.state != CONNECTED:
                self.reactor.costs(self, TLS_SESSION_BYTES - TLS_HANDSHAKE_BYTES)
        elif tls.is_greeted and not tls.has_begun():
            self.reactor.greet(self)

    def _heed(self, layers: LayerStack) -> None:
        """Did a layer come to an end, or has something to say?"""
        answers = False
        for layer in layers.layers:
            if layer.fault is not None and self.state != CLOSED:
                self._broken(layer.fault)
            elif layer.has_ended and self.state != CLOSED and not self.paused:  # else not before what it said is heard
                self.lost()
            answers = answers or layer.has_answer
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
        """Write what waits; close behind the last packet of a channel that has ended."""
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
        """Write what waits, of what goes through layers one slice; the rest has its turn when there is room again."""
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
        if layers is not None:
            layers.wrapped = layers.wrapped[sent:]
        elif sent == waiting:
            out.clear()
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
