"""What travels on a cluster link: length-prefixed frames, and the structs of the control frames.

    frame   = length (u32, of the body) · kind (u8) · body
    CONTROL   body = one msgpack array `[tag, …]`, see `Control`
    FORWARD   body = MQTT version (u8) · a run of whole PUBLISH packets
    NUMBERED  body = number (u64) · MQTT version (u8) · a run of whole PUBLISH packets
              (with 0x80 added to the version: shared deliveries, `routing.shared_delivery`)
    ITEM      body = stream id (u32) · one item of a stream
    DELIVERY  body = packets for clients of sessions that run on the sender, `session_rpc.messages.deliveries`
    COURIER   body = number (u64; 0: runs of QoS 0) · epoch (u64) · letters for sessions that run on the receiver, each
              source (8 bytes) · number (u64) · bytes of the publisher (u16) · MQTT version (u8) · bytes of the packet
              (u32) · publisher · packet
    ADDRESSED the same, where each letter says for which slots it is; not for runs of QoS 0. body = number (u64) ·
              epoch (u64) · bytes of the addresses (u32) · addresses · letters; an address is the number of slots (u16)
              · each (u16), or, of more than 64, 0xFFFF · a bit for each slot (128 bytes, the lowest first)
    GREETING  body = one handshake struct; only before the peer is authenticated
    TUNNEL    body = tunnel id (u32) · bytes of the link that a core passes on

Frames that carry messages hold them raw: no msgpack, no copy of the payload. The length is checked against the bound
before any memory is spent on the body. Structs are arrays, so a later version can append fields that have defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import Struct as Layout
from struct import pack, unpack_from
from typing import Final

import msgspec

from flockmq.bounds import SLOTS
from flockmq.delivery.slot_message import UNADDRESSED, SlotMessage
from flockmq.membership.cluster_time import Reading
from flockmq.rlog.digests import Checked
from flockmq.rlog.entry import StreamId

CONTROL: Final = 0
FORWARD: Final = 1
NUMBERED: Final = 2
ITEM: Final = 3
GREETING: Final = 4
DELIVERY: Final = 5
COURIER: Final = 6
TUNNEL: Final = 7
ADDRESSED: Final = 8
"""From cluster version 2 on."""

_FRAME: Final = Layout(">IB")
_FORWARD: Final = Layout(">IBB")
_NUMBERED: Final = Layout(">IBQB")
_ITEM: Final = Layout(">IBI")
_NUMBERED_BODY: Final = Layout(">QB")
_ITEM_BODY: Final = Layout(">I")
_COURIER: Final = Layout(">IBQQ")
_COURIER_BODY: Final = Layout(">QQ")
_ADDRESSED: Final = Layout(">IBQQI")
_ADDRESSED_BODY: Final = Layout(">QQI")
_LETTER: Final = Layout(">8sQHBI")
_COUNT: Final = Layout(">H")
_ONE: Final = Layout(">HH")
_MANY: Final = 0xFFFF
_FEW_MAX: Final = 64
_ALL_BYTES: Final = SLOTS // 8


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
    clocks: Reading | None = None
    """What time it is for this node; None: it is of the first release."""
    hears_redis: bool | None = None
    """Redis answered this node within LOG_UNHEARD_MAX_S. None: it is of a version that doesn't say."""
    stale: bool = False
    """Its tables may be old."""
    is_new: bool = False
    """This core began the cluster's log, and has met no older release since."""


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
    """All batches of letters up to `number` are durable, at all slots that this core has had since epoch `view`; but
    for what is for slots that are `stuck`: (slot, the first batch that isn't durable there), of letters that were
    addressed.
    """

    number: int
    view: int
    stuck: tuple[tuple[int, int], ...] = ()


