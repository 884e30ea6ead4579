"""Pauses clients over a rate until there are tokens again. Nothing is dropped, and waiting clients are served in order.

A client waits for its own bucket first, then in the queue of each bucket that it shares with others (its listener's,
its node's). A queue releases only as many clients as it has tokens for, judging by recent reads. So a thousand clients
that share a bucket aren't all read at once. Invariants: a waiting client is paused by this module exactly once. Nothing
here refers to a closed connection.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import islice

from mypy_extensions import mypyc_attr

from flockmq.bounds import THROTTLE_CHECK_S, THROTTLE_TICK_S
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.transport.reactor import Reactor
from flockmq.transport.token_bucket import Meter, Rates


class SharedMeter(Meter):
    """A meter that many clients share, with the queue of those that wait for it."""

    __slots__ = ("queue",)

    def __init__(self, rates: Rates, now_s: float) -> None:
        super().__init__(rates, now_s)
        self.queue: dict[ClientMeter, None] = {}

    def is_taken(self, now_s: float) -> bool:
        """True if a client must wait here: for tokens, or behind others."""
        return bool(self.queue) or self.wait_s(now_s) > 0.0


@mypyc_attr(acyclic=True)
class ClientMeter:
    """The meters of one client: its `own`, or None, and those that it shares with others. `held`: the client, while it
    waits. `ticket`: its entry among the clients that wait for their own buckets.
    """

    __slots__ = ("held", "own", "shared", "ticket")

    def __init__(self, rates: Rates, shared: list[SharedMeter], now_s: float) -> None:
        self.own: Meter | None = None if rates.are_off() else Meter(rates, now_s)
        self.shared = shared
        self.held: Channel | None = None
        self.ticket: int = 0

    def debit(self, messages: int, size: int, now_s: float) -> bool:
        """Count one read. Returns True if the client must wait before its next read."""
        over = False
        if self.own is not None:
            self.own.debit(messages, size, now_s)
            over = self.own.wait_s(now_s) > 0.0
        for shared in self.shared:
            shared.debit(messages, size, now_s)
            if shared.is_taken(now_s):
                over = True
        return over


class RateLimit:
    """One per reactor. While clients wait, it checks every THROTTLE_TICK_S in the reactor's loop."""

    def __init__(self, reactor: Reactor, monotonic: Callable[[], float]) -> None:
        self._reactor = reactor
        self._monotonic = monotonic
        self._shared: list[SharedMeter] = []
        self._due: list[tuple[float, int]] = []
        self._alone: dict[int, ClientMeter] = {}
        self._next: int = 0
        self._is_ticking: bool = False

    def share(self, rates: Rates) -> SharedMeter:
        """Create a meter for many clients."""
        shared = SharedMeter(rates, self._reactor.router.host.now_s)
        self._shared.append(shared)
        return shared

    def is_busy(self) -> bool:
        """True if a client waits."""
        return bool(self._alone) or any(shared.queue for shared in self._shared)

    def hold(self, client: Channel, meter: ClientMeter) -> None:
        """Let the client wait for its own bucket, and then in the queues of the shared ones."""
        router = self._reactor.router
        router.counters.throttled += 1
        meter.held = client
        client.pause()
        self._wait(meter, router.host.now_s)
        if not self._is_ticking:
            self._tick_later()

    def _tick_later(self) -> None:
        loop = self._reactor.loop
        self._is_ticking = loop is not None
        if loop is not None:
            loop.call_later(THROTTLE_TICK_S, self._turn)

    def _turn(self) -> None:
        self._reactor.begin_turn(self._monotonic())
        self.tick(self._reactor.router.host.now_s)
        self._is_ticking = False
        if self.is_busy():
            self._tick_later()
        self._reactor.end_turn()

    def _wait(self, meter: ClientMeter, now_s: float) -> None:
        wait_s = 0.0 if meter.own is None else meter.own.wait_s(now_s)
        if wait_s > 0.0:
            self._next += 1
            heapq.heappush(self._due, (now_s + min(wait_s, THROTTLE_CHECK_S), self._next))
            self._alone[self._next] = meter
            meter.ticket = self._next
        else:
            self._enqueue(meter, meter.shared, now_s)

    def _enqueue(self, meter: ClientMeter, queues: list[SharedMeter], now_s: float) -> None:
        """Let the client wait in the first of these queues where it must, or resume it."""
        for shared in queues:
            if shared.is_taken(now_s):
                shared.queue[meter] = None
                return
        client = meter.held
        meter.held = None
        if client is not None and client.state != CLOSED:
            client.unpause()

    def forget(self, meter: ClientMeter) -> None:
        """The client's connection was closed."""
        meter.held = None
        self._alone.pop(meter.ticket, None)
        for shared in meter.shared:
            shared.queue.pop(meter, None)

    def tick(self, now_s: float) -> None:
        """Resume the clients for which there are tokens."""
        due: list[int] = []
        while self._due and self._due[0][0] <= now_s:
            due.append(heapq.heappop(self._due)[1])
        for ticket in due:
            meter = self._alone.pop(ticket, None)
            if meter is not None:
                self._wait(meter, now_s)
        for shared in self._shared:
            if shared.queue:
                for meter in list(islice(shared.queue, shared.room(now_s))):
                    del shared.queue[meter]
                    self._enqueue(meter, meter.shared[meter.shared.index(shared) + 1 :], now_s)
