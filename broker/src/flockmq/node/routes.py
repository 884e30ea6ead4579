"""This node's own rows of `routes`: written for its clients' filters, deleted when the last client left.

What always holds: a filter counts as routed only while the table has the row and no delete of it may still come. A
delete whose outcome isn't known (the log was away for too long) stays in doubt until a later write of the filter is
through, which the log orders behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import partial

from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.shards import ROUTES

Submit = Callable[[Sequence[Op]], "asyncio.Future[StreamId]"]


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
        written = self._submit([ROUTES.put((filter, self._me), None) for filter in filters])
        written.add_done_callback(partial(self._put, filters, done))

    def delete(self, filters: list[bytes]) -> None:
        for filter in filters:
            self._deleting[filter] = self._deleting.get(filter, 0) + 1
        written = self._submit([ROUTES.delete((filter, self._me)) for filter in filters])
        written.add_done_callback(partial(self._deleted, filters))

    def delete_again(self) -> None:
        """What is in doubt and wanted by nobody: else its messages would be forwarded here for ever."""
        filters = [f for f in self.in_doubt if f not in self._deleting and not self._is_wanted(f)]
        if filters:
            self.delete(filters)

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
