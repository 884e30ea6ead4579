"""Back-pressure: pauses publishers to slow readers, and disconnects clients that don't read at all.

 FLOWING ── too much waits ──▶ CONGESTED ── no progress, or for too long ──▶ LAGGING ── no progress ──▶ disconnected
 ▲                             │  its publishers are paused                  │  QoS 0 to it is dropped
 └────────── drained ──────────┴─────────────────────────────────────────────┘

Invariants: each pause has its unpause. While too many bytes wait for a client, the node doesn't read from it, so its
own requests can't add answers without limit. That time doesn't count for its keep-alive.

A send queue to another node has a high and a low watermark instead (`is_congested`), so that it doesn't flap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mypy_extensions import i32, i64, mypyc_attr

from flockmq.bounds import (
    LAGGING_MAX_S,
    SINK_CONGESTED_MAX_S,
    SINK_DRAINED_BYTES,
    SINK_HELD_MAX_S,
)
from flockmq.default_callbacks import ignore
from flockmq.routing.sink import CONGESTED, FLOWING, LAGGING, Sink, SinkHost, count_unsendable


@mypyc_attr(acyclic=True)
class StallClock:
    """Since when a sink doesn't flow, and when its peer last read or acknowledged something."""

    __slots__ = ("progress_s", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s
        self.progress_s = now_s

    def has_run_out(self, now_s: float) -> bool:
        """True if publishers have waited long enough for this peer: it becomes LAGGING."""
        return now_s - self.progress_s > SINK_CONGESTED_MAX_S or now_s - self.since_s > SINK_HELD_MAX_S


class PublisherPauses:
    """Which publishers are paused for which sinks; one per router.

    `slow`: clients that don't flow. `resumed`: publishers that continue at the end of the turn. `resting`: those that
    continue in later iterations of the event loop, the first ones first. `on_release`: called when publishers to some
    sink may continue, for messages that no connection publishes.
    """

    def __init__(self, host: SinkHost) -> None:
        self.host = host
        self.on_release: Callable[[], None] = ignore
        self.slow: dict[PausablePublisher, None] = {}
        self.resumed: list[PausablePublisher] = []
        self.resting: deque[PausablePublisher] = deque()
        self._paused: dict[object, list[PausablePublisher]] = {}

    def pause(self, slow: object, publisher: PausablePublisher) -> None:
        """Pause the publisher until the slow sink or node drains, lags or is gone."""
        if slow is publisher:
            return  # A client that publishes to itself must go on: its acknowledgements are behind its messages.
        waiting = self._paused.setdefault(slow, [])
        if publisher not in waiting:
            waiting.append(publisher)
            publisher.pause()

    def rest(self, publisher: PausablePublisher) -> None:
        """Its messages had many receivers: others are served before it continues."""
        publisher.pause()
        self.resting.append(publisher)

    def release(self, slow: object) -> None:
        """It drained, lags or is gone: resume its publishers."""
        for publisher in self._paused.pop(slow, ()):
            publisher.unpause()
        self.on_release()


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class PausablePublisher(Sink):
    """A client's connection as routing sees it: a publisher that can be paused. Times are those of the turn.

    `allowed`: packet heads that may take the fast path because the slow path has checked them; None: all may.
    `messages_in`: the PUBLISH packets that it sent. `stall` runs while the client doesn't flow.
    """

    __slots__ = ("allowed", "last_seen_s", "messages_in", "paused", "pauses", "reading_stopped", "stall")

    def __init__(self, pauses: PublisherPauses, protocol_version: int) -> None:
        super().__init__(pauses.host.turn, protocol_version)
        self.reading_stopped: bool = False
        self.paused: i32 = 0
        self.messages_in: i64 = 0
        self.pauses = pauses
        self.allowed: set[bytes] | None = None
        self.last_seen_s: float = pauses.host.now_s
        self.stall: StallClock | None = None

    def now_s(self) -> float:
        return self.pauses.host.now_s

    def unsendable(self, packet_bytes: int) -> None:
        count_unsendable(self.pauses.host.counters, packet_bytes)

    def client_id(self) -> bytes:
        """Empty before CONNECT. It stays after the connection ended, when messages may still be in progress."""
        raise NotImplementedError(type(self).__name__)

    def has_ended(self) -> bool:
        raise NotImplementedError(type(self).__name__)

    def is_congested(self) -> bool:
        """True if so many messages wait for the client's acknowledgements that publishers to it should pause."""
        raise NotImplementedError(type(self).__name__)

    def pause(self) -> None:
        """Stop processing and reading. Each pause needs its unpause."""
        self.paused += 1

    def unpause(self) -> None:
        self.paused -= 1
        if self.paused == 0:
            self.last_seen_s = self.pauses.host.now_s
            self.pauses.resumed.append(self)

    def congest(self) -> None:
        """FLOWING → CONGESTED: publishers to this client are paused from now on."""
        if self.flow == FLOWING:
            self.flow = CONGESTED
            self.stall = StallClock(self.now_s())
            self.pauses.slow[self] = None

    def stop_reading(self) -> None:
        """The socket is full and too many bytes wait: read nothing from the client until they drained."""
        self.congest()
        if not self.reading_stopped:
            self.reading_stopped = True
            self.pause()

    def progressed(self) -> None:
        """The client read or acknowledged something: check whether it flows again."""
        if self.stall is not None:
            self.stall.progress_s = self.now_s()
        if self.out_bytes < SINK_DRAINED_BYTES:
            if self.reading_stopped:
                self.reading_stopped = False
                self.unpause()
            if not self.is_congested():
                self.flows()

    def flows(self) -> None:
        """The client drained or is gone: resume its publishers."""
        if self.flow != FLOWING:
            self.flow = FLOWING
            self.stall = None
            self.pauses.slow.pop(self, None)
            self.pauses.release(self)

    def check_progress(self, now_s: float) -> bool:
        """Check for progress; called regularly while the client doesn't flow. Returns False when it flows again or has
        ended.
        """
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
