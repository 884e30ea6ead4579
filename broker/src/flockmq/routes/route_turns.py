"""Writes of this node to the shard of routes, users in turn: whatever one user's clients write together, another user's
SUBSCRIBE waits for a few rows of it.

At most ROUTE_ROWS_UNDER_WAY_MAX rows are on their way to the log. They make one entry, which every node applies in one
go, so this bounds its time, too. All others wait here, row by row. The next one is a row of the user whose turn it is.

Invariants: changes of one row go to the log in the order in which they were submitted, whose turn it may be: a row that
waits goes with the user who changed it last. Of its changes only the last is written, because each is absolute; all who
wait for them get its result. What waits here for LOG_WRITE_DEADLINE_S fails, and is never written.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from flockmq.bounds import (
    LOG_APPEND_MAX_BYTES,
    LOG_TRANSACTION_MAX_BYTES,
    LOG_WRITE_DEADLINE_S,
    ROUTE_ROW_BYTES,
    ROUTE_ROWS_UNDER_WAY_MAX,
    ROUTES_OF_USER_WAITING_MAX_BYTES,
    ROUTES_WAITING_MAX_BYTES,
    SLOT_WORK_MAX_S,
)
from flockmq.redis.errors import StorageUnavailable
from flockmq.rlog.entry import PUT, START, Op, StreamId
from flockmq.rlog.errors import LogFull
from flockmq.user_turns import TurnQueue

Write = Callable[[Sequence[Op]], "asyncio.Future[StreamId]"]
NOBODY: Final = b""
"""Whose turn it is to write what no client waits for."""


class Submit(Protocol):
    """Writes rows in the turn of a user."""

    def __call__(self, ops: Sequence[Op], user: bytes = NOBODY) -> asyncio.Future[StreamId]: ...


_Key = tuple[int, str, bytes]
"""Table, owner and key of a row."""


class _Submitted:
    """One call of `submit`."""

    __slots__ = ("deadline_s", "done", "keys", "left", "stream_id")

    def __init__(self, done: asyncio.Future[StreamId], keys: list[_Key], deadline_s: float) -> None:
        self.done = done
        self.keys = keys
        self.left = len(keys)
        """Rows without a result."""
        self.stream_id = START
        self.deadline_s = deadline_s

    def row_written(self, stream_id: StreamId) -> None:
        self.left -= 1
        self.stream_id = max(self.stream_id, stream_id)
        if not self.left and not self.done.done():
            self.done.set_result(self.stream_id)


class _Row:
    """A row that waits: its last change, the user with whose turn it goes, and who waits for it."""

    __slots__ = ("op", "submitted", "user")

    def __init__(self, op: Op, user: bytes, submitted: _Submitted) -> None:
        self.op = op
        self.user = user
        self.submitted = [submitted]

    def size(self) -> int:
        return _size(self.op)


class RouteTurns:
    """`write` writes rows to the log."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._rows: dict[_Key, _Row] = {}
        self._turns = TurnQueue[_Key]()
        """The keys of rows that wait. A row that went to another user's turn is here twice."""
        self._bytes_of: dict[bytes, int] = {}
        self._submitted: deque[_Submitted] = deque()
        """The oldest first, to find those that have waited too long."""
        self._timer: asyncio.TimerHandle | None = None
        self.waiting_bytes = 0
        self._under_way = 0
        self._under_way_bytes = 0

    def __len__(self) -> int:
        """How many rows wait."""
        return len(self._rows)

    def submit(self, ops: Sequence[Op], user: bytes = NOBODY) -> asyncio.Future[StreamId]:
        """Write rows in this user's turn. The result is as that of `Rlog.submit`."""
        if not self._rows and self._under_way + len(ops) <= ROUTE_ROWS_UNDER_WAY_MAX:
            written, size_bytes = self._write(ops), sum(map(_size, ops))
            self._under_way += len(ops)
            self._under_way_bytes += size_bytes
            written.add_done_callback(partial(self._written_now, len(ops), size_bytes))
            return written
        done: asyncio.Future[StreamId] = self._loop.create_future()
        changes = {(table, owner, key): (table, kind, owner, key, value) for table, kind, owner, key, value in ops}
        more_bytes = sum(map(_size, changes.values()))
        of_user = self._bytes_of.get(user, 0) + more_bytes
        if of_user > ROUTES_OF_USER_WAITING_MAX_BYTES or self.waiting_bytes + more_bytes > ROUTES_WAITING_MAX_BYTES:
            done.set_exception(
                LogFull(f"{self.waiting_bytes} bytes of routes wait, {of_user - more_bytes} of one user")
            )
            return done
        submitted = _Submitted(done, list(changes), self._loop.time() + LOG_WRITE_DEADLINE_S)
        self._submitted.append(submitted)
        for key, op in changes.items():
            self._add(key, op, user, submitted)
        self._go_on()
        if self._timer is None and self._rows:
            self._timer = self._loop.call_at(submitted.deadline_s, self._fail_late)
        return done

    def _written_now(self, rows: int, size_bytes: int, written: asyncio.Future[StreamId]) -> None:
        self._under_way -= rows
        self._under_way_bytes -= size_bytes
        if self._submitted:
            self._go_on()

    def fail(self, error: Exception) -> None:
        """Fail all that waits: it was for rows of an incarnation that writes nothing more."""
        while self._submitted:
            self._give_up(self._submitted.popleft(), error)

    def _add(self, key: _Key, op: Op, user: bytes, submitted: _Submitted) -> None:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = _Row(op, user, submitted)
            self._turns.append(user, key)
        else:
            self._count(row, -1)
            row.op = op
            row.submitted.append(submitted)
            if row.user != user:
                row.user = user
                self._turns.append(user, key)
        self._count(row, 1)

    def _count(self, row: _Row, times: int) -> None:
        size = times * row.size()
        self.waiting_bytes += size
        of_user = self._bytes_of.get(row.user, 0) + size
        if of_user:
            self._bytes_of[row.user] = of_user
        else:
            self._bytes_of.pop(row.user, None)

    def _go_on(self) -> None:
        """Give rows to the log while there is room on the way to it: deletes apart from puts, which a full table
        refuses."""
        puts: list[_Row] = []
        deletes: list[_Row] = []
        while (
            self._turns and self._under_way < ROUTE_ROWS_UNDER_WAY_MAX and self._under_way_bytes < LOG_APPEND_MAX_BYTES
        ):
            row = self._next()
            if row is not None:
                self._under_way += 1
                self._under_way_bytes += row.size()
                (puts if row.op[1] == PUT else deletes).append(row)
        self._write_pieces(sorted(deletes, key=_run_of))
        self._write_pieces(sorted(puts, key=_run_of))
        if not self._rows:
            self._submitted.clear()

    def _next(self) -> _Row | None:
        """The row of the user whose turn it is. None: it went with another turn, or nobody waits for it any more."""
        user, key = self._turns.popleft()
        row = self._rows.get(key)
        if row is None or row.user != user:
            return None
        del self._rows[key]
        self._count(row, -1)
        return row

    def _write_pieces(self, rows: list[_Row]) -> None:
        """Write rows in pieces of at most one transaction's size, except for a single larger row."""
        piece: list[_Row] = []
        size_bytes = 0
        for row in rows:
            if piece and size_bytes + row.size() > LOG_TRANSACTION_MAX_BYTES:
                self._write_piece(piece)
                piece, size_bytes = [], 0
            piece.append(row)
            size_bytes += row.size()
        if piece:
            self._write_piece(piece)

    def _write_piece(self, rows: list[_Row]) -> None:
        written = self._write([row.op for row in rows])
        if len(rows) > 1 and _is_full(written):  # some may fit
            for row in rows:
                self._write_piece([row])
        else:
            written.add_done_callback(partial(self._written, rows))

    def _written(self, rows: list[_Row], written: asyncio.Future[StreamId]) -> None:
        self._under_way -= len(rows)
        self._under_way_bytes -= sum([row.size() for row in rows])
        error = asyncio.CancelledError() if written.cancelled() else written.exception()
        for row in rows:
            for submitted in row.submitted:
                if error is None:
                    submitted.row_written(written.result())
                else:
                    self._give_up(submitted, error)
        self._go_on()

    def _fail_late(self) -> None:
        """Fail what waits for too long, in slices."""
        self._timer = None
        now_s = self._loop.time()
        while self._submitted and (self._submitted[0].done.done() or self._submitted[0].deadline_s <= now_s):
            error = StorageUnavailable(f"shard route: not written within {LOG_WRITE_DEADLINE_S:g} s")
            self._give_up(self._submitted.popleft(), error)
            if self._loop.time() >= now_s + SLOT_WORK_MAX_S:
                break
        if self._submitted:
            self._timer = self._loop.call_at(self._submitted[0].deadline_s, self._fail_late)

    def _give_up(self, submitted: _Submitted, error: BaseException) -> None:
        """Of its rows, none that waits only for this is written any more."""
        if submitted.done.done():
            return
        for key in submitted.keys:
            row = self._rows.get(key)
            if row is not None and submitted in row.submitted:
                row.submitted.remove(submitted)
                if not row.submitted:
                    del self._rows[key]
                    self._count(row, -1)
        submitted.done.set_exception(error)


def _run_of(row: _Row) -> tuple[int, str]:
    """Rows of one table and owner are shorter in the log, and applied faster, together."""
    return row.op[0], row.op[2]


def _size(op: Op) -> int:
    return ROUTE_ROW_BYTES + len(op[3]) + len(op[4])


def _is_full(written: asyncio.Future[StreamId]) -> bool:
    return written.done() and not written.cancelled() and isinstance(written.exception(), LogFull)
