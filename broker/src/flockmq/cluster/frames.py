"""What travels on a cluster link: length-prefixed frames, and the structs of the control frames.

    frame   = length (u32, of the body) · kind (u8) · body
    CONTROL   body = one msgpack array `[tag, …]`, see `Control`
    FORWARD   body = MQTT version (u8) · a run of whole PUBLISH packets
    NUMBERED  body = number (u64) · MQTT version (u8) · a run of whole PUBLISH packets
              (with 0x80 added to the version: shared deliveries, `session.shared`)
    ITEM      body = stream id (u32) · one item of a stream
    DELIVERY  body = packets for clients of sessions that run on the sender, `home.wire.deliveries`
    COURIER   body = number (u64; 0: runs of QoS 0) · epoch (u64) · letters for sessions that run on the receiver, each
              source (8 bytes) · number (u64) · bytes of the publisher (u16) · MQTT version (u8) · bytes of the packet
              (u32) · publisher · packet
    GREETING  body = one handshake struct; only before the peer is authenticated
    TUNNEL    body = tunnel id (u32) · bytes of the link that a core passes on

Frames that carry messages hold them raw: no msgpack, no copy of the payload. The length is checked against the bound
before any memory is spent on the body. Structs are arrays, so a later version can append fields that have defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct as Layout
from typing import Final

import msgspec

from flockmq.rlog.digests import Checked
from flockmq.rlog.entry import StreamId
from flockmq.session.letter import Letter

CONTROL: Final = 0
FORWARD: Final = 1
NUMBERED: Final = 2
ITEM: Final = 3
GREETING: Final = 4
DELIVERY: Final = 5
COURIER: Final = 6
TUNNEL: Final = 7

_FRAME: Final = Layout(">IB")
_FORWARD: Final = Layout(">IBB")
_NUMBERED: Final = Layout(">IBQB")
_ITEM: Final = Layout(">IBI")
_NUMBERED_BODY: Final = Layout(">QB")
_ITEM_BODY: Final = Layout(">I")
_COURIER: Final = Layout(">IBQQ")
_COURIER_BODY: Final = Layout(">QQ")
_LETTER: Final = Layout(">8sQHBI")


class FrameError(Exception):
    """The peer sent something that isn't a frame of this protocol; the message says what."""


class Status(msgspec.Struct, array_like=True, frozen=True):
    """How a node is, as it says twice a second on each of its links."""

    connections: int = 0
    routes: int = 0
    lag_entries: int = 0
    ready: bool = False
    draining: bool = False
    weight: int = 0
    """Appends that a core took of others since the last beat; of equal cores the least is written through."""
    heads: dict[str, StreamId] = {}
    """Shard → the highest Stream ID this node knows of."""
    unreachable: tuple[str, ...] = ()
    """Incarnations this core has no link to: its vote in a purge."""
    leads: bool = False
    durable: dict[str, StreamId] = {}
    """Shard → up to which Stream ID this core has it on its disk."""
    checkpoints: dict[str, Checked] = {}
    """Shard → the digests of this core's tables at the latest checkpoint of the log."""
    sending: dict[str, StreamId] = {}
    """Shards that this core sends to somebody → from where on they need the log."""
    settled: bool = False
    """This core belongs to a majority of the cores: who hears it is a member still."""
    core: str = ""
    """The incarnation of the core that this replicant writes through."""
    replicants: int = 0
    """How many replicants write through this core."""


class Heartbeat(msgspec.Struct, array_like=True, frozen=True, tag=0):
    status: Status


