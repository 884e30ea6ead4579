"""Where encoded packets are put until the end of the turn.

A sink owns the bytes that wait for one peer: a client's connection or another node's link. Packets are appended as
chunks, by reference, so that one chunk can stand in many sinks; the first chunk of a turn puts the sink on the turn's
list of dirty sinks, and whoever runs the turn calls `flush` once for each of them, when the turn ends.

What always holds: a sink is on the dirty list at most once; `out_bytes` is the sum of the lengths in `out`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from flockmq.routing.message_id import ORIGIN

if TYPE_CHECKING:
    from flockmq.mqtt.message import Publish
    from flockmq.routing.fanout import Fanout

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
        self.dirty: bool = False
        self.flow: int = FLOWING
        self.turn = turn
        self.protocol_version = protocol_version

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


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class NodeTarget(Sink):
    """Another node, as a target of messages."""

    __slots__ = ()

    def way(self, publisher: bytes) -> Sink:
        """What a client that publishes waits for, where it doesn't flow."""
        return self

    def put_run(self, version: int, chunk: bytes) -> None:
        """Forward a run of whole QoS 0 PUBLISH packets, encoded for MQTT `version` (4 or 5). Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, packet_bytes: int) -> bool:
        """There is room for one more QoS ≥ 1 PUBLISH."""
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """Forward one QoS ≥ 1 PUBLISH; `on_accepted` is called once, when the node has it or need not be waited for.

        False: the link's resend buffer is full, nothing was taken, and the publisher hears 0x97.
        """
        raise NotImplementedError(type(self).__name__)

    def put_once(self, version: int, origin: bytes, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """The same of a shared delivery that whoever gets it is to take once, by this id."""
        return self.put_acknowledged(version | ORIGIN, origin + packet, on_accepted)

    def put_until_accepted(self, version: int, packet: bytes, on_accepted: Callable[[], None]) -> bool:
        """The same of what no publisher waits for, so that the node, unless it is gone, is waited for."""
        return self.put_acknowledged(version, packet, on_accepted)


@mypyc_attr(acyclic=True)
class SlotTarget:
    """A slot of client ids, as a target of messages: whoever owns it has the sessions that want them."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class SlotDispatcher:
    """Brings messages to the homes of sessions that last. `congested`: how many of its lanes, one a home, are, and in
    how many slots a session is. `is_short`: Redis has little memory left, no message of QoS ≥ 1 is taken that would
    wait there.
    """

    __slots__ = ("congested", "is_short")

    def __init__(self) -> None:
        self.congested: int = 0
        self.is_short: bool = False

    def put_run(self, fan: Fanout, version: int, chunk: bytes, publisher: bytes) -> None:
        """Bring a run of whole QoS 0 PUBLISH packets to the homes of a fan-out's slots. Never waits."""
        raise NotImplementedError(type(self).__name__)

    def takes(self, fan: Fanout, message: Publish, *, can_be_refused: bool = True) -> bool:
        """`put_acknowledged` would take it now, and it may be put. Not `can_be_refused`: its client can't be told, so
        while Redis is short of memory homes drop it for sessions whose clients are away.
        """
        raise NotImplementedError(type(self).__name__)

    def put_acknowledged(self, fan: Fanout, message: Publish, on_accepted: Callable[[], None]) -> int:
        """Bring one QoS ≥ 1 PUBLISH to them; how many times `on_accepted` will be called: once, when it is durable at
        all of them. -1: some lane has no room, nothing was taken, and the publisher hears 0x97. While Redis is short of
        memory `takes` is asked before.
        """
        raise NotImplementedError(type(self).__name__)

    def slow_lanes(self, fan: Fanout, publisher: bytes) -> list[Sink]:
        """The lanes and slots of a fan-out for which this client should pause; not for its own slot, where what is
        waited for may be its own acknowledgement.
        """
        raise NotImplementedError(type(self).__name__)

    def way_to(self, slot: int, publisher: bytes) -> Sink:
        """What this client's messages for a slot wait for now: the slot, if a session there has enough, or its lane."""
        raise NotImplementedError(type(self).__name__)

    def put_shared_run(self, slot: int, version: int, chunk: bytes) -> None:
        """As `put_run`, of a shared delivery for one slot."""
        raise NotImplementedError(type(self).__name__)

    def takes_shared(self, slot: int, chunk_bytes: int) -> bool:
        """`put_shared` would take so much now."""
        raise NotImplementedError(type(self).__name__)

    def put_shared(
        self, slot: int, version: int, chunk: bytes, on_accepted: Callable[[], None], origin: bytes = b""
    ) -> bool:
        """Bring one shared delivery of QoS ≥ 1 to one slot, once if it has an id; `on_accepted` is called once, when it
        is durable there. False: its lane has no room, nothing was taken.
        """
        raise NotImplementedError(type(self).__name__)
