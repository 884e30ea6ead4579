"""A connection whose reads are counted: over a rate it is paused until there are tokens again.

Plain connections are this class only where a rate is configured; without one, nothing is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from flockmq.protocol.channel import CLOSED
from flockmq.transport.connection import Connection
from flockmq.transport.token_bucket import Meter

if TYPE_CHECKING:
    from flockmq.transport.listener import Listener


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class MeteredConnection(Connection):
    """`own` is the client's own meter; those that it shares are its listener's. `ticket`: its place in `RateLimit`."""

    __slots__ = ("is_held", "own", "ticket")

    def __init__(self, listener: Listener, fd: int) -> None:
        super().__init__(listener, fd)
        rates = listener.client_rates
        self.own: Meter | None = None if rates.are_off() else Meter(rates, self.router.now_s)
        self.ticket: int = 0
        self.is_held: bool = False

    def feed(self, data: bytes) -> None:
        self.feed_metered(data, len(data))

    def feed_metered(self, data: bytes, size: int) -> None:
        """`size` bytes were read, in which there was `data`: what filters keep to themselves is paid for, too."""
        counters = self.router.counters
        before = counters.messages_received
        if data or not size:
            super().feed(data)
        messages = counters.messages_received - before
        if size or messages:
            self._debit(messages, size)

    def _debit(self, messages: int, size: int) -> None:
        """One read, whatever it held."""
        now_s = self.router.now_s
        over = False
        if self.own is not None:
            self.own.debit(messages, size, now_s)
            over = self.own.wait_s(now_s) > 0.0
        for shared in self.listener.meters:
            shared.debit(messages, size, now_s)
            if shared.is_taken(now_s):
                over = True
        if over and not self.is_held and self.state != CLOSED:
            self.is_held = True
            self.pause()
            self.router.counters.throttled += 1
            self.listener.engine.hold(self)

    def go_on(self) -> None:
        """There are tokens again."""
        if self.is_held:
            self.is_held = False
            if self.state != CLOSED:
                self.unpause()

    def released(self) -> None:
        if self.is_held:
            self.listener.engine.throttle.forget(self)
