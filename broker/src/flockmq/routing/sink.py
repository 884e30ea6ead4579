"""Sinks: encoded packets are put into them, and written at the end of the event-loop iteration ("turn").

A sink holds the bytes that wait for one peer: a client's connection or another node's link. Packets are appended as
chunks, by reference, so one chunk can be in many sinks. The first chunk of a turn adds the sink to the turn's list of
dirty sinks; at the end of the turn `flush` is called once for each of them.

Invariants: a sink is on the dirty list at most once. `out_bytes` is the sum of the lengths in `out`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr, u8

from flockmq.telemetry.counters import Counters

FLOWING: Final = 0
"""The peer reads as fast as we write."""
CONGESTED: Final = 1
"""Too much waits: publishers to this peer are paused until it drains."""
LAGGING: Final = 2
"""The sink stayed congested too long: its publishers continue, and QoS 0 messages to it are dropped until it drains."""
AWAY: Final = 3
"""No connection: the durable session queues messages."""


NOTHING: Final[list[bytes]] = []
"""`out` of all sinks in which nothing waits: a list for each idle connection would cost 80 bytes."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Sink:
    """Outgoing bytes for one peer. Subclasses own the file descriptor and implement `flush`. `messages_out`: the
    PUBLISH packets that were put, counted for connections of clients.
    """

    __slots__ = ("dirty", "flow", "messages_out", "out", "out_bytes", "protocol_version", "turn")

    def __init__(self, turn: list[Sink], protocol_version: int) -> None:
        self.out = NOTHING
        self.out_bytes: i64 = 0
        self.messages_out: i64 = 0
        self.turn = turn
        self.flow: u8 = FLOWING
        self.protocol_version: u8 = protocol_version
        self.dirty: bool = False

    def put(self, chunk: bytes) -> None:
        """Append one chunk of complete packets, encoded for `protocol_version`."""
        if self.out is NOTHING:
            self.out = [chunk]
        else:
            self.out.append(chunk)
        self.out_bytes += len(chunk)
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def flush_at_turn_end(self) -> None:
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def now_s(self) -> float:
        """The monotonic time of the turn."""
        raise NotImplementedError(type(self).__name__)

    def unsendable(self, packet_bytes: int) -> None:
        """A message that waited isn't sent: it is too large for the peer, or it has expired (`packet_bytes` 0)."""
        raise NotImplementedError(type(self).__name__)

    def dropped(self, count: int) -> None:
        """So many messages that waited were dropped for want of room: count them."""
        raise NotImplementedError(type(self).__name__)

    def congest(self) -> None:
        """Too much waits for this peer: its publishers will be paused."""

    def overflow(self) -> None:
        """The queue for QoS 1 and 2 is full: disconnect the peer, so that it doesn't miss messages unknowingly."""
        raise NotImplementedError(type(self).__name__)

    def flush(self) -> None:
        """Write what waits. Called once in a turn, after `dirty` was reset."""
        raise NotImplementedError(type(self).__name__)


class TurnEnd(Sink):
    """Calls `act` at the end of each turn in which something asked for it."""

    def __init__(self, turn: list[Sink], act: Callable[[], None]) -> None:
        super().__init__(turn, 0)
        self._act = act

    def flush(self) -> None:
        self._act()


def count_unsendable(counters: Counters, packet_bytes: int) -> None:
    """As `Sink.unsendable`."""
    if packet_bytes:
        counters.dropped_too_large += 1
    else:
        counters.dropped_expired += 1


class SinkHost:
    """What sinks need from their router: `turn` (the dirty sinks), the time of the turn, and the counters."""

    def __init__(self, counters: Counters, turn: list[Sink] | None = None) -> None:
        self.counters = counters
        self.turn: list[Sink] = [] if turn is None else turn
        self.now_s: float = 0.0


@mypyc_attr(acyclic=True)
class AwaySink(Sink):
    """The sink of durable sessions whose clients are offline: they queue everything. There is one for each protocol
    version, because queued packets have the version of the last connection.
    """

    __slots__ = ("host",)

    def __init__(self, host: SinkHost, protocol_version: int) -> None:
        super().__init__(host.turn, protocol_version)
        self.host = host
        self.flow = AWAY

    def now_s(self) -> float:
        return self.host.now_s

    def put(self, chunk: bytes) -> None:
        raise AssertionError("nothing is sent to an offline client")

    def dropped(self, count: int) -> None:
        self.host.counters.dropped_queue_full += count
