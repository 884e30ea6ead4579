"""The turn: what every reactor does once it has fed bytes to channels, wherever the bytes come from.

`EpollReactor` reads from sockets; tests and the simulation make reactors that have their bytes from elsewhere.

What always holds: between two turns no sink is dirty, and no resumed channel waits; a defect that one connection meets
ends that connection, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.bounds import STOOD_STILL_S, SWEEP_TICKS
from flockmq.callbacks import ignore
from flockmq.protocol.channel import CLOSED, Channel
from flockmq.protocol.ports import NodePort
from flockmq.routing.back_pressure import PausablePublisher
from flockmq.routing.router import Router
from flockmq.routing.sink import Sink

log: Final = logging.getLogger(__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class Reactor:
    """One per node, which says what its `port` is before clients come."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.port: NodePort
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_stood_still: Callable[[], None] = ignore
        """No turn and no sweep began for STOOD_STILL_S, and one is about to."""
        self._soon: bool = False
        self._swept: int = 0

    # What each kind of reactor does in its own way.

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Serve clients that come from now on."""
        raise NotImplementedError

    def stop_accepting(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Close every connection; the clients hear nothing more."""
        raise NotImplementedError

    def channels(self) -> Sequence[Channel | None]:
        """All that are connected; None where nobody is."""
        raise NotImplementedError

    def go_on(self, channel: PausablePublisher) -> None:
        """A channel that was paused goes on, first with the bytes that it had."""
        raise NotImplementedError

    def failed(self, sink: Sink) -> None:
        """A defect of ours: end this connection, which can't be trusted any more. Called amid its exception."""
        raise NotImplementedError

    def listener_connections(self) -> list[tuple[str, int]]:
        """The name of each listener, and how many came by it and are there."""
        return []

    def unauthenticated_bytes(self) -> int:
        """The bytes that clients cost who aren't let in yet."""
        return 0

    def prepare(self) -> None:
        """What a kind of reactor does before a turn's sinks are flushed."""

    # What they share.

    def begin_turn(self, now_s: float) -> None:
        """Call it before anything is fed: the time of the turn is `now_s`."""
        router = self.router
        stood_still = now_s - router.now_s > STOOD_STILL_S
        router.now_s = now_s
        if stood_still:
            self.on_stood_still()

    def end_turn(self) -> None:
        """Let resumed channels go on, and flush every dirty sink."""
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

    def flush(self, sink: Sink) -> None:
        try:
            sink.flush()
        except Exception:
            self.failed(sink)

    def soon(self) -> None:
        """Something was put outside a turn: flush in the loop's next iteration."""
        if not self._soon and self.loop is not None:
            self._soon = True
            self.loop.call_soon(self.end_turn)

    def sweep(self, now_s: float) -> None:
        """Every SWEEP_INTERVAL_S: end clients that are silent, judge those that are slow."""
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