class Note(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """One way; nobody answers."""

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
    """Answers a Request that failed: `code` is for the program, `message` for people."""

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
    """After the last item; `code` is empty when the stream is complete."""

    id: int
    code: str
    message: str


class StreamCancel(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The reader wants no more."""

    id: int


class Resume(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """First on every link: the last number accepted from this peer's incarnation. No message goes before it came."""

    accepted: int


class Accepted(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """All numbered frames up to `number` were accepted."""

    number: int


class Goodbye(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """This incarnation leaves for good and will not come back."""


class Taken(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """All batches of letters up to `number` are durable, at all slots that this core has had since epoch `view`."""

    number: int
    view: int


class Heard(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """Answers each Heartbeat: the way there and the way back are open."""


class TunnelOpen(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """To a core: pass on what comes to that node. To that node itself: somebody dials through this core."""

    id: int
    incarnation: str


class TunnelCredit(msgspec.Struct, array_like=True, frozen=True, tag=15):
    """The far end has read so many bytes more."""

    id: int
    size_bytes: int


class TunnelClose(msgspec.Struct, array_like=True, frozen=True, tag=16):
    """Behind the last bytes; `reason` is empty when the far end closed it."""

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
    | Taken
    | Heard
    | TunnelOpen
    | TunnelCredit
    | TunnelClose
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Control]] = msgspec.msgpack.Decoder(Control)


def control(message: Control) -> bytes:
    """A whole control frame."""
    return frame(CONTROL, _encoder.encode(message))


def parse_control(body: bytes) -> Control:
    """Raises FrameError."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise FrameError(f"control frame of {len(body)} bytes: {error}") from None


def frame(kind: int, body: bytes) -> bytes:
    return _FRAME.pack(len(body), kind) + body


def forward_header(version: int, chunk_bytes: int) -> bytes:
    """Stands before the chunks of a FORWARD frame."""
    return _FORWARD.pack(chunk_bytes + 1, FORWARD, version)


def numbered_header(number: int, version: int, chunk_bytes: int) -> bytes:
    """Stands before the chunks of a NUMBERED frame."""
    return _NUMBERED.pack(chunk_bytes + 9, NUMBERED, number, version)


def delivery_header(size_bytes: int) -> bytes:
    """Stands before the parts of a DELIVERY frame."""
    return _FRAME.pack(size_bytes, DELIVERY)


def courier_frame(number: int, epoch: int, letters: Sequence[Letter], size_bytes: int) -> list[bytes]:
    """A whole COURIER frame, packets by reference. `size_bytes`: of the letters, as `cluster.lane.size_of` says."""
    parts = [_COURIER.pack(_COURIER_BODY.size + size_bytes, COURIER, number, epoch)]
    for letter in letters:
        publisher, packet = letter.publisher, letter.packet
        head = _LETTER.pack(letter.source, letter.number, len(publisher), letter.version, len(packet))
        parts.append(head + publisher)
        parts.append(packet)
    return parts


def item_header(stream_id: int, item_bytes: int) -> bytes:
    return _ITEM.pack(item_bytes + 4, ITEM, stream_id)


def tunnel_header(tunnel_id: int, size_bytes: int) -> bytes:
    return _ITEM.pack(size_bytes + 4, TUNNEL, tunnel_id)


def parse_forward(body: bytes) -> tuple[int, bytes]:
    """(version, chunk). Raises FrameError."""
    if len(body) < 1:
        raise FrameError("a FORWARD frame without a version")
    return body[0], body[1:]


def parse_numbered(body: bytes) -> tuple[int, int, bytes]:
    """(number, version, chunk). Raises FrameError."""
    if len(body) < 9:
        raise FrameError(f"a NUMBERED frame of {len(body)} bytes")
    number, version = _NUMBERED_BODY.unpack_from(body)
    return number, version, body[9:]


def parse_item(body: bytes) -> tuple[int, bytes]:
    """(stream id, item). Raises FrameError."""
    if len(body) < 4:
        raise FrameError(f"an ITEM frame of {len(body)} bytes")
    return _ITEM_BODY.unpack_from(body)[0], body[4:]


def parse_courier(body: bytes) -> tuple[int, int, list[Letter]]:
    """(number, epoch, letters). Raises FrameError."""
    if len(body) < _COURIER_BODY.size:
        raise FrameError(f"a COURIER frame of {len(body)} bytes")
    number, epoch = _COURIER_BODY.unpack_from(body)
    letters: list[Letter] = []
    at, end = _COURIER_BODY.size, len(body)
    while at < end:
        publisher_at = at + _LETTER.size
        if publisher_at > end:
            raise FrameError("a COURIER frame that ends within a letter's head")
        source, letter_number, publisher_bytes, version, packet_bytes = _LETTER.unpack_from(body, at)
        packet_at = publisher_at + publisher_bytes
        at = packet_at + packet_bytes
        if at > end:
            raise FrameError("a COURIER frame that ends within a letter")
        letters.append(Letter(source, letter_number, body[publisher_at:packet_at], version, body[packet_at:at]))
    return number, epoch, letters


def parse_tunnel(body: bytes) -> tuple[int, bytes]:
    """(tunnel id, bytes). Raises FrameError."""
    if len(body) < 4:
        raise FrameError(f"a TUNNEL frame of {len(body)} bytes")
    return _ITEM_BODY.unpack_from(body)[0], body[4:]


class FrameReader:
    """Cuts what was read into frames. Linear: a frame that comes in many reads is joined once.

    `max_body_bytes` may be raised between two frames (after authentication): it is looked at for each frame.
    """

    __slots__ = ("_have_bytes", "_need_bytes", "_parts", "max_body_bytes")

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._parts: list[bytes] = []
        self._have_bytes = 0
        self._need_bytes = _FRAME.size

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """(kind, body) of each frame that is complete. Raises FrameError when one is longer than the bound."""
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
