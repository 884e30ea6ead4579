"""A core's tables as a stream of frames, taken while they change (Raft: InstallSnapshot).

First comes a header: log position S and the sequence numbers of the incarnations at S. Then come slices: runs of rows.
Last comes a trailer: log position E, where the last slice was made, and the digests of the tables there. A slice holds
rows as they were at some position between S and E. Log entries are absolute, so the slices plus the log from S to E
give exactly the tables at E, and the digests prove it. A snapshot file is the same stream, with these entries before
the trailer. One exception ends the stream: a put that had no effect because of a row, which was then dropped. Replayed
without that row, the put would have an effect.

Each frame is 8 bytes of xxh3 and then its message. The hash is seeded with the frame's index, so a flipped bit and a
lost or repeated frame are detected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec
from xxhash import xxh3_64_digest

from flockmq import bounds
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import Run, StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.tables import Shard, Tables


class Header(msgspec.Struct, array_like=True, tag="header", frozen=True):
    shard: str
    start: StreamId
    sequences: dict[str, int]


class Slice(msgspec.Struct, array_like=True, tag="slice", frozen=True):
    runs: list[Run]


class LogEntry(msgspec.Struct, array_like=True, tag="entry", frozen=True):
    """One log entry as it is in Redis: its ID, its field and the field's value."""

    stream_id: StreamId
    field: bytes
    value: bytes


class Trailer(msgspec.Struct, array_like=True, tag="trailer", frozen=True):
    end: StreamId
    digests: dict[str, int]


Message = Header | Slice | LogEntry | Trailer

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Framer:
    """Encodes or decodes the frames of one stream, in order."""

    def __init__(self) -> None:
        self._index = 0

    def frame(self, message: Message) -> bytes:
        body = _encoder.encode(message)
        self._index += 1
        return xxh3_64_digest(body, self._index) + body

    def message(self, frame: bytes) -> Message:
        """Raises LogCorrupt."""
        self._index += 1
        body = frame[8:]
        if xxh3_64_digest(body, self._index) != frame[:8]:
            raise LogCorrupt(f"frame {self._index} of {len(frame)} bytes has the wrong checksum")
        try:
            return _decoder.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise LogCorrupt(f"frame {self._index} of {len(frame)} bytes: {error}") from None


async def messages(tables: Tables, shard: str) -> AsyncGenerator[Message]:
    """Stream the live tables of a shard. Raises StorageUnavailable if they are replaced meanwhile, or can't be had by
    replaying what was written meanwhile."""
    state = tables.shards[shard]
    before = {number: (table.kept, table.dropped) for number, table in state.tables.items()}
    yield Header(shard, state.applied, dict(state.sequences))
    for runs in _slices(state.export()):
        yield Slice(runs)
        await asyncio.sleep(0)
        if tables.shards[shard] is not state:
            raise StorageUnavailable(f"shard {shard} was replaced while it was sent")
    for number, (kept, dropped) in before.items():
        table = state.tables[number]
        if table.kept > kept and table.dropped > dropped:
            raise StorageUnavailable(f"table {table.spec.name}: what was written while it was sent can't be replayed")
    yield Trailer(state.applied, state.digests())


async def frames(tables: Tables, shard: str) -> AsyncGenerator[bytes]:
    """Stream the frames of `CorePort.bootstrap`."""
    framer = Framer()
    async for message in messages(tables, shard):
        yield framer.frame(message)


class SnapshotReceiver:
    """Fills the fresh `shard` from one stream. The caller then applies the log entries up to the trailer's `end`."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.trailer: Trailer | None = None
        self._started = False

    def take(self, message: Message, apply: Callable[[Shard, LogEntry], None]) -> None:
        """Handle one message. Raises LogCorrupt if it is out of order."""
        match message:
            case Header() if not self._started and message.shard == self.shard.name:
                self._started = True
                self.shard.applied = message.start
                self.shard.sequences = dict(message.sequences)
            case Slice() if self._started and self.trailer is None:
                self.shard.apply_runs(message.runs)
            case LogEntry() if self._started and self.trailer is None:
                apply(self.shard, message)
            case Trailer() if self._started and self.trailer is None:
                self.trailer = message
            case _:
                raise LogCorrupt(f"shard {self.shard.name}: {type(message).__name__} is out of place")

    def check(self) -> None:
        """Check that the shard equals the sender's. Raises LogCorrupt."""
        if self.trailer is None:
            raise LogCorrupt(f"shard {self.shard.name}: the stream ended without its trailer")
        if self.shard.applied != self.trailer.end or self.shard.digests() != self.trailer.digests:
            raise LogCorrupt(
                f"shard {self.shard.name} at {self.shard.applied} has digests {self.shard.digests()}, "
                f"the core had {self.trailer.digests} at {self.trailer.end}"
            )
        self.shard.checkpoints.clear()  # rows were ahead of the log when it was replayed over them


def _slices(runs: Iterator[Run]) -> Iterator[list[Run]]:
    """Gather small runs into slices of about LOG_SLICE_MAX_BYTES."""
    gathered: list[Run] = []
    size = 0
    for run in runs:
        gathered.append(run)
        size += sum(map(len, run[3])) + sum(map(len, run[4])) + 8 * len(run[3])
        if size >= bounds.LOG_SLICE_MAX_BYTES:
            yield gathered
            gathered, size = [], 0
    if gathered:
        yield gathered
