"""The frames on a cluster link: length-prefixed, with the structs of the control frames.

    frame   = length (u32, of the body) · kind (u8) · body
    CONTROL   body = one msgpack array `[tag, …]`, see `Control`
    ITEM      body = stream id (u32) · one item of a stream
    GREETING  body = one handshake struct; only before the peer is authenticated
    TUNNEL    body = tunnel id (u32) · bytes of a link that a core relays

Frames of messages are in `delivery.frames`, kinds 1, 2, 5, 6 and 8. The length is checked before memory is allocated
for the body. Structs are arrays, so a later version can append fields with defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct as Layout
from typing import Final

import msgspec

from flockmq.membership.cluster_time import ClockReading
from flockmq.rlog.digests import CheckpointDigests
from flockmq.rlog.entry import StreamId

CONTROL: Final = 0
ITEM: Final = 3
GREETING: Final = 4
TUNNEL: Final = 7

_FRAME: Final = Layout(">IB")
_ITEM: Final = Layout(">IBI")
_ITEM_BODY: Final = Layout(">I")


class FrameError(Exception):
    """The peer sent something that isn't a frame of this protocol; the text says what."""


class Status(msgspec.Struct, array_like=True, frozen=True):
    """A node's status in its heartbeats."""

    connections: int = 0
    routes: int = 0
    lag_entries: int = 0
    ready: bool = False
    draining: bool = False
    weight: int = 0
    """Appends that this core did for other nodes since the last heartbeat: its load. Of equal cores a replicant chooses
    the least loaded."""
    log_ends: dict[str, StreamId] = {}
    """Shard → the log position of this node's tables."""
    unreachable: tuple[str, ...] = ()
    """Incarnations that this core has no link to: its votes for purges."""
    leads: bool = False
    durable: dict[str, StreamId] = {}
    """Shard → the log position up to which this core's disk has it."""
    checkpoints: dict[str, CheckpointDigests] = {}
    """Shard → the digests of this core's tables at the latest checkpoint."""
    sending: dict[str, StreamId] = {}
    """Shards that this core streams to other nodes → the log position from which these still need the log."""
    in_majority: bool = False
    """This core can reach a majority of the cores, so nodes that hear it are still members."""
    core: str = ""
    """The incarnation of the core that this replicant writes through."""
    replicants: int = 0
    """How many replicants write through this core."""
    clocks: ClockReading | None = None
    """This node's clock. None: it is of the first release."""
    hears_redis: bool | None = None
    """Redis answered this node within LOG_UNHEARD_MAX_S. None: its release doesn't report that."""
    stale: bool = False
    """Its tables may be stale."""
    is_new: bool = False
    """This core began the cluster's log, and has met no node of an older release since."""
    takes_clients: bool | None = None
    """It has listeners for clients. None: its release doesn't report that."""
    connect_wait_ms: int = 0
    """For how long a client waits there for CONNACK now. 0 also where its release doesn't report that."""
    rebalancing: bool = False
    """It sends clients beyond its share to other nodes."""
    durable_clients: int | None = None
    """Its connections whose session is durable. None: its release doesn't report that."""
    messages_per_s: int | None = None
    """From its clients and to them. None: its release doesn't report that."""
    has_too_much: bool = False
    """It has more than its share, and sends some of it to other nodes, or will when it has waited."""


class Heartbeat(msgspec.Struct, array_like=True, frozen=True, tag=0):
    status: Status


