"""Reads a shard's stream: its key, how much to ask for, the entries of a reply, the check that an entry follows, and
where logs ended.

Invariant: an entry is applied only if it follows the last applied one. Sequences have no gaps within a generation, and
a seal names the position that it follows. So the entries alone show whether one is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from redis.exceptions import ResponseError

from flockmq import bounds
from flockmq.redis.link import Reply
from flockmq.rlog.entry import BATCH_FIELD, CHECKPOINT_FIELD, SEAL_FIELD, StreamId, decode_batch
from flockmq.rlog.errors import LogCorrupt
from flockmq.rlog.snapshot_stream import LogEntry
from flockmq.rlog.tables import Shard


class NotNext(Exception):
    """An entry does not follow the last applied one."""


def log_key(shard: str) -> str:
    return f"flockmq:{{{shard}}}:log"


def entries_of(reply: Reply | ResponseError) -> Iterator[LogEntry]:
    """Parse the answer of XRANGE, or of XREAD for one stream. Raises LogCorrupt."""
    assert isinstance(reply, list)
    for item in reply:
        match item:
            case [bytes(stream_id), [bytes(field), bytes(value)]]:
                yield LogEntry(StreamId.parse(stream_id), field, value)
            case _:
                raise LogCorrupt("an entry of the log has other than one field; does something else write to it?")


def entries_between(applied: StreamId, end: StreamId) -> int:
    """The number of entries after `applied`, up to `end`. If `end` is in another generation, count all entries of that
    one: its last sequence plus 1."""
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


class ReadSize:
    """How many entries of each log to ask for at once: few at first, then as many as come to about LOG_READ_BYTES. So a
    reply arrives in time over a slow link, however large entries are. Use a new one for each connection: after a reply
    that didn't arrive, less is asked for."""

    def __init__(self) -> None:
        self.entries = bounds.LOG_READ_MIN_ENTRIES

    def came(self, entries: Sequence[LogEntry]) -> None:
        """These were the reply."""
        if not entries:
            return
        room = len(entries) * bounds.LOG_READ_BYTES // max(1, sum(len(entry.value) for entry in entries))
        most = min(2 * self.entries, room, bounds.LOG_READ_MAX_ENTRIES)
        self.entries = max(bounds.LOG_READ_MIN_ENTRIES, most)


class LogEnds:
    """Where the logs of one server ended, by the latest XREAD.

    One XREAD reads several streams at one instant, also if it blocked: it would have returned earlier if any stream had
    got an entry. So if it returned an entry of one shard, it also returned everything written earlier to the other
    shards, and no further query is needed for that.
    """

    def __init__(self) -> None:
        self._ends: dict[str, Mapping[str, StreamId]] = {}

    def note(self, asked_from: Mapping[str, StreamId], came: Mapping[str, list[LogEntry]], limit: int) -> None:
        """Record one XREAD: the position it read from in each shard, and the entries that it returned. If a shard
        returned `limit` entries, its log may have had more, so nothing is recorded for it."""
        positions = {**asked_from, **{shard: entries[-1].stream_id for shard, entries in came.items()}}
        for shard in asked_from:
            if len(came.get(shard, ())) < limit:
                self._ends[shard] = positions

    def end(self, shard: str, when: str, written: StreamId) -> StreamId | None:
        """Where the shard's log ended at a moment when the log `when` already held the entry `written`. None:
        unknown."""
        positions = self._ends.get(shard, _NOTHING)
        return positions[shard] if when in positions and written <= positions[when] else None

    def forget(self) -> None:
        """Forget everything: the connection leads to another server, or to another run of it."""
        self._ends.clear()


_NOTHING: Final[Mapping[str, StreamId]] = {}
