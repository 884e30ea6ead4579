"""How fast one client is read, and what becomes of one that doesn't read: pauses, congestion, lag.

    FLOWING ── too much waits ──▶ CONGESTED ── no progress, or for too long ──▶ LAGGING ── no progress ──▶ cut off
       ▲                             │  its publishers are paused                  │  QoS 0 to it is dropped
       └────────── drained ──────────┴─────────────────────────────────────────────┘

What always holds: each pause has its unpause. While more bytes wait for a client than may, it isn't read itself: its
own requests can't add answers without end. That time doesn't count against its keep-alive.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from flockmq.bounds import LAGGING_MAX_S, SINK_CONGESTED_MAX_S, SINK_DRAINED_BYTES, SINK_HELD_MAX_S
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING, Sink, SinkHost


@mypyc_attr(acyclic=True)
class StallClock:
    """Since when a sink doesn't flow, and when its peer last read or acknowledged something."""

    __slots__ = ("progress_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        self.progress_s = now_s

    def has_run_out(self, now_s: float) -> bool:
        """Publishers have waited for this peer long enough: it lags."""
        return now_s - self.progress_s > SINK_CONGESTED_MAX_S or now_s - self.since_s > SINK_HELD_MAX_S


class PublisherPauses:
    """Which publishers wait for which sink; one per router.

    `slow`: the clients that don't flow; `resumed`: publishers that read on when the turn ends.
    """

    def __init__(self, host: SinkHost) -> None:
        self.host = host
        self.slow: dict[PausablePublisher, None] = {}
        self.resumed: list[PausablePublisher] = []
        self._paused: dict[Sink, list[PausablePublisher]] = {}

    def pause(self, sink: Sink, publisher: PausablePublisher) -> None:
        """Until the sink drains, lags or is gone."""
        if sink is publisher:
            return  # its acknowledgements come behind its messages: to read on is what helps
        waiting = self._paused.setdefault(sink, [])
        if publisher not in waiting:
            waiting.append(publisher)
            publisher.pause()

    def release(self, sink: Sink) -> None:
        """The sink drained, lags or is gone: its publishers go on."""
        for publisher in self._paused.pop(sink, ()):
            publisher.unpause()


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class PausablePublisher(Sink):
    """A client's connection, as routing knows it: who publishes, and how fast it reads. Times are the turn's.

    `allowed`: packet heads that may take the fast road, because they were checked on the ordinary one (None: all,
    nothing is checked); `stall` runs while the client doesn't flow.
    """

    __slots__ = ("allowed", "choked", "last_seen_s", "paused", "pauses", "stall")

    def __init__(self, pauses: PublisherPauses, protocol_version: int) -> None:
        super().__init__(pauses.host.turn, protocol_version)
        self.choked: bool = False
        self.pauses = pauses
        self.allowed: set[bytes] | None = None
        self.paused: int = 0
        self.last_seen_s: float = pauses.host.now_s
        self.stall: StallClock | None = None

    def now_s(self) -> float:
        return self.pauses.host.now_s

    def unsendable(self, packet_bytes: int) -> None:
        counters = self.pauses.host.counters
        if packet_bytes:
            counters.dropped_too_large += 1
        else:
            counters.dropped_expired += 1

    def client_id(self) -> bytes:
        """Empty before CONNECT; it stays when the client is gone, whose messages may still be on their way."""
        raise NotImplementedError(type(self).__name__)

    def has_ended(self) -> bool:
        raise NotImplementedError(type(self).__name__)

    def is_congested(self) -> bool:
        """So many messages wait for its acknowledgements that whoever publishes to it should pause."""
        raise NotImplementedError(type(self).__name__)

    def pause(self) -> None:
        """Stop processing; the listener stops reading. Each pause needs its unpause."""
        self.paused += 1

    def unpause(self) -> None:
        self.paused -= 1
        if self.paused == 0:
            self.last_seen_s = self.now_s()
            self.pauses.resumed.append(self)

    def congest(self) -> None:
        """FLOWING → CONGESTED: from now on publishers to this client are paused."""
        if self.flow == FLOWING:
            self.flow = CONGESTED
            self.stall = StallClock(self.now_s())
            self.pauses.slow[self] = None

    def choke(self) -> None:
        """The socket is full, and more bytes wait than may: read nothing from the client until they drained."""
        self.congest()
        if not self.choked:
            self.choked = True
            self.pause()

    def progressed(self) -> None:
        """The client read or acknowledged something: does it flow again?"""
        if self.stall is not None:
            self.stall.progress_s = self.now_s()
        if self.out_bytes < SINK_DRAINED_BYTES:
            if self.choked:
                self.choked = False
                self.unpause()
            if not self.is_congested():
                self.flows()

    def flows(self) -> None:
        """It drained, or is gone: its publishers go on."""
        if self.flow != FLOWING:
            self.flow = FLOWING
            self.stall = None
            self.pauses.slow.pop(self, None)
            self.pauses.release(self)

    def judge(self, now_s: float) -> bool:
        """Called now and then while it doesn't flow; False once it does, or has ended."""
        stall = self.stall
        if stall is None or self.has_ended():
            return False
        if self.flow == CONGESTED:
            if stall.has_run_out(now_s):
                self.flow = LAGGING
                self.pauses.host.counters.slow_readers += 1
                self.pauses.release(self)
        elif now_s - stall.progress_s > LAGGING_MAX_S:
            self.overflow()
            return False
        return True
