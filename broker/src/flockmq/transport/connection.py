"""A client's connection over a descriptor of our own: it writes what its channel put, and knows when the peer is slow.

As a rule one call writes all that a turn put. What the socket doesn't take waits for EPOLLOUT, and above
SINK_CONGESTED_BYTES the channel hears of it.

What always holds: `fd` is open exactly as long as the connection stands in the reactor's table.
"""

from __future__ import annotations

import os
import select
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    SINK_CONGESTED_BYTES,
    UNAUTHENTICATED_READ_MAX_BYTES,
    WRITE_JOIN_MAX_BYTES,
    WRITE_VECTOR_MAX,
)
from flockmq.protocol.channel import CLOSED
from flockmq.protocol.conversation import Conversation
from flockmq.protocol.peer import PeerInfo
from flockmq.protocol.ports import NodePort
from flockmq.routing.router import Router
from flockmq.routing.sink import FLOWING
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.rate_limit import ClientMeter
from flockmq.transport.sockets import peer_of

EPOLLIN: Final = 1
EPOLLOUT: Final = 4
EPOLLERR: Final = 8
EPOLLHUP: Final = 16
UNWATCHED: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True)
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

    def costs(self, stranger: Connection, more_bytes: int) -> None:
        """A client that isn't let in yet costs so much more; less, where that is negative."""
        raise NotImplementedError

    def welcomes(self, connection: Connection, host: str) -> bool:
        """Whether the client at this address, which a balancer named, may come; it is counted there then."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Connection(Conversation):
    """`interest`: what epoll watches for, or UNWATCHED; `blocked`: the socket is full; `has_more`: there was more than
    the last read took; `read_bytes`: how much is read at once; `place`: the network where it is counted, "": nowhere;
    `cost`: its bytes before it is let in.
    """

    __slots__ = ("blocked", "cost", "fd", "has_more", "interest", "listener", "place", "reactor", "read_bytes")

    def __init__(
        self, reactor: ConnectionReactor, router: Router, port: NodePort, listener: OpenListener, fd: int
    ) -> None:
        super().__init__(router, port, listener.settings.limits)
        self.reactor = reactor
        self.listener = listener
        self.fd = fd
        self.interest: int = EPOLLIN
        self.blocked: bool = False
        self.has_more: bool = False
        self.read_bytes: int = UNAUTHENTICATED_READ_MAX_BYTES
        self.place: str = ""
        self.cost: int = 0

    def peer(self) -> PeerInfo:
        host, port = self.origin()
        return PeerInfo(host, port, self.listener.settings.name, self.limits.name)

    def origin(self) -> tuple[str, int]:
        """The other end's address: just accepted, the reactor knows it; later the kernel is asked, and nothing kept."""
        return self.reactor.newcomer(self.fd) or peer_of(self.fd, self.listener.family)

    def has_left(self) -> bool:
        if self.fd < 0:
            return True
        end = select.poll()
        end.register(self.fd, select.POLLRDHUP)
        return bool(end.poll(0))

    def released(self) -> None:
        """The descriptor was closed: leave whatever refers to this connection."""

    def flush(self) -> None:
        """Write what waits; close behind the last packet of a channel that has ended."""
        if self.fd < 0:
            return
        if self.out:
            if not self.blocked:
                self.write()
            elif self.out_bytes > SINK_CONGESTED_BYTES:
                self.choke()
                self.reactor.watch(self)
        if self.state == CLOSED and self.fd >= 0:
            self.reactor.end(self)

    def write(self) -> None:
        out = self.out
        waiting = self.out_bytes
        try:
            if len(out) == 1:
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
        if sent == waiting:
            out.clear()
            self.out_bytes = 0
            if self.flow != FLOWING:
                self.progressed()
            return
        self._keep_from(sent)
        self.blocked = True
        if sent and self.flow != FLOWING:
            self.progressed()
        if self.out_bytes > SINK_CONGESTED_BYTES:
            self.choke()
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
