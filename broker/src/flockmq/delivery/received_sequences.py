"""Which batches of messages came from other nodes: of each the last number that was accepted. Pure.

It is kept by the sender's process. A node that was purged wrongly goes on with its numbers as another incarnation, and
may be here as that before its purge is known. What always holds: each number of a node is taken once, without a gap.
"""

from __future__ import annotations

from flockmq import bounds
from flockmq.routing.message_id import process_of


class NodeReceiver:
    """One per node."""

    def __init__(self) -> None:
        self._accepted: dict[str, int] = {}
        self._former: dict[str, int] = {}

    def accepted(self, incarnation: str) -> int:
        """The last number, before it was purged as well."""
        return self._last(incarnation) or 0

    def accept(self, incarnation: str, number: int) -> bool:
        """True: new, deliver it. False: a repeat. Raises ValueError on a gap: the peer always resends from the first
        number that isn't accepted, so a gap means that one of the two is wrong about the other."""
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

    def begin_anew(self) -> None:
        """This node is another incarnation: everybody numbers from 1 for it."""
        self._accepted.clear()
        self._former.clear()

    def _last(self, incarnation: str) -> int | None:
        process = process_of(incarnation)
        if (former := self._former.pop(process, None)) is not None:
            self._accepted[process] = former
        return self._accepted.get(process)
