"""Connection and lag events on their way to the nightly report: best effort, bounded, shed first.

Every node gathers; cores append to one Redis stream a kind, other nodes hand theirs to a core; the leader keeps the
streams below EVENTS_STREAM_MAX_BYTES. What can't be handed over at a flush is lost: no client ever waits for an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.cluster.link import Link
from flockmq.rlog.redis import RedisLinks, RedisUnreachable

log: Final = logging.getLogger(__name__)

KINDS: Final = ("connections", "lag")
NOTE: Final = "events"
Event = Sequence[object]

_encode: Final = msgspec.msgpack.Encoder().encode
_note: Final[msgspec.msgpack.Decoder[tuple[str, bytes]]] = msgspec.msgpack.Decoder(tuple[str, bytes])


class EventBuffer:
    """What happened since the last flush."""

    def __init__(self) -> None:
        self.dropped = 0
        self._waiting: dict[str, list[Event]] = {kind: [] for kind in KINDS}

    def add(self, kind: str, events: Sequence[Event]) -> None:
        """Raises KeyError for a kind that isn't one of KINDS."""
        waiting = self._waiting[kind]
        room = bounds.EVENTS_MAX - len(waiting)
        waiting.extend(events[:room])
        self.dropped += max(0, len(events) - room)

    def take(self) -> list[tuple[str, bytes]]:
        """(kind, msgpack array of at most EVENTS_ENTRY_MAX events) of all that waits."""
        taken: list[tuple[str, bytes]] = []
        for kind, waiting in self._waiting.items():
            for start in range(0, len(waiting), bounds.EVENTS_ENTRY_MAX):
                taken.append((kind, _encode(waiting[start : start + bounds.EVENTS_ENTRY_MAX])))
            waiting.clear()
        return taken


class EventRelay:
    """From the buffer to Redis: on a core directly (`redis` is set), elsewhere by way of a core."""

    def __init__(self, choose_core: Callable[[], Link | None]) -> None:
        self.buffer = EventBuffer()
        self.redis: RedisLinks | None = None
        self._choose_core = choose_core
        self._came: deque[tuple[str, bytes]] = deque(maxlen=bounds.EVENTS_NOTES_MAX)
        self._capped_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(bounds.EVENTS_FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        """Hand over what waits; what can't be is lost."""
        taken = self.buffer.take()
        if self.redis is not None:
            taken.extend(self._came)
            self._came.clear()
            await self._append_all(self.redis, taken)
        elif (core := self._choose_core()) is not None:
            for note in taken:
                core.note(NOTE, _encode(note))

    def came(self, incarnation: str, body: bytes) -> None:
        """Another node's events, for this core. Raises msgspec.MsgspecError."""
        kind, encoded = _note.decode(body)
        if kind in KINDS:
            self._came.append((kind, encoded))

    async def cap(self, now: float) -> None:
        """The leader's: cut the streams that Redis says are above EVENTS_STREAM_MAX_BYTES, oldest entries first."""
        if self.redis is None or now - self._capped_at < bounds.TRIM_EVERY_S:
            return
        self._capped_at = now
        for kind in KINDS:
            link = await self.redis.of(stream_of(kind))
            used_bytes = await link.call("MEMORY", "USAGE", stream_of(kind))
            entries = await link.call("XLEN", stream_of(kind))
            if isinstance(used_bytes, int) and isinstance(entries, int) and used_bytes > bounds.EVENTS_STREAM_MAX_BYTES:
                keep = entries * bounds.EVENTS_STREAM_MAX_BYTES * 9 // (used_bytes * 10)
                log.warning("%s events take %d bytes in Redis: the oldest go", kind, used_bytes)
                await link.call("XTRIM", stream_of(kind), "MAXLEN", keep)

    async def _append_all(self, redis: RedisLinks, taken: Sequence[tuple[str, bytes]]) -> None:
        """Where Redis is away nobody waits for it more than once, least of all a node that stops."""
        for count, (kind, encoded) in enumerate(taken):
            try:
                link = await redis.of(stream_of(kind))
                await link.call("XADD", stream_of(kind), "*", "events", encoded)
            except RedisUnreachable as error:
                log.warning("%d of %d batches of events were lost: %s", len(taken) - count, len(taken), error)
                return
            except Exception as error:
                log.warning("%d bytes of %s events were lost: %s", len(encoded), kind, error)


def stream_of(kind: str) -> str:
    return f"flockmq:events:{kind}"
