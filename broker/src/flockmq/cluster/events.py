"""Connection and lag events on their way to the nightly report: best effort, bounded, shed first.

Every node gathers; cores append to one capped Redis stream a kind, other nodes hand theirs to a core. What can't be
handed over within a flush is lost: no client ever waits for an event.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from flockmq import bounds
from flockmq.rlog.redis import RedisLink

log: Final = logging.getLogger(__name__)

KINDS: Final = ("connections", "lag")
Event = Sequence[object]

_encode: Final = msgspec.msgpack.Encoder().encode


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
        """(kind, msgpack array of events) of all that waits."""
        taken = [(kind, _encode(events)) for kind, events in self._waiting.items() if events]
        for kind, _ in taken:
            self._waiting[kind] = []
        return taken


async def append(redis: RedisLink, kind: str, encoded: bytes) -> None:
    """One entry of the kind's stream, on a core. A failure is logged: the events are lost."""
    if kind not in KINDS:
        return
    try:
        await redis.call(
            "XADD", f"flockmq:events:{kind}", "MAXLEN", "~", bounds.EVENTS_STREAM_MAX_ENTRIES, "*", "events", encoded
        )
    except Exception as error:
        log.warning("%d bytes of %s events were lost: %s", len(encoded), kind, error)
