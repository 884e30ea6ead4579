"""What a slot has taken, so that a repeat is known: of each source the number of its last message. Pure.

Messages of one source come in the order of their numbers, so one number is enough. A message is accepted when it is
committed here; whatever isn't is sent again. What always holds: a node's mark stays until the node is gone for good,
for it repeats what wasn't accepted. Sessions repeat what their clients send again; the marks of those stay that were
heard last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flockmq.bounds import MARKS_PER_SLOT_MAX
from flockmq.routing.message_id import is_node_source


def number_bytes(number: int) -> bytes:
    """As it is stored."""
    return number.to_bytes(8, "big")


class Deduplicator:
    """Of one slot. What falls out is answered, to be deleted from the store too."""

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
        """What the store has; answers the sources that are too many."""
        for source, raw in fields.items():
            marks = self._nodes if is_node_source(source) else self._sessions
            marks[source] = int.from_bytes(raw, "big")
        surplus = list(self._sessions)[: max(0, len(self._sessions) - self._max_sessions)]
        for source in surplus:
            del self._sessions[source]
        return surplus

    def is_new(self, source: bytes, number: int) -> bool:
        """The slot has not taken it."""
        marks = self._nodes if is_node_source(source) else self._sessions
        return number > marks.get(source, -1)

    def set(self, source: bytes, number: int) -> bytes:
        """The slot takes it. Answers a source that falls out, or b""."""
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
        """The source is gone for good. False: it had no mark."""
        return self._nodes.pop(source, None) is not None or self._sessions.pop(source, None) is not None

    def strangers(self, members: Collection[bytes]) -> list[bytes]:
        """The nodes' sources that aren't among those of `members`: they went while nobody here heard of it, and may
        come back yet and repeat what they sent.
        """
        return [source for source in self._nodes if source not in members]
