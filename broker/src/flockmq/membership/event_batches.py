"""The events of a node for the nightly report, and the batches in which they travel. No I/O.

A batch is a msgpack map: `v` (2), `node`, `incarnation`, `number`, `first`, `shed` and `columns`, which has one list
for each column, by name, all of one length. Readers ignore columns and fields that they don't know, and take those that
they miss as null; so columns may be added here, and none is renamed or gets another meaning. Batches of the first
release, which may come from a node of it, are arrays of arrays; whoever relays a batch doesn't read it.

Invariant: of one incarnation and kind, every event that happened has a number, from 0 on. `first` is the number of the
batch's first event, so what is missing between two batches was lost, and can be counted. `shed` is how many of the
events before it this node had no room for. A node that is killed takes its last events with it, of EVENTS_FLUSH_S.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from flockmq import bounds

VERSION: Final = 2

COLUMNS: Final = {
    "connections": (
        "at",
        "kind",
        "client_id",
        "reason_code",
        "ended_by",
        "protocol_version",
        "listener",
        "address",
        "duration_ms",
        "bytes_in",
        "bytes_out",
        "messages_in",
        "messages_out",
    ),
    "refusals": ("at", "client_id", "reason_code", "protocol_version", "listener", "address"),
    "lag": (
        "at",
        "shard",
        "lag_entries",
        "lag_ms",
        "bootstraps",
        "bootstrap_ms",
        "bootstrap_rows",
        "unapplied",
        "replaying",
    ),
    "nodes": (
        "at",
        "role",
        "version",
        "ready",
        "connections",
        "sessions",
        "durable_sessions",
        "subscriptions",
        "routes",
        "connects",
        "disconnects",
        "refused",
        "takeovers",
        "evictions",
        "messages_in",
        "messages_out",
        "messages_dropped",
        "bytes_in",
        "bytes_out",
        "slot_queue_messages",
        "resend_messages",
        "store_queue_bytes",
        "loop_late_ms",
    ),
}
"""Of each kind of events. `at` is Unix time in milliseconds; counters are those since the node's start."""

Event = Sequence[object]
"""One value for each column of its kind."""

_DIGEST_BYTES: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode


class EventBuffer:
    """The events since the last flush. A node that is purged goes on as another incarnation, and numbers on: its first
    one names it here."""

    def __init__(self, node: str, incarnation: str) -> None:
        self._node = node
        self._incarnation = incarnation
        self._kinds = {kind: _Kind() for kind in COLUMNS}

    @property
    def dropped(self) -> int:
        """Events that exceeded the buffer."""
        return sum(kind.shed for kind in self._kinds.values())

    def add(self, kind: str, events: Sequence[Event]) -> None:
        """Raises KeyError if there is no such kind."""
        waits = self._kinds[kind]
        room = bounds.EVENTS_MAX - len(waits.waiting)
        if len(events) > room:
            waits.shed += len(events) - room
            waits.shed_now += len(events) - room
            events = events[:room]
        waits.waiting.extend(events)

    def take(self) -> list[tuple[str, bytes]]:
        """Take all waiting events: (kind, batch of at most EVENTS_ENTRY_MAX events)."""
        return [
            (name, _encode({"v": VERSION, "node": self._node, "incarnation": self._incarnation, **batch}))
            for name, kind in self._kinds.items()
            for batch in kind.take(COLUMNS[name])
        ]


class _Kind:
    __slots__ = ("batches", "first", "shed", "shed_now", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Event] = []
        self.first = 0
        """The number of the first event in `waiting`."""
        self.batches = 0
        self.shed = 0
        self.shed_now = 0
        """Those of them that came behind `waiting`."""

    def take(self, columns: Sequence[str]) -> list[dict[str, object]]:
        taken: list[dict[str, object]] = []
        shed = self.shed - self.shed_now
        for start in range(0, len(self.waiting), bounds.EVENTS_ENTRY_MAX):
            events = self.waiting[start : start + bounds.EVENTS_ENTRY_MAX]
            values = dict(zip(columns, zip(*events, strict=True), strict=True))
            taken.append({"number": self.batches, "first": self.first, "shed": shed, "columns": values})
            self.batches += 1
            self.first += len(events)
        self.first += self.shed_now
        self.shed_now = 0
        self.waiting.clear()
        return taken


def text_of(name: bytes) -> str:
    """A name from a client, in EVENTS_TEXT_MAX_BYTES: of a longer one the beginning, and a digest that tells it from
    others."""
    if len(name) > bounds.EVENTS_TEXT_MAX_BYTES:
        digest = blake2b(name, digest_size=_DIGEST_BYTES).hexdigest().encode()
        name = name[: bounds.EVENTS_TEXT_MAX_BYTES - len(digest) - 1] + b"~" + digest
    return name.decode(errors="replace")
