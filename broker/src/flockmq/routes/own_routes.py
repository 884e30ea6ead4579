"""This node's own rows of `routes`: written for its clients' filters, deleted when the last client unsubscribed.

Invariants: a filter counts as routed only while the table has its row and no delete of the row is under way. If the
result of a delete is unknown (the log was unavailable too long), the filter stays in doubt until a later write of it is
done, which the log orders after the delete. A write before it decides nothing, though it may be done later: a delete
for which the log has no room fails at once. However many filters a client leaves: the writes are split into pieces, and
what doesn't fit into the log is retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice

from flockmq.bounds import LOG_TRANSACTION_MAX_BYTES, ROUTES_TRIED_AGAIN_MAX
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import StreamId
from flockmq.rlog.schema import ROUTES
from flockmq.routes.route_turns import NOBODY, Submit


def in_pieces(filters: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split into pieces of at most one transaction's size, except for a single longer filter."""
    piece: list[bytes] = []
    size_bytes = 0
    for filter in filters:
        if piece and size_bytes + len(filter) > LOG_TRANSACTION_MAX_BYTES:
            yield piece
            piece, size_bytes = [], 0
        piece.append(filter)
        size_bytes += len(filter)
    if piece:
        yield piece


class WorstReason:
    """Joins the results of `parts` writes: calls `done` with the worst reason code."""

    def __init__(self, parts: int, done: Callable[[int], None]) -> None:
        self._left = parts
        self._worst: int = Reason.SUCCESS
        self._done = done

    def done(self, reason: int) -> None:
        self._left -= 1
        self._worst = max(self._worst, reason)
        if not self._left:
            self._done(self._worst)


class OwnRoutes:
    """`holders` returns the incarnations that have a row for a filter. `is_wanted`: a client here subscribes to it."""

    def __init__(
        self,
        me: str,
        submit: Submit,
        holders: Callable[[bytes], Collection[str]],
        is_wanted: Callable[[bytes], bool],
        reason: Callable[[asyncio.Future[StreamId]], int],
    ) -> None:
        self._me = me
        self._submit = submit
        self._holders = holders
        self._is_wanted = is_wanted
        self._reason = reason
        self._serial = 0
        self._deleting: dict[bytes, int] = {}
        self.in_doubt: dict[bytes, int] = {}
        """Filter → the serial of the last delete that failed."""

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me
        self.in_doubt.clear()

    def has(self, filter: bytes) -> bool:
        return filter not in self._deleting and filter not in self.in_doubt and self._me in self._holders(filter)

    def put(self, filters: list[bytes], done: Callable[[int], None], user: bytes = NOBODY) -> None:
        """Write the rows in the user's turn. `done` gets the reason code for SUBACK, once it is known whether this
        node's table has them."""
        pieces = list(in_pieces(filters))
        worst = WorstReason(len(pieces), done)
        for piece in pieces:
            self._serial += 1
            written = self._submit([ROUTES.put((filter, self._me), None) for filter in piece], user)
            written.add_done_callback(partial(self._put, piece, self._serial, worst.done))

    def delete(self, filters: list[bytes]) -> None:
        for piece in in_pieces(filters):
            for filter in piece:
                self._deleting[filter] = self._deleting.get(filter, 0) + 1
            self._serial += 1
            written = self._submit([ROUTES.delete((filter, self._me)) for filter in piece], NOBODY)
            written.add_done_callback(partial(self._deleted, piece, self._serial))

    def delete_again(self) -> None:
        """Delete filters in doubt that no client wants. Otherwise their messages would be forwarded here forever."""
        unwanted = (f for f in self.in_doubt if f not in self._deleting and not self._is_wanted(f))
        self.delete(list(islice(unwanted, ROUTES_TRIED_AGAIN_MAX)))

    def _put(
        self, filters: list[bytes], serial: int, done: Callable[[int], None], written: asyncio.Future[StreamId]
    ) -> None:
        reason = self._reason(written)
        if reason < 0x80:
            self._end_doubts(filters, serial)
        done(reason)

    def _deleted(self, filters: list[bytes], serial: int, written: asyncio.Future[StreamId]) -> None:
        for filter in filters:
            left = self._deleting[filter] - 1
            if left:
                self._deleting[filter] = left
            else:
                del self._deleting[filter]
        if self._reason(written) >= 0x80:
            for filter in filters:
                self.in_doubt[filter] = max(serial, self.in_doubt.get(filter, 0))
        else:
            self._end_doubts(filters, serial)

    def _end_doubts(self, filters: list[bytes], serial: int) -> None:
        """This write is done: it comes after the deletes before it."""
        for filter in filters:
            if self.in_doubt.get(filter, serial) < serial:
                del self.in_doubt[filter]
