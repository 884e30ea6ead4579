"""The last accepted batch number of each other node. No I/O.

Numbers belong to the sender's process, not its incarnation: a node that was wrongly purged continues its numbers as
another incarnation. That incarnation may even arrive here before the purge of the former. Invariant: each number of a
node is accepted once, without gaps.
"""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.message_id import process_of


class ReceivedSequences:
    """One per node."""

    def __init__(self) -> None:
        self._accepted: dict[str, int] = {}
        self._former: dict[str, int] = {}

    def accepted(self, incarnation: str) -> int:
        """The last accepted number, also if the node was purged since."""
        return self._last(incarnation) or 0

    def accept(self, incarnation: str, number: int) -> bool:
        """True: it is new, so deliver it. False: it is a repeat. Raises ValueError on a gap: the peer always resends
        from the first number that isn't accepted, so a gap is a defect of one of the two nodes."""
        last = self._last(incarnation)
        if last is not None and number <= last:
            return False
        if last is not None and number != last + 1:
            raise ValueError(f"batch {number} from {incarnation} came after {last}")
        self._accepted[process_of(incarnation)] = number
        return True

    def forget(self, incarnation: str) -> None:
        """It was purged; it may come back."""
        process = process_of(incarnation)
        if (last := self._accepted.pop(process, None)) is not None:
            self._former[process] = last
            if len(self._former) > bounds.PEERS_FORMER_MAX:
                del self._former[next(iter(self._former))]

    def reset(self) -> None:
        """This node is another incarnation: all peers number from 1 for it."""
        self._accepted.clear()
        self._former.clear()

    def _last(self, incarnation: str) -> int | None:
        process = process_of(incarnation)
        if (former := self._former.pop(process, None)) is not None:
            self._accepted[process] = former
        return self._accepted.get(process)
