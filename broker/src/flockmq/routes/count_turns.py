"""When changed numbers of members of shared subscriptions are written: soon, together with others, users in turn.

A client with a thousand shared filters changes a thousand numbers when it comes or goes. So one piece of at most
SHARED_COUNTS_A_TURN rows is under way at a time. A number is read when it is its turn, so however often its members
come and go meanwhile, it is one row.

Invariants: every number that changed is looked at later, SHARED_COUNTS_S after that at the soonest, unless others wait
since before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from flockmq.bounds import SHARED_COUNTS_A_TURN, SHARED_COUNTS_S
from flockmq.routes.own_routes import WorstReason
from flockmq.user_turns import TurnQueue


class Counts(Protocol):
    """The numbers of one owner of rows."""

    def its_turn(self, share_filter: bytes, user: bytes) -> bool:
        """It is the turn of a number that changed. True if it must be written."""
        ...

    def write_counts(self, share_filters: list[bytes], done: Callable[[int], None]) -> None: ...


class CountTurns:
    """One per node."""

    def __init__(self) -> None:
        self._waiting = TurnQueue[tuple[Counts, bytes]]()
        self._loop = asyncio.get_running_loop()
        self._is_due = False
        """A call of `_write` is scheduled, or a piece is under way."""

    def append(self, user: bytes, counts: Counts, share_filter: bytes) -> None:
        self._waiting.append(user, (counts, share_filter))
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(SHARED_COUNTS_S, self._write)

    def _write(self) -> None:
        """Write the next piece. Numbers that needn't be written take time, too."""
        piece: dict[Counts, list[bytes]] = {}
        rows = 0
        for _ in range(4 * SHARED_COUNTS_A_TURN):
            if not self._waiting or rows == SHARED_COUNTS_A_TURN:
                break
            user, (counts, share_filter) = self._waiting.popleft()
            if counts.its_turn(share_filter, user or b""):
                piece.setdefault(counts, []).append(share_filter)
                rows += 1
        goes_on = bool(self._waiting)
        written = WorstReason(len(piece) + 1, lambda _: self._written(goes_on))
        for counts, share_filters in piece.items():
            counts.write_counts(share_filters, written.done)
        written.done(0)

    def _written(self, goes_on: bool) -> None:
        """`goes_on`: others wait since before this piece."""
        if goes_on:
            self._loop.call_soon(self._write)
        elif self._waiting:
            self._loop.call_later(SHARED_COUNTS_S, self._write)
        else:
            self._is_due = False
