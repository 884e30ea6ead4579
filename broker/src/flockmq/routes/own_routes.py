"""This node's own rows of `routes`: written for its clients' filters, deleted when the last client left.

What always holds: a filter counts as routed only while the table has the row and no delete of it may still come. A
delete whose outcome isn't known (the log was away for too long) stays in doubt until a later write of the filter is
through, which the log orders behind it. However many filters a client leaves, what finds no room in the log is tried
again, and gets less: they are written in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice

from flockmq.bounds import LOG_TRANSACTION_MAX_BYTES, ROUTES_TRIED_AGAIN_MAX
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.schema import ROUTES

Submit = Callable[[Sequence[Op]], "asyncio.Future[StreamId]"]


def in_pieces(filters: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Of no more than a transaction takes, but for a filter that is longer."""
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


class Worst:
    """`parts` writes that have one answer: the worst of theirs."""

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
    """`holders` gives the incarnations that the table has a filter for; `is_wanted`: a client here subscribes to it."""

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
        self._deleting: dict[bytes, int] = {}
        self.in_doubt: dict[bytes, None] = {}

    def rename(self, me: str) -> None:
        """This node is another incarnation."""
        self._me = me
        self.in_doubt.clear()

    def has(self, filter: bytes) -> bool:
        return filter not in self._deleting and filter not in self.in_doubt and self._me in self._holders(filter)

    def put(self, filters: list[bytes], done: Callable[[int], None]) -> None:
        """`done` gets the reason code for SUBACK once this node's table has the rows, or won't."""
        pieces = list(in_pieces(filters))
        worst = Worst(len(pieces), done)
        for piece in pieces:
            written = self._submit([ROUTES.put((filter, self._me), None) for filter in piece])
            written.add_done_callback(partial(self._put, piece, worst.done))

    def delete(self, filters: list[bytes]) -> None:
        for piece in in_pieces(filters):
            for filter in piece:
                self._deleting[filter] = self._deleting.get(filter, 0) + 1
            written = self._submit([ROUTES.delete((filter, self._me)) for filter in piece])
            written.add_done_callback(partial(self._deleted, piece))

    def delete_again(self) -> None:
        """What is in doubt and wanted by nobody: else its messages would be forwarded here for ever."""
        unwanted = (f for f in self.in_doubt if f not in self._deleting and not self._is_wanted(f))
        self.delete(list(islice(unwanted, ROUTES_TRIED_AGAIN_MAX)))

    def _put(self, filters: list[bytes], done: Callable[[int], None], written: asyncio.Future[StreamId]) -> None:
        reason = self._reason(written)
        if reason < 0x80:
            for filter in filters:
                self.in_doubt.pop(filter, None)
        done(reason)

    def _deleted(self, filters: list[bytes], written: asyncio.Future[StreamId]) -> None:
        failed = self._reason(written) >= 0x80
        for filter in filters:
            left = self._deleting[filter] - 1
            if left:
                self._deleting[filter] = left
            else:
                del self._deleting[filter]
            if failed:
                self.in_doubt[filter] = None
            else:
                self.in_doubt.pop(filter, None)
