"""Where encoded packets are put until the end of the turn.

A sink owns the bytes that wait for one peer: a client's connection or another node's link. Packets are appended as
chunks, by reference, so that one chunk can stand in many sinks; the first chunk of a turn puts the sink on the turn's
list of dirty sinks, and whoever runs the turn calls `flush` once for each of them, when the turn ends.

What always holds: a sink is on the dirty list at most once; `out_bytes` is the sum of the lengths in `out`.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import mypyc_attr

from flockmq.telemetry.counters import Counters

FLOWING: Final = 0
"""The peer reads as fast as we write."""
CONGESTED: Final = 1
"""More than the bound waits: whoever publishes to this peer is paused until it drains."""
LAGGING: Final = 2
"""It stayed congested too long: its publishers go on, and QoS 0 messages to it are dropped until it drains."""
AWAY: Final = 3
"""No connection: a session that lasts keeps what is published for it."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Sink:
    """One peer's outgoing bytes. Subclasses own the descriptor and say how a flush is done."""

    __slots__ = ("dirty", "flow", "out", "out_bytes", "protocol_version", "turn")

    def __init__(self, turn: list[Sink], protocol_version: int) -> None:
        self.out: list[bytes] = []
        self.out_bytes: int = 0
        self.flow: int = FLOWING
        self.turn = turn
        self.protocol_version = protocol_version
        self.dirty: bool = False

    def put(self, chunk: bytes) -> None:
        """Append one chunk of whole packets, encoded for `protocol_version`."""
        self.out.append(chunk)
        self.out_bytes += len(chunk)
        if not self.dirty:
            self.dirty = True
            self.turn.append(self)

    def now_s(self) -> float:
        """The turn's monotonic time."""
        raise NotImplementedError(type(self).__name__)

    def unsendable(self, packet_bytes: int) -> None:
        """A message that waited is not sent: it is larger than the peer takes, or, of 0 bytes, it has expired."""
        raise NotImplementedError(type(self).__name__)

    def congest(self) -> None:
        """More waits for this peer than it takes: its publishers are about to be paused."""

    def overflow(self) -> None:
        """A QoS ≥ 1 message found no room: the peer must not go on as if it had got everything."""
        raise NotImplementedError(type(self).__name__)

    def flush(self) -> None:
        """Hand what waits to the descriptor. Called once a turn, after `dirty` was reset."""
        raise NotImplementedError(type(self).__name__)


@mypyc_attr(allow_interpreted_subclasses=True)
class SinkHost:
    """What sinks see of the router that they belong to: `turn`, those that are dirty; the turn's time; the counters."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.turn: list[Sink] = []
        self.now_s: float = 0.0


@mypyc_attr(acyclic=True)
class AwaySink(Sink):
    """Stands in the place of a connection while a session's client is away: everything waits in the session. One for
    each protocol version: the version of the last connection is that of the packets that wait.
    """

    __slots__ = ("host",)

    def __init__(self, host: SinkHost, protocol_version: int) -> None:
        super().__init__(host.turn, protocol_version)
        self.host = host
        self.flow = AWAY

    def now_s(self) -> float:
        return self.host.now_s

    def put(self, chunk: bytes) -> None:
        raise AssertionError("nothing is sent to a client that is away")
