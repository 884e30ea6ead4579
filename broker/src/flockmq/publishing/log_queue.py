"""Publishes of clients that the log must have first, retained or delayed: written many at a time, users in turn.

    put ─▶ wait for the user's turn ─▶ a batch: one write to the log ─▶ results, in slices of SLOT_WORK_MAX_S

One batch is under way at a time: while it is written and answered the next one gathers, so an iteration of the event
loop has little to do for them, however many clients publish together. If the log is slow the next ones don't wait for
it, so that each is refused in time.

Invariants: what one user's clients publish is written in the order in which it was put. `done` is called once for each,
when this node's tables have it, and all routes that were written before a retained one, or when it is certain
that the log never gets it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from flockmq.bounds import (
    LOG_TRANSACTION_MAX_BYTES,
    LOGGED_MESSAGE_BYTES,
    LOGGED_OF_USER_WAITING_MAX_BYTES,
    LOGGED_TOGETHER_MAX,
    LOGGED_WAIT_S,
    LOGGED_WAITING_MAX_BYTES,
    SLOT_WORK_MAX_S,
)
from flockmq.clock import Clock
from flockmq.mqtt.reason import Reason
from flockmq.rlog.entry import Op, StreamId
from flockmq.rlog.errors import LogFull
from flockmq.time_slices import TimeSlices
from flockmq.user_turns import TurnQueue

log: Final = logging.getLogger(__name__)

T = TypeVar("T")
"""A message."""

OVER_QUOTA: Final = -1
"""The reason if its user has reached the quota of stored bytes."""


class QueuedRow(NamedTuple):
    """What to write for a message. `user`: whose quota counts for `more_bytes`. `instead`: what to write if there is no
    room for it. `sees_routes`: it must be matched by all routes that were written before."""

    op: Op
    user: bytes | None = None
    more_bytes: int = 0
    instead: Op | None = None
    sees_routes: bool = False


class StoredQuotas(Protocol):
    """How much users may store in the log."""

    def whose(self, user: bytes | None) -> bytes | None:
        """The user whose quota counts; None: no quota applies."""
        ...

    def grant(self, user: bytes, more_bytes: int) -> bool | None:
        """Whether the log may store `more_bytes` more of the user's; then call `confirmed`. None: ask again later."""
        ...

    def confirmed(self, user: bytes, more_bytes: int) -> None: ...


