"""How fast one client is read, and what becomes of one that doesn't read: pauses, congestion, lag.

    FLOWING ── too much waits ──▶ CONGESTED ── no progress, or for too long ──▶ LAGGING ── no progress ──▶ cut off
       ▲                             │  its publishers are paused                  │  QoS 0 to it is dropped
       └────────── drained ──────────┴─────────────────────────────────────────────┘

What always holds: each pause has its unpause; while the bytes that wait are above the bound, nothing more is read from
the client itself, so that its own requests can't add answers without end; the time for which it wasn't read doesn't
count against its keep-alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from flockmq.bounds import LAGGING_MAX_S, SINK_CONGESTED_MAX_S, SINK_DRAINED_BYTES, SINK_HELD_MAX_S
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING, Sink

if TYPE_CHECKING:
    from flockmq.routing.router import Router


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Paced(Sink):
    """A client's connection, as far as its pace goes; times are the router's seconds."""

    __slots__ = ("choked", "congested_s", "last_seen_s", "paused", "progress_s", "router")

    def __init__(self, router: Router, protocol_version: int) -> None:
        super().__init__(router.turn, protocol_version)
        self.router = router
        self.paused: int = 0
        self.choked: bool = False
        self.last_seen_s: float = router.now_s
        self.progress_s: float = 0.0
        self.congested_s: float = 0.0

    def now_s(self) -> float:
        return self.router.now_s

    def unsendable(self, packet_bytes: int) -> None:
        counters = self.router.counters
        if packet_bytes:
            counters.dropped_too_large += 1
        else:
            counters.dropped_expired += 1

    def has_ended(self) -> bool:
        raise NotImplementedError(type(self).__name__)

    def is_crowded(self) -> bool:
        """So many messages wait for its acknowledgements that whoever publishes to it should pause."""
        raise NotImplementedError(type(self).__name__)

    def pause(self) -> None:
        """Stop processing; the listener stops reading. Each pause needs its unpause."""
        self.paused += 1

    def unpause(self) -> None:
        self.paused -= 1
        if self.paused == 0:
            self.last_seen_s = self.router.now_s
            self.router.resumed.append(self)

    def congest(self) -> None:
        """FLOWING → CONGESTED: from now on publishers to this client are paused."""
        if self.flow == FLOWING:
            self.flow = CONGESTED
            self.router.congested += 1
            self.progress_s = self.congested_s = self.router.now_s
            self.router.slow[self] = None

    def choke(self) -> None:
        """The socket is full, and more bytes wait than may: read nothing from the client until they drained."""
        self.congest()
        if not self.choked:
            self.choked = True
            self.pause()

    def progressed(self) -> None:
        """The client read or acknowledged something: does it flow again?"""
        self.progress_s = self.router.now_s
        if self.out_bytes < SINK_DRAINED_BYTES:
            if self.choked:
                self.choked = False
                self.unpause()
            if not self.is_crowded():
                self.flows()

    def flows(self) -> None:
        """It drained, or is gone: its publishers go on."""
        if self.flow != FLOWING:
            self.flow = FLOWING
            self.router.congested -= 1
            self.router.release(self)

    def judge(self, now_s: float) -> bool:
        """Called now and then while it doesn't flow; False once it does, or has ended."""
        if self.flow == FLOWING or self.has_ended():
            return False
        stalled_s = now_s - self.progress_s
        if self.flow == CONGESTED:
            if stalled_s > SINK_CONGESTED_MAX_S or now_s - self.congested_s > SINK_HELD_MAX_S:
                self.flow = LAGGING
                self.router.counters.slow_readers += 1
                self.router.release(self)
        elif stalled_s > LAGGING_MAX_S:
            self.overflow()
            return False
        return True
