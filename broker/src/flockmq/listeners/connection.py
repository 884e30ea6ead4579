"""A client's connection over a descriptor of our own: it writes what its channel put, and knows when the peer is slow.

As a rule one call writes all that a turn put. What the socket doesn't take waits for EPOLLOUT, and above
SINK_CONGESTED_BYTES the channel hears of it.

What always holds: `fd` is open exactly as long as the connection stands in the engine's table.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import SINK_CONGESTED_BYTES, WRITE_JOIN_MAX_BYTES, WRITE_VECTOR_MAX
from flockmq.session.channel import CLOSED, Channel
from flockmq.session.limits import Limits
from flockmq.session.port import NodePort
from flockmq.session.router import Router
from flockmq.session.sink import FLOWING

if TYPE_CHECKING:
    from flockmq.listeners.engine import Engine

EPOLLIN: Final = 1
EPOLLOUT: Final = 4


@mypyc_attr(acyclic=True)
class Connection(Channel):
    """`interest` is what epoll watches for; `blocked`: the socket is full."""

    __slots__ = ("blocked", "engine", "fd", "interest")

    def __init__(self, engine: Engine, fd: int, router: Router, port: NodePort, limits: Limits) -> None:
        super().__init__(router, port, limits)
        self.engine = engine
        self.fd = fd
        self.interest: int = EPOLLIN
        self.blocked: bool = False

    def address(self) -> str:
        """Asked of the kernel when it is needed: kept nowhere."""
        try:
            peer = socket.socket(fileno=os.dup(self.fd))
        except OSError:
            return "?"
        with peer:
            try:
                name = peer.getpeername()
            except OSError:
                return "?"
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "unix"

    def flush(self) -> None:
        """Write what waits; close behind the last packet of a channel that has ended."""
        if self.fd < 0:
            return
        if self.out:
            if not self.blocked:
                self.write()
            elif self.out_bytes > SINK_CONGESTED_BYTES:
                self.choke()
                self.engine.watch(self)
        if self.state == CLOSED and self.fd >= 0:
            self.engine.end(self)

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
            self.engine.close(self)
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
        self.engine.watch(self)

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