class LogQueue(Generic[T]):
    """One per node. `row` makes the row of a message, or returns the reason code of a refusal. `done` gets the reason
    code for its publisher. `submit` writes to the shard of retained messages. `see_routes` returns when this node's
    tables have all routes that were written before the newest of these writes."""

    def __init__(
        self,
        row: Callable[[T], QueuedRow | int],
        done: Callable[[T, int], None],
        submit: Callable[[Sequence[Op]], asyncio.Future[StreamId]],
        quotas: StoredQuotas,
        reason_of: Callable[[asyncio.Future[StreamId]], int],
        see_routes: Callable[[], Awaitable[None]],
        spawn: Callable[[Awaitable[None]], None],
        clock: Clock,
    ) -> None:
        self._row = row
        self._done = done
        self._submit = submit
        self._quotas = quotas
        self._reason_of = reason_of
        self._see_routes = see_routes
        self._spawn = spawn
        self._monotonic = clock.monotonic
        self._waiting = TurnQueue[tuple[T, int]]()
        """Messages, and what they count."""
        self._bytes_of: dict[bytes, int] = {}
        self._answers = TimeSlices(asyncio.get_running_loop().call_soon, clock)
        self._is_running = False
        self.waiting_bytes = 0

    def put(self, user: bytes, message: T, size_bytes: int) -> None:
        """Write a message in the user's turn. Its row is made then. It isn't done before this returns."""
        size_bytes += LOGGED_MESSAGE_BYTES
        of_user = self._bytes_of.get(user, 0) + size_bytes
        if of_user > LOGGED_OF_USER_WAITING_MAX_BYTES or self.waiting_bytes + size_bytes > LOGGED_WAITING_MAX_BYTES:
            self._answer([message], Reason.QUOTA_EXCEEDED)
            return
        self._bytes_of[user] = of_user
        self.waiting_bytes += size_bytes
        self._waiting.append(user, (message, size_bytes))
        if not self._is_running:
            self._is_running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        """Write batch after batch. The first one has what comes in this iteration of the event loop."""
        slow: asyncio.Future[None] | None = None
        try:
            await asyncio.sleep(0)
            while self._waiting:
                batch = self._take()
                has_held = self._waiting.release()
                if batch:
                    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._spawn(self._write(batch, finished))
                    is_slow = slow is not None and not slow.done()
                    await asyncio.wait([finished], timeout=0 if is_slow else LOGGED_WAIT_S)
                    slow = slow if is_slow else finished
                else:
                    await asyncio.sleep(LOGGED_WAIT_S if has_held else 0)
        finally:
            self._is_running = False

    def _take(self) -> list[tuple[QueuedRow, T]]:
        """The next messages, of users in turn."""
        batch: list[tuple[QueuedRow, T]] = []
        size_bytes, ends_s = 0, self._monotonic() + SLOT_WORK_MAX_S
        while self._waiting.has_turn() and len(batch) < LOGGED_TOGETHER_MAX and size_bytes < LOG_TRANSACTION_MAX_BYTES:
            user, waiting = self._waiting.popleft()
            message, counts_bytes = waiting
            row = self._granted(message)
            if row is None:
                self._waiting.hold(user, waiting)
                continue
            self._count_out(user or b"", counts_bytes)
            if isinstance(row, QueuedRow):
                batch.append((row, message))
                size_bytes += counts_bytes
            else:
                self._answer([message], row)
            if self._monotonic() >= ends_s:
                break
        return batch

    def _granted(self, message: T) -> QueuedRow | int | None:
        """What to write. None: the user's quota must be asked again later."""
        try:
            row = self._row(message)
        except Exception:  # the others, and its connection, must go on
            log.exception("a message for the log can't be written")
            return Reason.UNSPECIFIED_ERROR
        if isinstance(row, int) or (user := self._quotas.whose(row.user)) is None:
            return row if isinstance(row, int) else row._replace(user=None)
        may = self._quotas.grant(user, row.more_bytes)
        if may is False:
            return OVER_QUOTA if row.instead is None else QueuedRow(row.instead, sees_routes=row.sees_routes)
        return row if may else None

    def _count_out(self, user: bytes, size_bytes: int) -> None:
        self.waiting_bytes -= size_bytes
        left = self._bytes_of[user] - size_bytes
        if left:
            self._bytes_of[user] = left
        else:
            del self._bytes_of[user]

    async def _write(self, batch: list[tuple[QueuedRow, T]], finished: asyncio.Future[None]) -> None:
        """Write a batch, and answer it."""
        try:
            written = self._submit([row.op for row, _ in batch])
            if _is_full(written):  # Some may fit. All are submitted now: later ones may not come before them.
                alone = [self._submit_alone(row) for row, _ in batch]
                for (row, message), written in zip(batch, alone, strict=True):
                    await asyncio.wait([written])
                    self._confirmed(row)
                    self._answer([message], await self._seen(self._reason_of(written), row.sees_routes))
            else:
                await asyncio.wait([written])
                for row, _ in batch:
                    self._confirmed(row)
                reason = await self._seen(self._reason_of(written), any(row.sees_routes for row, _ in batch))
                self._answer([message for _, message in batch], reason)
        finally:
            self._answers.add(iter([partial(_finish, finished)]))

    def _submit_alone(self, row: QueuedRow) -> asyncio.Future[StreamId]:
        written = self._submit([row.op])
        return self._submit([row.instead]) if row.instead is not None and _is_full(written) else written

    def _confirmed(self, row: QueuedRow) -> None:
        if row.user is not None:
            self._quotas.confirmed(row.user, row.more_bytes)

    async def _seen(self, reason: int, sees_routes: bool) -> int:
        if reason < 0x80 and sees_routes:
            await self._see_routes()
        return reason

    def _answer(self, messages: list[T], reason: int) -> None:
        self._answers.add(partial(self._done, message, reason) for message in messages)


def _finish(finished: asyncio.Future[None]) -> None:
    if not finished.done():
        finished.set_result(None)


def _is_full(written: asyncio.Future[StreamId]) -> bool:
    return written.done() and not written.cancelled() and isinstance(written.exception(), LogFull)
