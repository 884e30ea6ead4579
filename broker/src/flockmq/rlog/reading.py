"""Reading a shard's stream: its key, the entries of a reply, what may follow what, and what one look says of several.

What always holds: an entry is applied only where it follows what was applied. Within a generation sequences have no
gaps, and a seal names the place that it follows, so contiguity is seen from the entries alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.redis.link import Reply
from flockmq.rlog.entry import BATCH_FIELD, CHECKPOINT_FIELD, SEAL_FIELD, StreamId, decode_batch
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.snapshot_stream import LogEntry
from flockmq.rlog.tables import Shard


class NotNext(Exception):
    """An entry does not follow what was applied."""


def log_key(shard: str) -> str:
    return f"flockmq:{{{shard}}}:log"


def entries_of(reply: Reply | ResponseError) -> Iterator[LogEntry]:
    """From what XRANGE answers, and XREAD for one stream. Raises LogCorrupt."""
    assert isinstance(reply, list)
    for item in reply:
        match item:
            case [bytes(stream_id), [bytes(field), bytes(value)]]:
                yield LogEntry(StreamId.parse(stream_id), field, value)
            case _:
                raise LogCorrupt("an entry of the log has other than one field; does something else write to it?")


def entries_between(applied: StreamId, end: StreamId) -> int:
    """Of another generation all are counted: it has one entry more than its last sequence says."""
    if end <= applied:
        return 0
    return end.sequence - applied.sequence if end.generation == applied.generation else end.sequence + 1


def check_next(entry: LogEntry, applied: StreamId) -> None:
    """Raises NotNext, or LogCorrupt."""
    stream_id = entry.stream_id
    if entry.field == SEAL_FIELD:
        if StreamId.parse(entry.value) != applied:
            raise NotNext(f"generation {stream_id.generation} goes on from {entry.value.decode()}")
    elif stream_id != (applied.generation, applied.sequence + 1):
        raise NotNext(f"the next entry is {stream_id}")


def apply_entry(shard: Shard, entry: LogEntry) -> None:
    """Raises NotNext, or LogCorrupt."""
    check_next(entry, shard.applied)
    stream_id = entry.stream_id
    if entry.field == SEAL_FIELD:
        shard.applied = stream_id
    elif entry.field == BATCH_FIELD:
        shard.apply(stream_id, decode_batch(entry.value))
    elif entry.field == CHECKPOINT_FIELD:
        shard.checkpoint(stream_id)
    else:
        raise LogCorrupt(f"shard {shard.name}: entry {stream_id} has the unknown field {entry.field!r}")


class Looks:
    """What the latest look at several logs of one server said of all of them at one moment.

    An XREAD is answered at one moment, for all of its streams: also one that waited, for had a stream got anything
    earlier it would have been answered then. So where it brought one shard's entry, it brought all of the others'
    that were written before that one, which nobody needs to ask for once more.
    """

    def __init__(self) -> None:
        self._ends: dict[str, Mapping[str, StreamId]] = {}

    def note(self, asked_from: Mapping[str, StreamId], came: Mapping[str, list[LogEntry]]) -> None:
        """One XREAD: from where on each shard was asked for, and what came of those that had anything. Of a shard with
        as many entries as were asked for it is not known whether that was all."""
        places = {**asked_from, **{shard: entries[-1].stream_id for shard, entries in came.items()}}
        for shard in asked_from:
            if len(came.get(shard, ())) < bounds.LOG_READ_MAX_ENTRIES:
                self._ends[shard] = places

    def end(self, shard: str, when: str, written: StreamId) -> StreamId | None:
        """Where the shard's log ended at a moment when the log of `when` had the entry `written` already. None: no
        look tells."""
        places = self._ends.get(shard, _NOTHING)
        return places[shard] if when in places and written <= places[when] else None

    def forget(self) -> None:
        """They were of another server, or of another life of it."""
        self._ends.clear()


_NOTHING: Final[Mapping[str, StreamId]] = {}
