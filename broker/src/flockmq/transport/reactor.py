"""The turn: what every reactor does after it fed bytes to channels, wherever the bytes come from.

`EpollReactor` reads from sockets; tests and the simulation have reactors with other sources. Invariants: between two
turns no sink is dirty, and no resumed channel waits but those that rest, and those that the reactor keeps for a later
turn because the time is up. If processing a connection raises, only that connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import (
    ALLOWED_HEAD_MAX_BYTES,
    RECEIVERS_PER_READ_MAX,
    RELIEVED_MIN_BYTES,
    STOOD_STILL_S,
    SWEEP_TICKS,
)
from flockmq.default_callbacks import ignore
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.protocol.ports import NodePort
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink

log: Final = logging.getLogger(__name__)

_HEADS_FORGOTTEN: Final = RELIEVED_MIN_BYTES // ALLOWED_HEAD_MAX_BYTES


@mypyc_attr(allow_interpreted_subclasses=True)
class Reactor:
    """One per node. The node sets `port` before clients connect."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.port: NodePort
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_stood_still: Callable[[], None] = ignore
        """Called before a turn or sweep that begins more than STOOD_STILL_S after the last one."""
        self._soon: bool = False
        self._will_wake: bool = False
        self._swept: int = 0

    # Implemented by each kind of reactor.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve clients that connect from now on."""
        raise NotImplementedError

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Close every connection, without a last packet."""
        raise NotImplementedError

    def channels(self) -> Sequence[Channel | None]:
        """All connections; None for unused entries."""
        raise NotImplementedError

    def go_on(self, channel: PausablePublisher) -> None:
        """Resume a channel that was paused, first with the bytes that it already has, now or in a later turn."""
        raise NotImplementedError

    def failed(self, sink: Sink) -> None:
        """Processing this connection raised: close it, because its state may be wrong. Called while the exception is
        handled.
        """
        raise NotImplementedError

    def listener_connections(self) -> list[tuple[str, int]]:
        """The name of each listener, and its number of connections."""
        return []

    def max_connections(self) -> int:
        """How many connections it accepts. 0: as many as come."""
        return 0

    def unauthenticated_bytes(self) -> int:
        """The memory that unauthenticated clients use."""
        return 0

    def prepare(self) -> None:
        """Called before the sinks of a turn are flushed."""

    def allow_time(self) -> None:
        """Channels may be resumed for as long as a turn may take, from now on."""

    def serve_soon(self) -> None:
        """Called after channels were resumed outside a turn: have a turn serve those for which there was no time."""

    # Common to all reactors.

    def begin_turn(self, now_s: float) -> None:
        """Begin a turn at time `now_s`. Call this before anything is fed."""
        router = self.router
        stood_still = now_s - router.host.now_s > STOOD_STILL_S
        router.host.now_s = now_s
        if stood_still:
            self.on_stood_still()

    def end_turn(self) -> None:
        """Resume channels, and flush every dirty sink."""
        self.allow_time()
        self.settle()
        self.serve_soon()

    def settle(self) -> None:
        """The same in the time that was allowed before."""
        self._soon = False
        turn = self.router.turn
        resumed = self.router.pauses.resumed
        self.prepare()
        while turn or resumed:
            if resumed:
                batch = resumed.copy()
                resumed.clear()
                for channel in batch:
                    if channel.paused == 0 and not channel.has_ended():
                        self.go_on(channel)
            at = 0
            while at < len(turn):
                sink = turn[at]
                at += 1
                sink.dirty = False
                self.flush(sink)
            turn.clear()
        if self.router.pauses.resting and not self._will_wake and self.loop is not None:
            self._will_wake = True
            self.loop.call_soon(self._wake)

    def _wake(self) -> None:
        """Resume resting publishers, until their messages have had as many receivers as one may have."""
        self._will_wake = False
        self.allow_time()
        router = self.router
        resting, most = router.pauses.resting, router.receivers + RECEIVERS_PER_READ_MAX
        for _ in range(len(resting)):
            if router.receivers > most:
                break
            resting.popleft().unpause()
            self.settle()
        self.serve_soon()

    def flush(self, sink: Sink) -> None:
        try:
            sink.flush()
        except Exception:
            self.failed(sink)

    def soon(self) -> None:
        """Something was put outside a turn: flush in the next iteration of the event loop."""
        if not self._soon and self.loop is not None:
            self._soon = True
            self.loop.call_soon(self.end_turn)

    def relieve(self, wanted_bytes: int) -> bool:
        """The node is nearly out of memory: disconnect the clients that take most, until so much is free. Returns
        whether anything was freed."""
        large: list[tuple[int, Channel]] = []
        has_forgotten = False
        for channel in self.channels():
            if channel is None or channel.state == CLOSED:
                continue
            has_forgotten = channel.forget_allowed(_HEADS_FORGOTTEN) or has_forgotten
            size_bytes = channel.held_bytes()
            if size_bytes >= RELIEVED_MIN_BYTES:
                large.append((size_bytes, channel))
        large.sort(key=_held_bytes, reverse=True)
        for size_bytes, channel in large:
            if wanted_bytes <= 0:
                break
            wanted_bytes -= size_bytes
            channel.overflow()
        if large:
            self.end_turn()
        return has_forgotten or len(large) > 0

    def sweep(self, now_s: float) -> None:
        """Every SWEEP_INTERVAL_S: end silent clients, and check slow ones."""
        channels = self.channels()
        for place in range(self._swept, len(channels), SWEEP_TICKS):
            channel = channels[place]
            if channel is not None and channel.state != CLOSED and channel.overdue(now_s):
                channel.expire()
        self._swept = (self._swept + 1) % SWEEP_TICKS
        slow = self.router.pauses.slow
        for client in list(slow):
            if not client.check_progress(now_s):
                slow.pop(client, None)


def _held_bytes(client: tuple[int, Channel]) -> int:
    return client[0]
