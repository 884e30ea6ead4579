"""A client's connection over a descriptor of our own: it writes what its channel put, and knows when the peer is slow.

As a rule one call writes all that a turn put. What the socket doesn't take waits for EPOLLOUT, and above
SINK_CONGESTED_BYTES the channel hears of it.

What always holds: `fd` is open exactly as long as the connection stands in the engine's table.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, Final

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
from flockmq.routing.sink import FLOWING
from flockmq.transport.sockets import peer_of

if TYPE_CHECKING:
    from flockmq.transport.listener import Listener

EPOLLIN: Final = 1
EPOLLOUT: Final = 4
EPOLLERR: Final = 8
EPOLLHUP: Final = 16
UNWATCHED: Final = -1


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Connection(Conversation):
    """`interest`: what epoll watches for, or UNWATCHED; `blocked`: the socket is full; `read_bytes`: read at once;
    `has_more`: there was more than the last read took; `place`: where it is counted, "": nowhere; `cost`: its bytes
    before it is let in.
    """

    __slots__ = ("blocked", "cost", "fd", "has_more", "interest", "listener", "place", "read_bytes")

    def __init__(self, listener: Listener, fd: int) -> None:
        super().__init__(listener.engine.router, listener.engine.port, listener.limits)
        self.listener = listener
        self.fd = fd
        self.interest: int = EPOLLIN
        self.blocked: bool = False
        self.read_bytes: int = UNAUTHENTICATED_READ_MAX_BYTES
        self.has_more: bool = False
        self.place: str = ""
        self.cost: int = 0

    def peer(self) -> PeerInfo:
        host, port = self.origin()
        return PeerInfo(host, port, self.listener.name, self.limits.name)

    def origin(self) -> tuple[str, int]:
        """The other end's address: just accepted, the engine knows it; later the kernel is asked, and nothing kept."""
        return self.listener.engine.newcomers.get(self.fd) or peer_of(self.fd, self.listener.family)

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
                self.listener.engine.watch(self)
        if self.state == CLOSED and self.fd >= 0:
            self.listener.engine.end(self)

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
            self.listener.engine.close(self)
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
        self.listener.engine.watch(self)

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
