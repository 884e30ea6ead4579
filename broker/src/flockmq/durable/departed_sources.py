"""Message sources of nodes that are no members any more: how long their last sequence numbers are kept. No I/O.

Such a node may rejoin with a new incarnation and resend what wasn't acknowledged. Invariant: a source is due
MARKS_KEPT_S after its node departed. If there are more than MARKS_STRANGERS_MAX, those that departed first are due at
once.
"""

from __future__ import annotations

from collections.abc import Iterable

from flockmq import bounds


class DepartedSources:
    def __init__(self) -> None:
        self._until_s: dict[bytes, float] = {}
        """In the order of departure."""

    def departed(self, source: bytes, now_s: float) -> None:
        self._until_s.pop(source, None)
        self._until_s[source] = now_s + bounds.MARKS_KEPT_S

    def found(self, sources: Iterable[bytes], now_s: float) -> None:
        """Found in a slot that was loaded. When their nodes departed isn't known."""
        for source in sources:
            self._until_s.setdefault(source, now_s + bounds.MARKS_KEPT_S)

    def take_due(self, now_s: float) -> list[bytes]:
        """Remove and return the sources whose sequence numbers may be forgotten."""
        surplus = list(self._until_s)[: max(0, len(self._until_s) - bounds.MARKS_STRANGERS_MAX)]
        due = [source for source, until_s in self._until_s.items() if until_s <= now_s]
        taken = list(dict.fromkeys((*surplus, *due)))
        for source in taken:
            del self._until_s[source]
        return taken
