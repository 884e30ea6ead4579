"""Sends events and samples to Redis for the nightly report: best effort, bounded, dropped first.

Every node collects events. Cores append them to one Redis stream per kind; other nodes send theirs to a core. What
can't be sent at a flush is lost and counted, so no client ever waits for an event. Whoever has stored what is in a
stream says up to which entry in the hash COMMITTED; cores trim it up to there.

Invariant: a stream uses at most EVENTS_STREAM_MAX_BYTES of Redis' memory (or its share of Redis' memory), plus
EVENTS_LOOK_BYTES per core, which each may append between two checks of the size. A core checks at its first append,
because it may have appended before a restart. Only beyond this bound entries go that nobody has stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.logs import Retrying
from flockmq.membership.event_batches import COLUMNS, EventBuffer
from flockmq.membership.link import Link
from flockmq.redis.errors import RedisUnreachable
from flockmq.redis.link import RedisLink, RedisLinks
from flockmq.redis.memory import share_of

log: Final = logging.getLogger(__name__)

KINDS: Final = tuple(COLUMNS)
NOTE: Final = "events"
COMMITTED: Final = "flockmq:events:committed"
"""By kind, the ID of the last entry that is stored elsewhere."""

UNREACHABLE: Final = "away"
"""There was no core or no Redis to send it to, or it was refused."""
NO_ROOM: Final = "no_room"
"""Too many events waited on this core."""
STREAM_FULL: Final = "stream_full"
"""The oldest events of a stream were trimmed, though they weren't stored elsewhere."""

_encode: Final = msgspec.msgpack.Encoder().encode
_note: Final[msgspec.msgpack.Decoder[tuple[str, bytes]]] = msgspec.msgpack.Decoder(tuple[str, bytes])


