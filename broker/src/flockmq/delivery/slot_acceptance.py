"""When a slot has a message: what it took before (`Deduplicator`), and what is committed (`SlotBarriers`). No I/O.

A message is accepted when it is committed; what isn't accepted is sent again. A slot recognizes repeats by the last
sequence number of each source. Messages of one source arrive in the order of their numbers, so one number is enough (as
with Kafka's idempotent producer). Invariant: the number of a node stays until the node is gone for good, because it
resends what wasn't accepted. Sources of sessions resend what their clients resend; of these the most recently used are
kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from flockmq.bounds import MARKS_PER_SLOT_MAX
from flockmq.routing.message_id import is_node_source


def number_bytes(number: int) -> bytes:
    """The stored form."""
    return number.to_bytes(8, "big")


class Deduplicator:
    """The sequence numbers of one slot. The methods return sources that were evicted, so that the caller deletes them
    from the store too."""

    __slots__ = ("_max_sessions", "_nodes", "_sessions")

    def __init__(self, max_sessions: int = MARKS_PER_SLOT_MAX) -> None:
        self._max_sessions = max_sessions
        self._nodes: dict[bytes, int] = {}
        self._sessions: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._nodes) + len(self._sessions)

    def items(self) -> list[tuple[bytes, int]]:
        """All (source, number)."""
        return [*self._nodes.items(), *self._sessions.items()]

    def restore(self, fields: Mapping[bytes, bytes]) -> list[bytes]:
        """Load the stored numbers. Returns the sources that are too many."""
        for source, raw in fields.items():
            numbers = self._nodes if is_node_source(source) else self._sessions
            numbers[source] = int.from_bytes(raw, "big")
        surplus = list(self._sessions)[: max(0, len(self._sessions) - self._max_sessions)]
        for source in surplus:
            del self._sessions[source]
        return surplus

    def is_new(self, source: bytes, number: int) -> bool:
        """The slot has not taken this message yet."""
        numbers = self._nodes if is_node_source(source) else self._sessions
        return number > numbers.get(source, -1)

    def set(self, source: bytes, number: int) -> bytes:
        """The slot takes this message. Returns an evicted source, or b""."""
        if is_node_source(source):
            self._nodes[source] = number
            return b""
        sessions = self._sessions
        sessions.pop(source, None)
        sessions[source] = number
        if len(sessions) <= self._max_sessions:
            return b""
        oldest = next(iter(sessions))
        del sessions[oldest]
        return oldest

    def forget(self, source: bytes) -> bool:
        """The source is gone for good. False: it wasn't known."""
        return self._nodes.pop(source, None) is not None or self._sessions.pop(source, None) is not None

    def unknown_nodes(self, members: Collection[bytes]) -> list[bytes]:
        """The sources of nodes that aren't in `members`. They were purged while this core didn't notice. They may still
        come back and resend."""
        return [source for source in self._nodes if source not in members]


class SlotBarriers:
    """One barrier per slot. `done` is called once, when all were answered: with True if all are durable. `slots`: those
    that aren't durable, at least not yet."""

    __slots__ = ("_done", "_durable", "_waits", "slots")

    def __init__(self, slots: dict[int, None], done: Callable[[bool], None]) -> None:
        self.slots = slots
        self._waits = len(slots)
        self._done = done
        self._durable = True

    def one(self, slot: int, durable: bool) -> None:
        if durable:
            del self.slots[slot]
        else:
            self._durable = False
        self._waits -= 1
        if self._waits == 0:
            self._done(self._durable)