class Note(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A one-way notification, without an answer."""

    method: str
    body: bytes


class Request(msgspec.Struct, array_like=True, frozen=True, tag=2):
    id: int
    method: str
    body: bytes


class Reply(msgspec.Struct, array_like=True, frozen=True, tag=3):
    id: int
    body: bytes


class Failure(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Answers a Request that failed. `code` is for the program, `message` for people."""

    id: int
    code: str
    message: str


class StreamOpen(msgspec.Struct, array_like=True, frozen=True, tag=5):
    id: int
    method: str
    body: bytes
    credit: int


class StreamCredit(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """The reader has room for `items` more."""

    id: int
    items: int


class StreamEnd(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Follows the last item. `code` is empty if the stream is complete."""

    id: int
    code: str
    message: str


class StreamCancel(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The reader wants no more items."""

    id: int


class Resume(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """The first message on every link: the last number accepted from this peer's incarnation. No messages are sent
    before it has arrived."""

    accepted: int


class Accepted(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """All numbered frames up to `number` were accepted."""

    number: int


class Goodbye(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """This incarnation leaves for good."""


class SlotAck(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """All batches of slot messages up to `number` are committed, for all slots that this core has owned since epoch
    `view`. Except for slots in `blocked`: (slot, the first batch that isn't committed there). Only messages that name
    their slots can be blocked."""

    number: int
    view: int
    blocked: tuple[tuple[int, int], ...] = ()


class HeartbeatAck(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """Answers each Heartbeat. So both directions of the link work."""


class TunnelOpen(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """Sent to a core: relay to that node. Sent to that node itself: a node with this role dials you through this core.
    The role is "" from a core of the first release."""

    id: int
    incarnation: str
    role: str = ""


class TunnelCredit(msgspec.Struct, array_like=True, frozen=True, tag=15):
    """The far end has read this many more bytes. The first TunnelCredit that a core sends to the dialling node carries
    the far end's role and 0 bytes."""

    id: int
    size_bytes: int
    role: str = ""


class TunnelClose(msgspec.Struct, array_like=True, frozen=True, tag=16):
    """Follows the last bytes. `reason` is empty if the far end closed the tunnel."""

    id: int
    reason: str


Control = (
    Heartbeat
    | Note
    | Request
    | Reply
    | Failure
    | StreamOpen
    | StreamCredit
    | StreamEnd
    | StreamCancel
    | Resume
    | Accepted
    | Goodbye
    | SlotAck
    | HeartbeatAck
    | TunnelOpen
    | TunnelCredit
    | TunnelClose
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Control]] = msgspec.msgpack.Decoder(Control)


def control(message: Control) -> bytes:
    """Encode a whole control frame."""
    return frame(CONTROL, _encoder.encode(message))


def parse_control(body: bytes) -> Control:
    """Raises FrameError."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"control frame of {len(body)} bytes: {error}") from None


def frame(kind: int, body: bytes) -> bytes:
    return header(kind, len(body)) + body


def header(kind: int, body_bytes: int) -> bytes:
    """Stands before the body of a frame."""
    return _FRAME.pack(body_bytes, kind)


def id_header(kind: int, number: int, size_bytes: int) -> bytes:
    """Stands before the bytes of an ITEM or TUNNEL frame: its header, and the id of the stream or tunnel."""
    return _ITEM.pack(size_bytes + _ITEM_BODY.size, kind, number)


def parse_id(body: bytes) -> tuple[int, bytes]:
    """The (id, bytes) in the body of an ITEM or TUNNEL frame. Raises FrameError."""
    if len(body) < _ITEM_BODY.size:
        raise FrameError(f"a frame of a stream or a tunnel with {len(body)} bytes")
    return _ITEM_BODY.unpack_from(body)[0], body[_ITEM_BODY.size :]


class FrameReader:
    """Cuts the received bytes into frames. Takes linear time: a frame that arrives in many reads is joined once.

    `max_body_bytes` is checked for each frame, so it may be raised between two frames (after authentication).
    """

    __slots__ = ("_have_bytes", "_need_bytes", "_parts", "max_body_bytes")

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._parts: list[bytes] = []
        self._have_bytes = 0
        self._need_bytes = _FRAME.size

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(kind, body) of each complete frame. Raises FrameError if one exceeds the bound."""
        self._parts.append(data)
        self._have_bytes += len(data)
        if self._have_bytes < self._need_bytes:
            return
        data = b"".join(self._parts) if len(self._parts) > 1 else data
        offset, end, need = 0, len(data), _FRAME.size
        while end - offset >= _FRAME.size:
            length, kind = _FRAME.unpack_from(data, offset)
            if length > self.max_body_bytes:
                raise FrameError(f"a frame of {length} bytes where at most {self.max_body_bytes} are allowed")
            stop = offset + _FRAME.size + length
            if stop > end:
                need = _FRAME.size + length
                break
            yield kind, data[offset + _FRAME.size : stop]
            offset = stop
        self._parts = [data[offset:]] if offset < end else []
        self._have_bytes = end - offset
        self._need_bytes = need