class EventExport:
    """Moves events from the buffer to Redis: on a core directly (`redis` is set), on other nodes through a core."""

    def __init__(self, buffer: EventBuffer, choose_core: Callable[[], Link | None], now_s: Callable[[], float]) -> None:
        self.buffer = buffer
        self.redis: RedisLinks | None = None
        self.lost_bytes: Counter[str] = Counter(dict.fromkeys((UNREACHABLE, NO_ROOM, STREAM_FULL), 0))
        self._choose_core = choose_core
        self._received: deque[tuple[str, bytes]] = deque()
        self._redis_bytes = 0
        self._unreachable = Retrying(log, now_s)
        self._unchecked_bytes = dict.fromkeys(KINDS, bounds.EVENTS_LOOK_BYTES)
        """Bytes appended to each stream since its size was checked."""
        self._now_s = now_s

    def limit(self, redis_bytes: int) -> None:
        """Set how much memory Redis has; 0 means unlimited or unknown."""
        self._redis_bytes = redis_bytes

    @property
    def _stream_max_bytes(self) -> int:
        return share_of(self._redis_bytes, bounds.EVENTS_STREAM_MAX_BYTES)

    async def run(self) -> None:
        """Flush, and trim what is stored elsewhere, until cancelled."""
        trims_at_s = 0.0
        while True:
            await asyncio.sleep(bounds.EVENTS_FLUSH_S)
            await self.flush()
            if self.redis is not None and self._now_s() >= trims_at_s:
                trims_at_s = self._now_s() + bounds.EVENTS_TRIM_INTERVAL_S
                await self.trim_stored(self.redis)

    def leave(self) -> None:
        """This node leaves: lost events are no longer worth a warning."""
        self._unreachable.leave()

    async def flush(self) -> None:
        """Send all waiting events; those that can't be sent are lost."""
        taken = self.buffer.take()
        if self.redis is not None:
            taken.extend(self._received)
            self._received.clear()
            await self._append_all(self.redis, taken)
        elif (core := self._choose_core()) is not None:
            for note in taken:
                core.note(NOTE, _encode(note))
        else:
            self._lose(UNREACHABLE, taken)

    def received(self, incarnation: str, body: bytes) -> None:
        """Events of another node for this core. Raises msgspec.MsgspecError."""
        kind, encoded = _note.decode(body)
        if kind in KINDS:
            self._received.append((kind, encoded))
            if len(self._received) > bounds.EVENTS_NOTES_MAX:
                self._lose(NO_ROOM, [self._received.popleft()])

    async def _append_all(self, redis: RedisLinks, taken: Sequence[tuple[str, bytes]]) -> None:
        """Append to Redis. If Redis is unreachable, drop the rest, so that a stopping node waits for it only once."""
        for count, (kind, encoded) in enumerate(taken):
            try:
                link = await redis.of(stream_of(kind))
                await link.call("XADD", stream_of(kind), "*", "events", encoded)
            except RedisUnreachable as error:
                self._unreachable.failed("events for the report are lost, as flockmq_events_lost_bytes says: %s", error)
                self._lose(UNREACHABLE, taken[count:])
                return
            except Exception as error:
                log.warning("%d bytes of %s events were lost: %s", len(encoded), kind, error)
                self._lose(UNREACHABLE, [(kind, encoded)])
                continue
            self._unreachable.worked()
            self._unchecked_bytes[kind] += len(encoded)
            if self._unchecked_bytes[kind] >= min(bounds.EVENTS_LOOK_BYTES, self._stream_max_bytes // 8):
                await self.trim_stored(redis)
                await self._check_size(link, kind)

    async def trim_stored(self, redis: RedisLinks) -> None:
        """Trim each stream up to what is stored elsewhere. A failure is retried at the next time."""
        try:
            reply = await (await redis.of(COMMITTED)).call("HMGET", COMMITTED, *KINDS)
            for kind, last in zip(KINDS, reply if isinstance(reply, list) else (), strict=False):
                if isinstance(last, bytes):
                    stream = stream_of(kind)
                    await (await redis.of(stream)).call("XTRIM", stream, "MINID", last)
        except Exception as error:
            self._unreachable.failed("events that are stored elsewhere can't be trimmed: %s", error)

    async def _check_size(self, link: RedisLink, kind: str) -> None:
        """Check a stream's size and trim its oldest entries if it exceeds the bound. A failure is retried at the next
        flush."""
        try:
            trimmed_bytes = await _cut(link, stream_of(kind), self._stream_max_bytes)
        except Exception as error:
            self._unreachable.failed("the memory in Redis of %s events can't be measured: %s", kind, error)
            return
        self._unchecked_bytes[kind] = 0
        if trimmed_bytes:
            self.lost_bytes[STREAM_FULL] += trimmed_bytes
            log.warning(
                "%s events took more of Redis' memory than they may: the oldest %d bytes went", kind, trimmed_bytes
            )

    def _lose(self, why: str, batches: Sequence[tuple[str, bytes]]) -> None:
        self.lost_bytes[why] += sum(len(encoded) for _, encoded in batches)


async def _cut(link: RedisLink, stream: str, max_bytes: int) -> int:
    """Trim the stream to nine tenths of the bound; returns how many bytes were freed. Entries differ in size, so it
    measures again."""
    was_bytes = used_bytes = await _used_bytes(link, stream)
    while used_bytes > max_bytes:
        entries = await link.call("XLEN", stream)
        if not isinstance(entries, int) or entries == 0:
            break
        keep = entries * max_bytes * 9 // (used_bytes * 10)
        await link.call("XTRIM", stream, "MAXLEN", keep)
        used_bytes = await _used_bytes(link, stream)
    return was_bytes - used_bytes


async def _used_bytes(link: RedisLink, stream: str) -> int:
    """Measure all entries: the default samples the oldest entries, and if these are small Redis reports a tenth of the
    size."""
    used_bytes = await link.call("MEMORY", "USAGE", stream, "SAMPLES", 0)
    return used_bytes if isinstance(used_bytes, int) else 0


def stream_of(kind: str) -> str:
    return f"flockmq:events:{kind}"
