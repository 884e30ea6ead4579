"""A connection whose reads are counted: over a rate it is paused until there are tokens again.

Plain connections are this class only where a rate is configured; without one, nothing is counted.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.protocol.channel import CLOSED
from flockmq.protocol.ports import NodePort
from flockmq.routing.router import Router
from flockmq.transport.acceptor import OpenListener
from flockmq.transport.connection import Connection, ConnectionReactor
from flockmq.transport.rate_limit import ClientMeter


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class MeteredConnection(Connection):
    __slots__ = ("meter",)

    def __init__(
        self, reactor: ConnectionReactor, router: Router, port: NodePort, listener: OpenListener, fd: int
    ) -> None:
        super().__init__(reactor, router, port, listener, fd)
        self.meter = ClientMeter(listener.settings.client_rates, listener.meters, router.now_s)

    def feed(self, data: bytes) -> None:
        self.feed_metered(data, len(data))

    def feed_metered(self, data: bytes, size: int) -> None:
        """`size` bytes were read, in which there was `data`: what layers keep to themselves is paid for, too."""
        counters = self.router.counters
        before = counters.messages_received
        if data or not size:
            super().feed(data)
        messages = counters.messages_received - before
        over = (size or messages) and self.meter.debit(messages, size, self.router.now_s)
        if over and self.meter.held is None and self.state != CLOSED:
            self.reactor.hold(self, self.meter)