class Heard(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """Answers each Heartbeat: the way there and the way back are open."""


class TunnelOpen(msgspec.Struct, array_like=True, frozen=True, tag=14):
    """To a core: pass on what comes to that node. To that node itself: somebody of that role dials through this core;
    "" from a core of the first release."""

    id: int
    incarnation: str
    role: str = ""


class TunnelCredit(msgspec.Struct, array_like=True, frozen=True, tag=15):
    """The far end has read so many bytes more. The first that a core sends to who dials says the far end's role, and 0
    bytes."""

    id: int
    size_bytes: int
    role: str = ""


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


def courier_frame(number: int, epoch: int, letters: Sequence[SlotMessage], size_bytes: int) -> list[bytes]:
    """A whole COURIER frame, packets by reference. `size_bytes`: of the letters, as `delivery.batch_queue.size_of`
    says."""
    parts = [_COURIER.pack(_COURIER_BODY.size + size_bytes, COURIER, number, epoch)]
    return _with_letters(parts, letters)


def addressed_frame(number: int, epoch: int, letters: Sequence[SlotMessage], size_bytes: int) -> list[bytes]:
    """A whole ADDRESSED frame, the like."""
    addresses = b"".join([_address(letter.slots) for letter in letters])
    body_bytes = _ADDRESSED_BODY.size + len(addresses) + size_bytes
    parts = [_ADDRESSED.pack(body_bytes, ADDRESSED, number, epoch, len(addresses)) + addresses]
    return _with_letters(parts, letters)


def _address(slots: list[int]) -> bytes:
    if len(slots) == 1:
        return _ONE.pack(1, slots[0])
    if len(slots) <= _FEW_MAX:
        return pack(f">{len(slots) + 1}H", len(slots), *slots)
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return _COUNT.pack(_MANY) + bits.to_bytes(_ALL_BYTES, "little")


def _with_letters(parts: list[bytes], letters: Sequence[SlotMessage]) -> list[bytes]:
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


def parse_courier(body: bytes) -> tuple[int, int, list[SlotMessage]]:
    """(number, epoch, letters). Raises FrameError."""
    if len(body) < _COURIER_BODY.size:
        raise FrameError(f"a COURIER frame of {len(body)} bytes")
    number, epoch = _COURIER_BODY.unpack_from(body)
    return number, epoch, _letters(body, _COURIER_BODY.size, repeat(UNADDRESSED))


def parse_addressed(body: bytes) -> tuple[int, int, list[SlotMessage]]:
    """(number, epoch, letters). Raises FrameError."""
    if len(body) < _ADDRESSED_BODY.size:
        raise FrameError(f"an ADDRESSED frame of {len(body)} bytes")
    number, epoch, addresses_bytes = _ADDRESSED_BODY.unpack_from(body)
    at, end = _ADDRESSED_BODY.size, _ADDRESSED_BODY.size + addresses_bytes
    if number == 0 or end > len(body):
        raise FrameError("an ADDRESSED frame without a number, or that ends within its addresses")
    addresses = list(_addresses(body, at, end))
    letters = _letters(body, end, iter(addresses))
    if len(letters) != len(addresses):
        raise FrameError(f"an ADDRESSED frame of {len(letters)} letters and {len(addresses)} addresses")
    return number, epoch, letters


def _addresses(body: bytes, at: int, end: int) -> Iterator[list[int]]:
    while at < end:
        slots_at = at + _COUNT.size
        count = _COUNT.unpack_from(body, at)[0] if slots_at <= end else 0
        at = slots_at + (_ALL_BYTES if count == _MANY else count * _COUNT.size)
        if count == 0 or at > end:
            raise FrameError("an ADDRESSED frame with an address of no slot, or that ends within one")
        if count == _MANY:
            bits = int.from_bytes(body[slots_at:at], "little")
            yield [slot for slot in range(SLOTS) if bits >> slot & 1]
        else:
            yield list(unpack_from(f">{count}H", body, slots_at))


def _letters(body: bytes, at: int, addresses: Iterator[list[int]]) -> list[SlotMessage]:
    letters: list[SlotMessage] = []
    end = len(body)
    while at < end:
        publisher_at = at + _LETTER.size
        if publisher_at > end:
            raise FrameError("a COURIER frame that ends within a letter's head")
        source, letter_number, publisher_bytes, version, packet_bytes = _LETTER.unpack_from(body, at)
        packet_at = publisher_at + publisher_bytes
        at = packet_at + packet_bytes
        if at > end:
            raise FrameError("a COURIER frame that ends within a letter")
        if (slots := next(addresses, None)) is None:
            raise FrameError("an ADDRESSED frame with a letter that has no address")
        publisher, packet = body[publisher_at:packet_at], body[packet_at:at]
        letters.append(SlotMessage(source, letter_number, publisher, version, packet, slots))
    return letters


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
