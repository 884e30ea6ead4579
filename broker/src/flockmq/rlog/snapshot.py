"""A shard's tables on disk: one file. A new one is written beside the old one and then replaces it.

The file begins with a line that names the format. Then come frames (snapshot_stream.py), each after its length in 4
bytes. Between the slices and the trailer it holds the log entries from the header's position to the trailer's. So the
file alone gives the tables at one log position, and a core can seed a new Redis from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import BinaryIO, Final

from flockmq import bounds
from flockmq.rlog import snapshot_stream
from flockmq.rlog.disk import Disk
from flockmq.rlog.entry import StreamId
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.reading import NotNext
from flockmq.rlog.snapshot_stream import Framer, LogEntry, Message, SnapshotReceiver, Trailer
from flockmq.rlog.tables import Shard, Tables

MAGIC: Final = b"flockmq snapshot 1\n"
WRITE_BYTES: Final = 1024 * 1024

Read = Callable[[str, StreamId, StreamId], AsyncIterator[LogEntry]]


def name_of(shard: str) -> str:
    return f"{shard}.snapshot"


async def write(disk: Disk, tables: Tables, shard: str, read: Read) -> StreamId:
    """Write the shard's snapshot; it is on disk when this returns. `read` reads log entries. Returns the log position
    of the snapshot. Raises OSError, StorageUnavailable."""
    beside = f"{shard}.writing"
    framer, buffer, end = Framer(), bytearray(MAGIC), StreamId(0, 0)
    with await asyncio.to_thread(disk.create, beside) as file:
        async for message in _messages(tables, shard, read):
            frame = framer.frame(message)
            buffer += len(frame).to_bytes(4, "big") + frame
            if isinstance(message, Trailer):
                end = message.end
            if len(buffer) >= WRITE_BYTES:
                await asyncio.to_thread(file.write, bytes(buffer))
                buffer.clear()
        file.write(buffer)
        await asyncio.to_thread(disk.sync, file)
    await asyncio.to_thread(disk.replace, beside, name_of(shard))
    return end


async def load(disk: Disk, fresh: Shard, apply: Callable[[Shard, LogEntry], None]) -> StreamId | None:
    """Fill `fresh` from its snapshot and return the log position; None if there is no snapshot. Raises LogCorrupt, with
    the file's name."""
    name = name_of(fresh.name)
    receiver, framer = SnapshotReceiver(fresh), Framer()
    try:
        with await asyncio.to_thread(disk.open, name) as file:
            for frame in _frames(file):
                receiver.take(framer.message(frame), apply)
                await asyncio.sleep(0)
        receiver.check()
    except FileNotFoundError:
        return None
    except (LogCorrupt, NotNext) as error:
        raise LogCorrupt(f"{disk.path(name)}: {error}") from None
    except OSError as error:
        raise LogCorrupt(f"{disk.path(name)}: {error.strerror}") from None
    return fresh.applied


def check(file: BinaryIO) -> StreamId:
    """Read a whole snapshot without its tables, and return its log position. A core that loads it also checks the
    digests. Raises LogCorrupt."""
    framer, end = Framer(), None
    for frame in _frames(file):
        if end is not None:
            raise LogCorrupt("it goes on behind its trailer")
        match framer.message(frame):
            case Trailer() as trailer:
                end = trailer.end
    if end is None:
        raise LogCorrupt("it ends before its trailer")
    return end


async def _messages(tables: Tables, shard: str, read: Read) -> AsyncGenerator[Message]:
    """The messages that would be sent to a node, with the log entries before the trailer."""
    start: StreamId | None = None
    async for message in snapshot_stream.messages(tables, shard):
        if isinstance(message, snapshot_stream.Header):
            start = message.start
        if isinstance(message, Trailer) and start is not None:
            async for entry in read(shard, start, message.end):
                yield entry
        yield message


def _frames(file: BinaryIO) -> Iterator[bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise LogCorrupt("it is not a snapshot of this format")
    while prefix := file.read(4):
        length = int.from_bytes(prefix, "big")
        if length > bounds.SNAPSHOT_FRAME_MAX_BYTES:
            raise LogCorrupt(f"a frame of {length} bytes at byte {file.tell()}")
        frame = file.read(length)
        if len(prefix) < 4 or len(frame) < length:
            raise LogCorrupt(f"it ends within a frame at byte {file.tell()}")
        yield frame
